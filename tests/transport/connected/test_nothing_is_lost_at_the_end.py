"""Hazard: a connection ends while messages are on their way. All sent messages arrive, and the kind of end is reported
truly.
"""

import errno
import os
import signal
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import FabricConnectionEndedError, FabricConnectionResetError, MessageEndpoint
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import CONNECTED, HOST, VIRTUAL, Pair, over

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

provider = over([*CONNECTED, *VIRTUAL])

UNREAD = 200  # more than a pool takes


async def closes_with_unread(parent: Parent, provider: str, port: int, count: int, size: int, way: str) -> None:
    endpoint = await aiofabric.connect(HOST, port, provider=provider)
    async with endpoint:
        await parent.areceive()  # the peer has sent until it had to wait
        for n in range(count):
            await endpoint.send(n.to_bytes(4, "big") + bytes(size - 4))
        if way == "shutdown":
            await endpoint.shutdown()
        elif way == "exception":
            with pytest.raises(ZeroDivisionError):
                async with endpoint:
                    raise ZeroDivisionError


async def flood(endpoint: MessageEndpoint) -> None:
    """Send messages that the peer does not read."""
    try:
        for _ in range(UNREAD):
            await endpoint.send(bytes(1000))
    except FabricConnectionResetError:
        pass


@pytest.mark.parametrize(("count", "size"), [(50, 60_000), (100, 64)])
@pytest.mark.parametrize("way", ["leave", "shutdown", "exception"])
async def test_closing_with_unread_messages_delivers_what_was_sent(
    child: Any, provider: str, count: int, size: int, way: str
) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider) as listener:
        peer: Child = child(closes_with_unread, provider, listener.address.port, count, size, way)
        async with (
            await (await listener.accept_request()).accept(recv_count=16) as endpoint,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(flood, endpoint)
            await anyio.wait_all_tasks_blocked()
            peer.tell("go")
            received = [int.from_bytes(message[:4], "big") async for message in endpoint]
            assert received == list(range(count))
            with pytest.raises(FabricConnectionEndedError):
                await endpoint.recv()
        await peer.aresult()


async def sends_and_waits(parent: Parent, provider: str, port: int, way: str) -> None:
    endpoint = await aiofabric.connect(HOST, port, provider=provider)
    for n in range(5):
        await endpoint.send(b"%d" % n)
    await endpoint.recv()
    if way == "abort":
        endpoint.abort()
    elif way == "close":
        endpoint.close()
    elif way == "exit":
        os._exit(0)
    parent.tell("done")
    await parent.areceive()


@pytest.mark.parametrize("way", ["kill", "abort", "exit", "close"])
async def test_iteration_ends_normally_on_an_orderly_end_only(child: Any, provider: str, way: str) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider) as listener:
        peer: Child = child(sends_and_waits, provider, listener.address.port, way)
        endpoint = await (await listener.accept_request()).accept()
        received = [await endpoint.recv() for _ in range(5)]
        if way == "kill":
            peer.kill(signal.SIGKILL)
        else:
            await endpoint.send(b"now")
        if way == "close":
            assert [message async for message in endpoint] == []
        else:
            with pytest.raises(FabricConnectionResetError) as caught:  # noqa: PT012
                async for message in endpoint:
                    received.append(message)  # noqa: PERF401
            assert type(caught.value) is FabricConnectionResetError
        assert received == [b"%d" % n for n in range(5)]
        await endpoint.aclose()
        if way not in ("kill", "exit"):
            await peer.areceive()
            peer.tell("end")
            await peer.aresult()


async def test_both_sides_close_at_once(pair: Pair) -> None:
    async with pair() as (active, passive):
        for end in (active, passive):
            for _ in range(20):
                await end.send(bytes(1000))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(active.aclose)
                tasks.start_soon(passive.aclose)
        assert active.closed
        assert passive.closed


async def test_a_second_close_waits_for_the_first(pair: Pair) -> None:
    async with pair() as (active, passive):
        await passive.send(b"unread")
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(active.aclose)
        assert active.closed
        with pytest.raises(FabricConnectionEndedError):
            await passive.recv()


