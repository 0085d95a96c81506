"""Cases that only virtual connections have: many on one multiplexer, two processes, a heartbeat."""

# Privates: an end that announces too many messages is made with the protocol's own format and a shorter delay.
# Doubles: a refused receive, and shorter delays.

from collections.abc import Callable
from contextlib import suppress

import anyio
import pytest

import aiofabric
from aiofabric import FabricConnectionResetError, MessageEndpoint
from aiofabric._ffi import constants, lib
from aiofabric.transport.virtual import connection
from aiofabric.transport.virtual.protocol import FrameKind
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import VIRTUAL, Pair, over

pytestmark = pytest.mark.anyio
provider = over(VIRTUAL)

MIB = 1 << 20
SIZES = (0, 1, 100, 4096, 4097, 65_536, 3 * MIB)


async def accept_all(listener: aiofabric.Listener, count: int, into: list[MessageEndpoint]) -> None:
    while len(into) < count:
        into.append(await (await listener.accept_request()).accept())


async def test_many_connections_say_much_while_nobody_looks(provider: str) -> None:
    """More messages than the multiplexer has receives posted; 1.17's shm would not find them again under a mask."""
    count, each = 30, 60
    passive: list[MessageEndpoint] = []
    async with (
        aiofabric.listen("127.0.0.1", 0, provider=provider, backlog=count) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(accept_all, listener, count, passive)
        active = [await aiofabric.connect(listener.address, provider=provider) for _ in range(count)]
    for n in range(each):
        for endpoint in active:
            endpoint.send_nowait(b"%d" % n)
            endpoint.send_nowait(b"%d" % n * 3000)
    for endpoint in passive:
        for n in range(each):
            assert await endpoint.recv() == b"%d" % n
            assert await endpoint.recv() == b"%d" % n * 3000
    for endpoint in active + passive:
        await endpoint.aclose()


async def echo(parent: Parent, provider: str, port: int) -> None:
    async with await aiofabric.connect(
        "127.0.0.1", port, provider=provider, param=b"question", recv_size=4 * MIB, recv_count=4
    ) as endpoint:
        parent.tell(endpoint.param)
        async for message in endpoint:
            await endpoint.send(message)


async def test_two_processes(child: Callable[..., Child], provider: str) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        peer = child(echo, provider, listener.address.port)
        request = await listener.accept_request()
        assert request.param == b"question"
        async with await request.accept(param=b"answer", recv_size=None) as endpoint:
            assert await peer.areceive() == b"answer"
            for size in SIZES:
                data = bytes(range(256)) * (size // 256) + bytes(size % 256)
                await endpoint.send(data)
                target = bytearray(size)
                assert await endpoint.recv_into(target) == size
                assert target == data
        await peer.aresult()


@pytest.mark.parametrize("code", [constants.FI_EAGAIN, constants.FI_ENOMEM])
async def test_receives_that_the_provider_has_no_room_for_are_posted_later(
    pair: Pair, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard: fi_trecv refuses in the middle of a pool's receives, and messages stop. 1.17's shm says -FI_ENOMEM."""
    refused = 0

    def refuse(*_: object) -> int:
        nonlocal refused
        refused += 1
        return -code

    async with pair(recv_count=4, recv_size=500) as (active, passive):
        with monkeypatch.context() as patch:
            patch.setattr(lib, "fi_trecv", refuse)
            with anyio.fail_after(30):
                while not refused:
                    await active.send(b"early")
                    assert await passive.recv() == b"early"
        with anyio.fail_after(30):
            active.send_nowait(b"end")
            while await passive.recv() != b"end":
                pass
            for number in range(100):
                await active.send(b"%d" % number)
                assert await passive.recv() == b"%d" % number


async def test_a_pool_without_posted_receives_is_filled_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hazard: no receive is posted, so no message arrives that would have the next one posted. A timer must do it."""
    refused = 0

    def refuse(*_: object) -> int:
        nonlocal refused
        refused += 1
        return -constants.FI_EAGAIN

    async with pair(recv_count=4, recv_size=500) as (active, passive), anyio.create_task_group() as tasks:
        pool = handle_of(passive).pooled

        async def receive_all() -> None:
            while await passive.recv() != b"late":
                pass

        tasks.start_soon(receive_all)
        with monkeypatch.context() as patch, anyio.fail_after(30):
            patch.setattr(lib, "fi_trecv", refuse)
            while pool.posted:
                active.send_nowait(b"early")
                await anyio.sleep(0.001)
            refused = 0
            while refused < 3:  # noqa: ASYNC110 - by the timer, which no event announces
                await anyio.sleep(0.001)
        active.send_nowait(b"late")


async def test_a_connection_that_ends_gives_its_share_of_the_receives_back(pair: Pair) -> None:
    async with pair() as (active, _):
        pool = handle_of(active).pooled
        before = pool.promised
        async with pair() as (other, _):
            assert handle_of(other).pooled is pool
            assert pool.promised > before
        with anyio.fail_after(10):
            while pool.promised > before:  # noqa: ASYNC110 - no event announces it
                await anyio.sleep(0.001)
        assert pool.promised == before


@pytest.mark.parametrize("way", ["abort", "peer"])
async def test_a_task_that_waits_for_a_remote_write_sees_the_end_of_the_connection(pair: Pair, way: str) -> None:
    """Found by `make mutate`: nothing noticed that the end was not passed on."""
    async with pair(remote_writes=4) as (active, passive), anyio.create_task_group() as tasks:

        async def wait() -> None:
            with pytest.raises((aiofabric.FabricError, anyio.ClosedResourceError)):
                await passive.remote_write()

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(30):
            (passive if way == "abort" else active).abort()
            while passive.state not in ("peer gone", "closed"):
                await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("extra", [0, 5])
async def test_messages_that_were_announced_and_never_come_end_the_connection(
    pair: Pair, extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard: a peer's last messages are lost, and the receiver waits for them for ever."""
    monkeypatch.setattr(connection, "_ANNOUNCED", 0.05)
    async with pair() as (active, passive):
        await active.send(b"arrives")
        assert await passive.recv() == b"arrives"
        handle = handle_of(active)
        handle.oob_socket.send(FrameKind.END, connection._COUNT.pack(handle.tx.sent + extra))
        with (
            anyio.fail_after(30),
            pytest.raises((aiofabric.FabricConnectionResetError, aiofabric.FabricError)) as ended,
        ):
            await passive.recv()
        assert isinstance(ended.value, aiofabric.FabricConnectionEndedError) is (extra == 0)


async def test_an_orderly_end_follows_messages_that_are_still_queued(pair: Pair) -> None:
    """Hazard: an end that overtakes queued messages announces too few, and the peer does not wait for the others."""
    async with pair(recv_count=4, recv_size=500) as (active, passive), anyio.create_task_group() as tasks:
        words = [b"%d" % number for number in range(50)]
        for word in words:
            active.send_nowait(word)
        assert active.statistics().queued
        tasks.start_soon(active.aclose)
        with anyio.fail_after(30):
            assert [bytes(message) async for message in passive] == words


async def test_messages_wait_for_receives_that_the_program_posts_after_the_end(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard: without a pool, the last messages stay with the provider; the connection ended before they were read."""
    monkeypatch.setattr(connection, "_ANNOUNCED", 0.01)
    async with pair(recv_size=None) as (active, passive):
        for number in range(3):
            active.send_nowait(b"%d" % number)
        await active.shutdown()
        handle = handle_of(passive)
        with anyio.fail_after(30):
            while handle.last is None or handle._cancel_wait is None:
                await anyio.lowlevel.checkpoint()
            first = handle._cancel_wait
            while handle._cancel_wait is first:  # one delay has passed
                await anyio.lowlevel.checkpoint()
            assert [bytes(await passive.recv(10)) for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("provider", ["shm"])  # one read gets the message; over rxm it may take several
async def test_the_last_message_comes_while_the_end_is_handled(pair: Pair) -> None:
    """Hazard: the end reads what has arrived, and the last message ended the connection once more."""
    received: list[bytes] = []

    async def receive(passive: MessageEndpoint) -> None:
        assert await passive.recv(10) == b"first"
        with suppress(FabricConnectionResetError):  # the provider did not have it yet
            received.append(bytes(await passive.recv(10)))

    for _ in range(20):
        async with pair(recv_size=None) as (active, passive), anyio.create_task_group() as tasks:
            tasks.start_soon(receive, passive)
            await active.send(b"first")
            await anyio.wait_all_tasks_blocked()
            handle = handle_of(passive)
            handle.last = 2  # as the peer announces it
            active.send_nowait(b"last")
            handle.peer_gone()
            assert passive.state == "peer gone"
        if received:
            break
    assert received == [b"last"]
