"""Counters: the operations that they count, the tasks that they wake, and the order of closing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
import trio.testing
from anyio import ClosedResourceError
from anyio.lowlevel import checkpoint

import aiofabric
from aiofabric import (
    Access,
    Bind,
    Caps,
    Counter,
    Domain,
    EndpointType,
    EpAttr,
    FabricAttr,
    FabricError,
    Hints,
    MessageEndpoint,
    NotSupportedError,
    RemoteRegion,
)
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.peers import skip_without

pytestmark = pytest.mark.anyio

BIG = bytes(4096)  # more than any inject size


def open_domain(provider: str, kind: EndpointType = EndpointType.MSG) -> Domain:
    hints = Hints(fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind))
    return Domain(aiofabric.getinfo("127.0.0.1", hints=hints)[0])


@asynccontextmanager
async def counted(
    domain: Domain, active: dict[Counter, Bind], passive: dict[Counter, Bind] | None = None
) -> AsyncIterator[tuple[MessageEndpoint, MessageEndpoint]]:
    """Both ends of a connection on one domain, with counters."""
    hints = Hints(caps=Caps.MSG | Caps.RMA | Caps.RMA_EVENT)
    accepted: list[MessageEndpoint] = []

    async def accept(listener: aiofabric.Listener) -> None:
        request = await listener.accept_request()
        accepted.append(await request.accept(counters=passive or {}))

    async with aiofabric.listen("127.0.0.1", domain=domain, hints=hints) as listener:
        async with anyio.create_task_group() as tg:
            tg.start_soon(accept, listener)
            ep = await aiofabric.connect(listener.address, domain=domain, hints=hints, counters=active)
        async with ep, accepted[0] as other:
            yield ep, other


async def test_counts_what_the_binding_says(provider: str) -> None:
    with open_domain(provider) as domain, Counter(domain) as sent, Counter(domain) as received:
        async with counted(domain, {sent: Bind.SEND}, {received: Bind.RECV}) as (active, passive):
            for _ in range(5):
                await active.send(BIG)
            assert await sent.wait(5) == 5
            assert await received.wait(5) == 5
            assert (received.read_error(), sent.read_error()) == (0, 0)
            for _ in range(5):
                assert await passive.recv() == BIG
            await passive.send(BIG)  # neither counts this direction
            assert await active.recv() == BIG
            assert (sent.read(), received.read()) == (5, 5)


async def test_a_task_that_waits_is_woken(provider: str) -> None:
    reached: list[int] = []

    async def wait(counter: Counter) -> None:
        reached.append(await counter.wait(3))

    with open_domain(provider) as domain, Counter(domain) as counter:
        async with counted(domain, {}, {counter: Bind.RECV}) as (active, _), anyio.create_task_group() as tg:
            tg.start_soon(wait, counter)
            for _ in range(2):
                await active.send(BIG)
            await anyio.wait_all_tasks_blocked()
            assert reached == []
            await active.send(BIG)
    assert reached == [3]


async def test_the_target_counts_writes(provider: str) -> None:
    """tcp of both generations counts only those with remote data (xnet_progress.c, tcpx_cq.c)."""
    memory = bytearray(16)
    with open_domain(provider) as domain, Counter(domain) as written:
        async with counted(domain, {}, {written: Bind.REMOTE_WRITE}) as (active, _):
            with domain.register(memory, access=Access.REMOTE_WRITE) as region:
                remote = RemoteRegion.unpack(region.remote.pack())
                for number in range(3):
                    await active.write(b"0123456789abcdef", remote, remote_data=number)
                assert await written.wait(3) == 3
                assert memory == b"0123456789abcdef"


async def test_add_and_set(provider: str) -> None:
    with open_domain(provider) as domain, Counter(domain) as counter:
        counter.add(3)
        assert counter.read() == 3
        counter.set(40)
        counter.add_error(2)
        assert (counter.read(), counter.read_error()) == (40, 2)
        counter.set_error(0)
        assert counter.read_error() == 0
        assert await counter.wait(40) == 40
        assert repr(counter) == "<Counter 40>"


@pytest.mark.parametrize("anyio_backend", ["trio"])  # asyncio's awaits may return without a step of the loop
async def test_a_wait_that_ends_at_once_is_a_checkpoint_on_trio(provider: str) -> None:
    with open_domain(provider) as domain, Counter(domain) as counter, trio.testing.assert_checkpoints():
        assert await counter.wait(0) == 0


async def test_adding_wakes_waiting_tasks(provider: str) -> None:
    with open_domain(provider) as domain, Counter(domain) as counter:
        async with anyio.create_task_group() as tg:
            tg.start_soon(counter.wait, 2)
            await anyio.wait_all_tasks_blocked()
            counter.add(1)
            await checkpoint()
            counter.add(1)


async def test_a_failure_ends_the_wait(provider: str) -> None:
    async def wait(counter: Counter) -> None:
        with pytest.raises(FabricError, match="1 of the counted operations failed; 0 of 1 had finished well"):
            await counter.wait(1)

    with open_domain(provider) as domain, Counter(domain) as counter:
        async with anyio.create_task_group() as tg:
            tg.start_soon(wait, counter)
            await anyio.wait_all_tasks_blocked()
            counter.add_error(1)


async def test_earlier_failures_do_not_end_a_wait(provider: str) -> None:
    reached: list[int] = []

    async def wait(counter: Counter) -> None:
        reached.append(await counter.wait(1))
        with pytest.raises(FabricError, match="3 of the counted operations failed; 1 of 2 had finished well"):
            await counter.wait(2)

    with open_domain(provider) as domain, Counter(domain) as counter:
        counter.add_error(2)
        async with anyio.create_task_group() as tg:
            tg.start_soon(wait, counter)
            await anyio.wait_all_tasks_blocked()
            counter.add(1)
            await anyio.wait_all_tasks_blocked()
            counter.add_error(3)
    assert reached == [1]


async def test_cancelling_a_wait_leaves_nothing_behind(provider: str) -> None:
    with open_domain(provider) as domain, Counter(domain) as counter:
        async with counted(domain, {}, {counter: Bind.RECV}) as (active, passive):
            source = source_of(passive)
            with anyio.move_on_after(0):
                await counter.wait(1)
            async with anyio.create_task_group() as tg:
                tg.start_soon(counter.wait, 1)
                await anyio.wait_all_tasks_blocked()
                assert list(source.polled) == [handle_of(counter)]
                tg.cancel_scope.cancel()
            assert not source.polled
            await active.send(BIG)
            assert await counter.wait(1) == 1


async def test_closing_wakes_waiting_tasks(provider: str) -> None:
    async def wait(counter: Counter) -> None:
        with pytest.raises(ClosedResourceError):
            await counter.wait(1)

    with open_domain(provider) as domain:
        counter = Counter(domain)
        async with anyio.create_task_group() as tg:
            tg.start_soon(wait, counter)
            await anyio.wait_all_tasks_blocked()
            counter.close()
        with pytest.raises(ClosedResourceError):
            counter.read()


async def test_closing_wakes_waiting_tasks_also_if_an_endpoint_lingers() -> None:
    """Over shm, an endpoint stays open internally while others of its process know it, and so does its counter."""
    skip_without("shm", Caps.MSG)

    async def wait(counter: Counter) -> None:
        with pytest.raises(ClosedResourceError):
            await counter.wait(1000)

    hints = Hints(fabric_attr=FabricAttr(prov_name="shm"), ep_attr=EpAttr(type=EndpointType.RDM))
    with Domain(aiofabric.getinfo(hints=hints)[0]) as domain, Counter(domain) as counter:
        sends = {counter: Bind.SEND}
        async with (
            aiofabric.open_endpoint(EndpointType.RDM, provider="shm") as other,
            aiofabric.open_endpoint(EndpointType.RDM, domain=domain, counters=sends) as one,
            anyio.create_task_group() as tg,
        ):
            await other.add_peer(one.local_address)
            await one.send(b"hello", to=await one.add_peer(other.local_address))
            assert await other.recv() == b"hello"
            tg.start_soon(wait, counter)
            await anyio.wait_all_tasks_blocked()
            counter.close()
            assert one.closed


async def test_endpoints_close_before_the_counter_they_are_bound_to(provider: str) -> None:
    with open_domain(provider) as domain:
        counter = Counter(domain)
        async with counted(domain, {counter: Bind.SEND}) as (active, _):
            counter.close()  # with the endpoint open, fi_close would be refused, which is destructive
            assert active.closed
    assert counter.closed


async def test_a_closed_counter_is_refused(provider: str) -> None:
    with open_domain(provider) as domain:
        counter = Counter(domain)
        counter.close()
        async with aiofabric.listen("127.0.0.1", domain=domain) as listener:
            with pytest.raises(ClosedResourceError):
                await aiofabric.connect(listener.address, domain=domain, counters={counter: Bind.SEND})


async def test_a_counter_of_another_domain_is_refused(provider: str) -> None:  # it crashed 1.17's tcp
    with open_domain(provider) as domain, open_domain(provider) as other, Counter(other) as counter:
        async with aiofabric.listen("127.0.0.1", domain=domain) as listener:
            with pytest.raises(ValueError, match="pass domain="):
                await aiofabric.connect(listener.address, domain=domain, counters={counter: Bind.SEND})
            with pytest.raises(TypeError, match="Counter objects"):
                await aiofabric.connect(listener.address, counters={other: Bind.SEND})  # type: ignore[dict-item]
            with pytest.raises(TypeError, match="shared_transmit must be a SharedTransmit"):
                await aiofabric.connect(listener.address, shared_transmit=counter)  # type: ignore[arg-type]


async def test_a_counters_domain_is_the_endpoints_by_itself() -> None:
    with open_domain("tcp;ofi_rxm", EndpointType.RDM) as domain, Counter(domain) as counter:
        async with aiofabric.open_endpoint(EndpointType.RDM, counters={counter: Bind.SEND}) as endpoint:
            assert endpoint.domain is domain


async def test_a_provider_without_counters_says_so() -> None:
    with open_domain("udp", EndpointType.DGRAM) as domain, pytest.raises(NotSupportedError, match="FI_ENOSYS"):
        Counter(domain)