async def test_the_wait_for_a_peer_that_does_not_read_is_bounded(pair: Pair) -> None:
    """The sent messages arrive when the peer reads again: the kernel, or shared memory, still has them."""
    async with pair(accepting={"recv_count": 4}, close_timeout=0.2) as (active, passive):
        sent = 0
        with anyio.move_on_after(0.3):
            while sent < 40:
                await active.send(b"%d" % sent)
                sent += 1
        with anyio.fail_after(5):
            await active.aclose()
        assert active.closed
        received: list[bytes] = []
        with anyio.fail_after(5), pytest.raises(FabricConnectionResetError):  # noqa: PT012
            while True:
                received.append(await passive.recv())
        assert received == [b"%d" % n for n in range(len(received))]
        assert len(received) >= min(4, sent)


async def test_cancelling_the_close_closes_at_once(pair: Pair) -> None:
    async with pair(accepting={"recv_count": 1}) as (active, passive):
        for _ in range(20):
            with anyio.move_on_after(0.01):
                await active.send(bytes(60_000))
        with anyio.fail_after(5):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await active.aclose()
            assert active.closed
            with pytest.raises(FabricConnectionResetError):  # noqa: PT012
                while True:
                    await passive.recv()


async def test_an_endpoint_that_is_being_closed_is_refused(pair: Pair) -> None:
    async with pair(accepting={"recv_count": 1}) as (active, passive):
        refused: list[str] = []

        async def use() -> None:
            for call in (lambda: active.send(b"late"), active.recv, lambda: active.recv_into(bytearray(9))):
                with pytest.raises(anyio.ClosedResourceError) as caught:
                    await call()
                refused.append(str(caught.value))

        async def wait() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await active.recv()
            refused.append("waiter")

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                for _ in range(3):  # more than the peer has room for: the close has to wait for it
                    active.send_nowait(bytes(60_000))
                tasks.start_soon(active.aclose)
                await anyio.wait_all_tasks_blocked()
                await use()
                while True:
                    try:
                        await passive.recv()
                    except FabricConnectionEndedError:
                        break
        assert "waiter" in refused
        assert len(refused) == 4


async def test_after_shutdown_sends_are_refused(pair: Pair) -> None:
    async with pair() as (active, passive):
        await active.send(b"last")
        await active.shutdown()
        with pytest.raises(ConnectionError):
            await active.send(b"one more")
        with pytest.raises(ConnectionError):
            active.try_send(b"one more")
        assert [message async for message in passive] == [b"last"]


@pytest.mark.parametrize("size", [0, 8])
async def test_remote_data_of_the_programs_own_is_not_the_end(pair: Pair, size: int) -> None:
    async with pair() as (active, passive):
        bits = 8 * active.info.domain_attr.cq_data_size
        for data in (0, 1, (1 << bits - 1) - 1, (1 << bits) - 1):
            await active.send(bytes(size), remote_data=data)
            message = await passive.recv()
            assert (len(message), message.remote_data) == (size, data)


async def test_peer_that_ends_breaks_what_is_under_way_here(pair: Pair) -> None:
    async with pair() as (active, passive):
        await active.aclose()
        with anyio.fail_after(5):
            with pytest.raises(FabricConnectionEndedError) as caught:  # noqa: PT012
                while True:
                    await passive.send(b"anybody?")
                    await anyio.lowlevel.checkpoint()
        assert caught.value.errno == errno.ECONNRESET
        assert "closed the connection in order" in str(caught.value)


async def test_client_that_leaves_at_once_is_accepted_and_has_ended_in_order(provider: str) -> None:
    """Its end may come before the accept is through."""
    ended: list[int] = []

    async def serve(request: aiofabric.ConnectionRequest) -> None:
        async with await request.accept() as endpoint:
            ended.append(len([message async for message in endpoint]))

    async def come_and_go(address: aiofabric.Address) -> None:
        async with await aiofabric.connect(address, provider=provider):
            pass

    async with (
        aiofabric.listen(HOST, 0, provider=provider) as listener,
        anyio.create_task_group() as serving,
        anyio.create_task_group() as clients,
    ):
        for _ in range(40):
            clients.start_soon(come_and_go, listener.address)
        for _ in range(40):
            serving.start_soon(serve, await listener.accept_request())
    assert ended == [0] * 40
