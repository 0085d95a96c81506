"""Shared receive and transmit contexts: one pool and one queue for many connections."""

# Doubles: no provider refuses a shared context on request.

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import (
    AddressVector,
    Domain,
    EndpointType,
    EpAttr,
    FabricAttr,
    FabricError,
    Hints,
    MessageEndpoint,
    NotSupportedError,
    OpFlags,
    SharedReceive,
    SharedTransmit,
)
from aiofabric._ffi import constants, lib
from aiofabric.info import SHARED_CONTEXT
from aiofabric.testing import live_resources
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import CONNECTED, HOST, RDMA_HOST
from tests.fixtures.through_python import post_receives_through

pytestmark = pytest.mark.anyio


def open_domain(provider: str, kind: EndpointType = EndpointType.MSG, **attr: int) -> Domain:
    hints = Hints(fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind, **attr))  # type: ignore[arg-type]
    return Domain(aiofabric.getinfo(HOST, hints=hints)[0])


@pytest.fixture(params=CONNECTED if RDMA_HOST else ["tcp", "sockets"])
def with_srx(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@asynccontextmanager
async def connections(
    provider: str, count: int, **accepting: Any
) -> AsyncIterator[tuple[list[MessageEndpoint], list[MessageEndpoint]]]:
    """That many connections: the connecting ends, and the accepted ones in the same order."""
    accepted: list[MessageEndpoint] = []
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(aiofabric.listen(HOST, provider=provider, **accepting))

        async def accept() -> None:
            accepted.append(await (await listener.accept_request()).accept())

        connected = []
        for _ in range(count):
            async with anyio.create_task_group() as tg:
                tg.start_soon(accept)
                connected.append(
                    await stack.enter_async_context(await aiofabric.connect(listener.address, provider=provider))
                )
            await stack.enter_async_context(accepted[-1])
        yield connected, accepted


async def use_without_the_name_in_the_info(opened: str, provider: str) -> None:
    """The Info does not say that a shared context will be bound."""
    kind = EndpointType.RDM if opened == "connectionless" else EndpointType.MSG
    hints = Hints(fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind))
    info = aiofabric.getinfo("127.0.0.1", hints=hints)[0]
    assert info.ep_attr.rx_ctx_cnt != SHARED_CONTEXT
    with Domain(info) as domain, SharedReceive(domain, recv_count=4) as shared:
        options: Any = {"info": info, "shared_receive": shared}
        if opened == "connectionless":
            async with (
                aiofabric.open_endpoint(kind, **options) as one,
                aiofabric.open_endpoint(kind, **options) as other,
                aiofabric.open_endpoint(kind, info=info) as sender,
            ):
                for receiver in (one, other):
                    await sender.send(b"hello", to=await sender.add_peer(receiver.local_address))
                    assert await shared.recv() == b"hello"
                    receiver.close()
        else:
            async with connections(provider, 2, **options) as (senders, receivers):
                for sender, receiver in zip(senders, receivers, strict=True):
                    await sender.send(b"hello")
                    assert await shared.recv() == b"hello"
                    receiver.close()


@pytest.mark.parametrize("opened", ["accepted", "connectionless"])
async def test_an_info_need_not_name_the_shared_context(opened: str) -> None:
    await use_without_the_name_in_the_info(opened, "sockets")


async def use_freed_memory(parent: Parent) -> None:
    for opened in ("accepted", "connectionless"):
        for _ in range(5):
            await use_without_the_name_in_the_info(opened, "sockets")


