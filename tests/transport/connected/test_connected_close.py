"""Hazard: an endpoint is closed with operations in flight. Each of them ends, and no object is left."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import Access, Domain, EndpointType, EpAttr, Fabric, FabricAttr, Hints, MessageEndpoint, RemoteRegion
from aiofabric.cq.reactor import Reactor
from tests.fixtures.peers import where
from tests.fixtures.providers import CARRIERS, HOST, LONGEST, Pair, kind_of, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)

MIB = 1 << 20
HUGE = min(16 * MIB, LONGEST)
BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE

Operation = Callable[[MessageEndpoint, RemoteRegion], Awaitable[Any]]
PENDING: dict[str, Operation] = {
    "pooled receive": lambda ep, _: ep.recv(),
    "pooled receive into": lambda ep, _: ep.recv_into(bytearray(10)),
    "read": lambda ep, remote: ep.read(remote),
    "write": lambda ep, remote: ep.write(bytes(HUGE), remote),
}
DIRECT: dict[str, Operation] = {
    "send": lambda ep, _: ep.send(bytes(HUGE)),
    "direct receive": lambda ep, _: ep.recv(10),
    "direct receive into": lambda ep, _: ep.recv_into(bytearray(10)),
}


def skip_unless_pending(kind: str, provider: str) -> None:
    if kind in ("read", "write") and kind_of(provider) != EndpointType.MSG:
        pytest.skip("shm moves remote memory within the posting call: nothing is ever pending")
    if kind in ("read", "write") and provider == "verbs":
        pytest.skip("the devices move remote memory by themselves, and may have done so before the close")


async def end_or_end_with(expected: type[BaseException], operation: Awaitable[Any]) -> None:
    """The loop iterates once before a cancel arrives; an operation may complete meanwhile."""
    with suppress(expected):
        await operation


async def end_with(expected: type[BaseException], operation: Awaitable[Any]) -> None:
    with pytest.raises(expected):
        await operation


def nothing_is_in_use() -> None:
    """No slot is in use, and on a tcp connection none had to be given up."""
    for source in Reactor.current().statistics().sources:
        assert (source.slots_in_use, source.in_flight, source.abandoned, source.queued) == (0, 0, 0, 0)
        assert source.quarantined == 0


@pytest.mark.parametrize("way", ["close", "abort", "cancelled aclose"])
@pytest.mark.parametrize("kind", [*PENDING, *DIRECT])
async def test_pending_operations_end_with_closed(pair: Pair, provider: str, kind: str, way: str) -> None:
    skip_unless_pending(kind, provider)
    options = {"recv_size": None} if kind in DIRECT else {}
    memory = bytearray(HUGE)
    async with pair(**options) as (keeper, _), pair(**options) as (active, passive):
        with passive.domain.register(memory, access=BOTH) as region:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    operation = (PENDING | DIRECT)[kind](active, region.remote)
                    end = end_with if way != "cancelled aclose" or "receive" in kind else end_or_end_with
                    tasks.start_soon(end, ClosedResourceError, operation)
                while "receive" not in kind and not active.statistics().sends:
                    await anyio.lowlevel.checkpoint()
                await anyio.wait_all_tasks_blocked() if "receive" in kind else None
                with anyio.CancelScope() as scope:
                    if way == "cancelled aclose":
                        scope.cancel()
                        await active.aclose()
                    else:
                        getattr(active, way)()
                assert active.closed
            with anyio.fail_after(5), pytest.raises(aiofabric.FabricConnectionResetError):  # noqa: PT012
                while True:  # messages that the provider has already may still arrive
                    await passive.recv(*([HUGE] if kind in DIRECT else []))
        await passive.aclose()
        statistics = active.statistics()
        assert (statistics.sends, statistics.receives, statistics.queued, statistics.abandoned) == (0, 0, 0, 0)
        await keeper.aclose()
        memory.append(1)  # no reference is left


@pytest.mark.parametrize("kind", [*PENDING, *DIRECT])
async def test_pending_operations_of_the_other_side_end_with_reset(pair: Pair, provider: str, kind: str) -> None:
    skip_unless_pending(kind, provider)
    options = {"recv_size": None} if kind in DIRECT else {}
    async with pair(**options) as (active, passive):
        with passive.domain.register(bytearray(HUGE), access=BOTH) as region:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    operation = (PENDING | DIRECT)[kind](active, region.remote)
                    tasks.start_soon(end_with, ConnectionResetError, operation)
                while "receive" not in kind and not active.statistics().sends:
                    await anyio.lowlevel.checkpoint()
                await anyio.wait_all_tasks_blocked() if "receive" in kind else None
                passive.close()
        assert active.state == "peer gone"
    nothing_is_in_use()


async def test_queued_sends_end_as_well(pair: Pair) -> None:
    outcomes: list[str] = []

    async def send() -> None:
        try:
            await active.send(bytes(60_000))
        except ClosedResourceError:
            outcomes.append("closed")
        else:
            outcomes.append("sent")

    async with pair(recv_size=None) as (active, _), anyio.create_task_group() as tasks:
        for _ in range(600):
            tasks.start_soon(send)
        while active.statistics().queued < 200:
            await anyio.lowlevel.checkpoint()
        active.close()
    assert len(outcomes) == 600
    assert outcomes.count("closed") > 400


async def test_callbacks_are_told(pair: Pair) -> None:
    async with pair(recv_size=None) as (active, _):
        outcomes: list[BaseException | None] = []
        for _ in range(600):
            active.send_nowait(bytes(60_000), outcomes.append)
        active.close()
        assert len(outcomes) == 600
        assert {type(o) for o in outcomes} <= {ClosedResourceError, type(None)}
        assert ClosedResourceError in {type(o) for o in outcomes}


async def test_abandoned_sends_are_released(pair: Pair, provider: str) -> None:
    """At once where the endpoint is the connection's own; where connections share one, not before that is closed."""
    async with pair(recv_size=None) as (active, _):
        data = bytearray(HUGE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(active.send, data)
            while active.statistics().sends == 0:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert active.statistics().abandoned == 1
        with pytest.raises(BufferError):
            data.append(1)
        active.close()
        if kind_of(provider) == EndpointType.MSG:
            data.append(1)
    data.append(1)


async def test_messages_that_arrived_are_dropped_by_closing_and_kept_by_the_peers_leaving(pair: Pair) -> None:
    async with pair() as (active, passive):
        for n in range(5):
            await active.send(b"%d" % n)
        await active.shutdown()
        while passive.state == "connected":
            await anyio.lowlevel.checkpoint()
        assert await passive.recv() == b"0"
        assert passive.recv_nowait() == b"1"
        async with passive.recv_view() as view:
            assert bytes(view) == b"2"
            passive.close()
            assert bytes(view) == b"2"
        with pytest.raises(ClosedResourceError):
            await passive.recv()


@pytest.mark.parametrize("preface", [True, False])
async def test_a_shutdown_is_told_to_the_peer_with_and_without_an_end_mark(pair: Pair, preface: bool) -> None:
    """Both endpoints stay open."""

    async def send_for_ever() -> None:
        while True:
            await active.send(b"too late")

    async with pair(preface=preface) as (active, passive):
        await active.send(b"last")
        await active.shutdown()
        with anyio.fail_after(10):
            assert await passive.recv() == b"last"
            with pytest.raises(ConnectionResetError):
                await passive.recv()
            with pytest.raises(ConnectionError):
                await send_for_ever()


async def test_view_outlives_its_endpoint(pair: Pair) -> None:
    async with pair() as (active, passive):
        await active.send(b"lent")
        async with passive.recv_view() as view:
            passive.close()
            active.close()
            assert bytes(view) == b"lent"


async def test_closing_from_inside_a_sink(pair: Pair) -> None:
    """The callback runs in a turn; what it closes may be the queue that the turn reads."""
    async with pair() as (active, passive):
        received: list[bytes] = []
        ends: list[BaseException] = []

        def on_message(view: memoryview) -> None:
            received.append(bytes(view))
            if len(received) == 3:
                passive.close()
                active.close()

        passive.set_sink(on_message, ends.append)
        for n in range(10):
            active.send_nowait(b"%d" % n)
        with anyio.fail_after(5):
            while not passive.closed:
                await anyio.lowlevel.checkpoint()
        assert received == [b"0", b"1", b"2"]
        assert [type(e) for e in ends] == [ClosedResourceError]


async def test_closing_from_inside_the_end_of_a_sink(pair: Pair) -> None:
    async with pair() as (active, passive):
        ended = anyio.Event()

        def on_end(_: BaseException) -> None:
            passive.close()
            ended.set()

        passive.set_sink(lambda _: None, on_end)
        active.close()
        with anyio.fail_after(5):
            await ended.wait()
        assert passive.closed


async def test_closing_with_a_sink_and_a_full_queue(pair: Pair) -> None:
    """Messages that have arrived are read after fi_close. The sink gets them, and no receive may be posted again."""
    for _ in range(10):
        async with pair() as (active, passive):
            received: list[bytes] = []
            passive.set_sink(lambda view, received=received: received.append(bytes(view)))  # type: ignore[misc]
            for n in range(40):
                active.try_send(b"%d" % n)
            passive.close()
            assert received == [b"%d" % n for n in range(len(received))]


# -- refused close: the order is computed, never tried


def info_of(provider: str) -> aiofabric.Info:
    hints = Hints(fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind_of(provider)))
    return aiofabric.getinfo(where(provider, HOST), hints=hints)[0]