async def test_a_closed_endpoint_is_in_no_list_of_its_shared_context(
    child: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """sockets read the freed memory of one in a thread, if it was opened without the name of the shared context."""
    monkeypatch.setenv("MALLOC_PERTURB_", "165")  # overwrites freed memory
    await child(use_freed_memory).aresult()


async def test_one_pool_takes_the_messages_of_all(with_srx: str) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain, SharedReceive(domain, recv_count=8) as shared:
        async with connections(with_srx, 3, shared_receive=shared) as (senders, receivers):
            for number, sender in enumerate(senders):
                await sender.send(f"from {number}".encode(), remote_data=number)
            got = [await shared.recv() for _ in senders]
            assert sorted(got) == [b"from 0", b"from 1", b"from 2"]
            assert all(message == f"from {message.remote_data}".encode() for message in got)
            assert {message.source for message in got} == {None}
            await receivers[1].send(b"back")  # each endpoint has its own sends
            assert await senders[1].recv() == b"back"
            assert shared.statistics().messages == 3
            assert repr(shared) == "<SharedReceive 3 endpoints>"


async def test_sizes_begin_at_one(with_srx: str) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain:
        for size, count in ((0, 1), (1, 0)):
            with pytest.raises(ValueError, match="must be at least 1"):
                SharedReceive(domain, recv_size=size, recv_count=count)
        SharedReceive(domain, recv_size=1, recv_count=1).close()


async def test_more_messages_than_buffers(with_srx: str) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain, SharedReceive(domain, recv_count=4) as shared:
        async with connections(with_srx, 2, shared_receive=shared) as (senders, _), anyio.create_task_group() as tg:

            async def send(sender: MessageEndpoint) -> None:
                for _ in range(50):
                    await sender.send(bytes(1000))

            for sender in senders:
                tg.start_soon(send, sender)
            for _ in range(100):
                assert len(await shared.recv()) == 1000


async def test_the_loss_of_one_connection_is_no_matter_to_the_others(with_srx: str) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain, SharedReceive(domain, recv_count=4) as shared:
        async with connections(with_srx, 3, shared_receive=shared) as (senders, receivers):
            receivers[0].close()
            await senders[1].send(b"one")
            assert await shared.recv() == b"one"
            senders[1].close()
            await senders[2].send(b"two")
            assert await shared.recv() == b"two"


@pytest.mark.parametrize("call", ["fi_srx_context", "fi_ep_bind", "fi_recv"])
async def test_a_shared_receive_that_cannot_be_opened_leaves_nothing(
    with_srx: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain:
        before = live_resources()
        with monkeypatch.context() as patch:
            if call == "fi_recv":
                post_receives_through(patch, lambda *_: -constants.FI_EIO)
            else:
                patch.setattr(lib, call, lambda *_: -constants.FI_EIO)
            with pytest.raises(FabricError, match=call):
                SharedReceive(domain)
        assert live_resources() == before
        SharedReceive(domain).close()


async def test_the_statistics_of_an_endpoint_count_the_shared_pool(with_srx: str) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain, SharedReceive(domain, recv_count=8) as shared:
        async with connections(with_srx, 1, shared_receive=shared) as ((sender,), (receiver,)):
            await sender.send(b"one")
            assert await shared.recv() == b"one"
            pool = receiver.statistics().pool
            assert pool == shared.statistics()
            assert pool is not None
            assert (pool.messages, pool.bytes, pool.count) == (1, 3, 8)


async def test_an_endpoint_itself_cannot_receive(with_srx: str) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain, SharedReceive(domain) as shared:
        async with connections(with_srx, 1, shared_receive=shared) as (_, (receiver,)):
            for receive in (receiver.recv, lambda: receiver.recv_into(bytearray(1))):
                with pytest.raises(TypeError, match="arrive at its SharedReceive: receive there"):
                    await receive()
            with pytest.raises(TypeError, match="receive there"):
                receiver.recv_nowait()
            assert receiver.recv_size == 65536


async def test_an_endpoint_whose_peer_has_left_cannot_receive_either(with_srx: str) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain, SharedReceive(domain) as shared:
        async with connections(with_srx, 1, shared_receive=shared) as ((sender,), (receiver,)):
            sender.close()
            with anyio.fail_after(5):
                while handle_of(receiver).gone is None:  # noqa: ASYNC110 - only receives and sends get the end
                    await anyio.sleep(0.001)
            for receive in (receiver.recv, lambda: receiver.recv_into(bytearray(1))):
                with pytest.raises(TypeError, match="receive there"):
                    await receive()


async def test_cancelling_a_receive_loses_nothing(with_srx: str) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain, SharedReceive(domain) as shared:
        async with connections(with_srx, 1, shared_receive=shared) as ((sender,), _):
            with anyio.move_on_after(0.01):
                await shared.recv()
            await sender.send(b"late")
            assert await shared.recv() == b"late"


async def test_closing_closes_the_endpoints_first(with_srx: str) -> None:
    async def wait(shared: SharedReceive) -> None:
        with pytest.raises(ClosedResourceError):
            await shared.recv()

    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain:
        shared = SharedReceive(domain)
        async with connections(with_srx, 2, shared_receive=shared) as (_, receivers), anyio.create_task_group() as tg:
            tg.start_soon(wait, shared)
            await anyio.wait_all_tasks_blocked()
            shared.close()
            assert all(receiver.closed for receiver in receivers)


async def test_connecting_ends_can_share_as_well(with_srx: str) -> None:
    with open_domain(with_srx, rx_ctx_cnt=SHARED_CONTEXT) as domain, SharedReceive(domain) as shared:
        async with aiofabric.listen(HOST, provider=with_srx) as listener:

            async def greet() -> None:
                async with await (await listener.accept_request()).accept() as ep:
                    await ep.send(b"hello")
                    async for _ in ep:
                        raise AssertionError("no peer sends here")

            async with anyio.create_task_group() as tg:
                for _ in range(2):
                    tg.start_soon(greet)
                async with AsyncExitStack() as stack:
                    for _ in range(2):
                        ep = await aiofabric.connect(listener.address, shared_receive=shared)
                        await stack.enter_async_context(ep)
                    assert [await shared.recv(), await shared.recv()] == [b"hello", b"hello"]


async def test_a_shared_transmit_queue() -> None:
    with open_domain("sockets", tx_ctx_cnt=SHARED_CONTEXT) as domain, SharedTransmit(domain) as shared:
        async with connections("sockets", 2, shared_transmit=shared) as (connected, accepted):
            for ep in accepted:
                await ep.send(bytes(5000))
            for ep in connected:
                assert len(await ep.recv()) == 5000
            assert repr(shared) == "<SharedTransmit 2 endpoints>"
            shared.close()
            assert all(ep.closed for ep in accepted)


async def lose_a_peer_with_a_send_unanswered(parent: Parent) -> None:
    with (
        open_domain("sockets", EndpointType.RDM, tx_ctx_cnt=SHARED_CONTEXT) as domain,
        SharedTransmit(domain) as shared,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        rdm: Any = {"type": EndpointType.RDM, "node": "127.0.0.1", "provider": "sockets"}
        async with aiofabric.open_endpoint(**rdm, shared_transmit=shared) as one, anyio.create_task_group() as tg:

            async def send() -> None:
                with pytest.raises(FabricError, match="FI_EIO"):
                    await one.send(bytes(5000), to=await one.add_peer("127.0.0.1", server.getsockname()[1]))

            tg.start_soon(send)
            accepted, _ = await anyio.to_thread.run_sync(server.accept)
            with accepted:
                await anyio.to_thread.run_sync(accepted.recv, 1)
        assert one.closed


async def test_the_loss_of_a_peer_of_a_shared_transmit_queue_crashes_nobody(child: Callable[..., Child]) -> None:
    """sockets finds no endpoint in a send of a shared context, and needs one when its connection ends."""
    await child(lose_a_peer_with_a_send_unanswered).aresult()


async def test_tcp_has_no_shared_transmit_queue() -> None:
    with open_domain("tcp") as domain, pytest.raises(NotSupportedError, match=r"fi_stx_context: .*FI_ENOSYS"):
        SharedTransmit(domain)


async def test_connections_without_native_endpoints_share_nothing() -> None:
    with pytest.raises(NotSupportedError, match="shm has no connected endpoints of its own"):
        async with aiofabric.listen(provider="shm", prepare=print):
            pass


async def test_one_pool_for_connectionless_endpoints() -> None:
    """fi_endpoint(3), fi_srx_context: completions go to the endpoint's queue. Before, only the sender got one."""
    attr = EpAttr(type=EndpointType.RDM, rx_ctx_cnt=SHARED_CONTEXT)
    info = aiofabric.getinfo("127.0.0.1", hints=Hints(ep_attr=attr))[0]
    rdm: dict[str, Any] = {"type": EndpointType.RDM, "node": "127.0.0.1", "provider": info.fabric_attr.prov_name}
    with Domain(info) as domain, SharedReceive(domain, recv_count=4) as shared:
        async with (
            aiofabric.open_endpoint(**rdm, shared_receive=shared) as one,
            aiofabric.open_endpoint(**rdm, shared_receive=shared) as other,
            aiofabric.open_endpoint(**rdm) as sender,
        ):
            there = [await sender.add_peer(each.local_address) for each in (one, other)]
            for number in range(20):
                await sender.send(b"%d" % number, to=there[number % 2], flags=OpFlags.DELIVERY_COMPLETE)
                assert await shared.recv() == b"%d" % number
            await other.send(b"back", to=await other.add_peer(sender.local_address))
            assert await sender.recv() == b"back"
            for refused in (
                one.recv,
                lambda: one.recv_tagged(1),
                lambda: one.recv_tagged_into(bytearray(9), 1),
                lambda: one.peek_tagged(1),
            ):
                with pytest.raises(TypeError, match="arrive at its SharedReceive: receive there"):
                    await refused()
            one.close()
            await sender.send(b"to the other", to=there[1])
            assert await shared.recv() == b"to the other"


async def test_endpoints_of_a_shared_receive_have_one_address_vector() -> None:
    """The address vector gives the sources of messages their numbers."""
    with open_domain("sockets", EndpointType.RDM) as domain, SharedReceive(domain) as shared:
        rdm: Any = {"type": EndpointType.RDM, "node": "127.0.0.1", "domain": domain, "shared_receive": shared}
        with AddressVector(domain) as other:
            async with aiofabric.open_endpoint(**rdm) as one, aiofabric.open_endpoint(**rdm) as two:
                assert one.vector is two.vector
                with pytest.raises(ValueError, match="all endpoints of a SharedReceive have one address vector"):
                    await aiofabric.open_endpoint(**rdm, address_vector=other).__aenter__()
            vector = one.vector
            assert not vector.closed, "the next endpoint uses it"
    assert vector.closed
    with open_domain("sockets", EndpointType.RDM) as domain, SharedReceive(domain) as shared:
        rdm |= {"domain": domain, "shared_receive": shared}
        with AddressVector(domain) as named:
            async with aiofabric.open_endpoint(**rdm, address_vector=named), aiofabric.open_endpoint(**rdm) as two:
                assert two.vector is named