@pytest.mark.parametrize("what", ["domain", "fabric"])
async def test_closing_from_above_closes_everything_below_first(provider: str, what: str) -> None:
    info = info_of(provider)
    fabric = Fabric(info)
    domain = Domain(info, fabric)
    ends: list[MessageEndpoint] = []
    region = domain.register(bytearray(10), access=BOTH)
    async with aiofabric.listen("127.0.0.1", 0, domain=domain) as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            ends.append(await (await listener.accept_request()).accept())

        tasks.start_soon(accept)
        ends.append(await aiofabric.connect(listener.address, domain=domain))
    for ep in ends:
        assert ep.domain is domain
    async with anyio.create_task_group() as tasks:
        for ep in ends:
            tasks.start_soon(end_with, ClosedResourceError, ep.recv())
        await anyio.wait_all_tasks_blocked()
        (domain if what == "domain" else fabric).close()
    assert domain.closed
    assert region.closed
    assert all(ep.closed for ep in ends)
    with pytest.raises(ClosedResourceError):
        domain.register(bytearray(1))
    with pytest.raises(ClosedResourceError):
        await aiofabric.connect("127.0.0.1", 1, domain=domain)
    fabric.close()


async def test_shared_domain_goes_with_its_last_endpoint(pair: Pair) -> None:
    async with pair() as (first, _):
        domain = first.domain
        async with pair() as (second, _):
            assert second.domain is domain
        assert not domain.closed
    assert domain.closed
    assert Reactor.current().sources == []


async def test_forgotten_endpoint_warns_and_is_closed_from_above(provider: str) -> None:
    domain = Domain(info_of(provider))
    forgotten: list[MessageEndpoint] = []
    async with aiofabric.listen("127.0.0.1", 0, domain=domain) as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            forgotten.append(await (await listener.accept_request()).accept())

        tasks.start_soon(accept)
        active = await aiofabric.connect(listener.address, domain=domain)
    with pytest.warns(ResourceWarning, match=r"unclosed MessageEndpoint, opened at .*test_connected_close"):
        forgotten.clear()
    await active.send(b"nobody reads this")
    domain.close()
    assert active.closed


async def test_a_close_while_another_task_waits_for_the_peers_end_ends_that_wait(pair: Pair) -> None:
    async with pair() as (active, _):
        with anyio.fail_after(5):  # it would wait for 10 s
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(active.aclose)
                await anyio.wait_all_tasks_blocked()
                active.close()
