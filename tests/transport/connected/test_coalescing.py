"""Promise: messages that one connection sends in a batch leave together, and no task waits for the batch to end.

A batch is held back with the option TCP_CORK of the kernel's socket. Hazards: the option stays set, it is removed from
another socket, or messages are lost because the connection ends first.
"""

# Doubles: a descriptor is reused at the moment of fi_close.

import asyncio
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter, sleep

import anyio
import pytest

import aiofabric
from aiofabric import Address, MessageEndpoint, WrongLoopError
from aiofabric._core import COALESCE_NS
from aiofabric._ffi import lib
from aiofabric.cm.workarounds.borrowed_socket import BorrowedSocket
from aiofabric.cm.workarounds.provider_sockets import connected_socket, segments_sent
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

BATCH = COALESCE_NS / 1e9  # seconds
MANY = 50  # fewer than an await may answer at once, and than a receiver has receives


@contextmanager
def kernels(endpoint: MessageEndpoint) -> Iterator[socket.socket]:
    """The socket of the connection."""
    with socket.socket(fileno=os.dup(socket_of(endpoint))) as sock:
        yield sock


def socket_of(endpoint: MessageEndpoint) -> int:
    route = handle_of(endpoint).tx
    assert route is not None
    assert route.socket >= 0
    descriptor: int = route.socket
    return descriptor


def segments(endpoint: MessageEndpoint) -> int:
    with kernels(endpoint) as sock:
        return segments_sent(BorrowedSocket(sock.fileno()))


def corked(endpoint: MessageEndpoint) -> bool:
    with kernels(endpoint) as sock:
        return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK))


def batch(endpoint: MessageEndpoint) -> list[bytes]:
    """Send a few messages, of which the last is held back."""
    words: list[bytes] = []
    while len(words) < 3 or not corked(endpoint):
        assert len(words) < MANY
        words.append(b"%d" % len(words))
        assert endpoint.try_send(words[-1])
    return words


async def received(endpoint: MessageEndpoint, words: list[bytes]) -> bool:
    return [bytes(await endpoint.recv()) for _ in words] == words


def outlast_a_batch() -> None:
    sleep(2 * BATCH)


def compute() -> None:
    sleep(0.02)  # above the 10 ms after which the loop counts as late


def most_segments(seconds: float) -> float:
    """The number of segments for messages that were sent for this time: two for each batch."""
    return 2 + 2 * seconds / BATCH


async def test_it_leaves_together(pair: Pair) -> None:
    async with pair() as (active, passive):
        before, begin = segments(active), perf_counter()
        words = [b"%d" % number for number in range(MANY)]
        assert all(map(active.try_send, words))
        took = perf_counter() - begin
        assert await received(passive, words)
        assert segments(active) - before <= most_segments(took)


async def test_awaited_sends_are_one_as_well(pair: Pair) -> None:
    """With completions, and posted in a batch."""
    async with pair() as (active, passive):
        words = [bytes([number]) * 200 for number in range(MANY)]
        before, begin = segments(active), perf_counter()
        async with active.batch() as batch:
            for word in words:
                await batch.send(word)
        took = perf_counter() - begin
        assert await received(passive, words)
        assert segments(active) - before <= most_segments(took) + 2  # the batch may wait once in its middle


async def test_none_is_held_back_in_a_program_that_computes(pair: Pair) -> None:
    """The kernel would keep it for 200 ms. Two late batches show that it is such a program."""
    async with pair() as (active, passive):
        for _ in range(2):
            words = batch(active)
            compute()
            assert await received(passive, words)
        for number in range(10):
            assert active.try_send(b"%d" % number)
            assert not corked(active)
        assert await received(passive, [b"%d" % number for number in range(10)])


async def test_each_connection_has_its_own(pair: Pair) -> None:
    """All of them end with the first batch, however late another task sends."""
    async with pair() as (one, other_one), pair() as (two, other_two):
        words = batch(one)
        outlast_a_batch()
        assert two.try_send(b"0")
        assert not corked(one)
        assert not corked(two)
        assert await received(other_one, words)
        assert await received(other_two, [b"0"])


async def test_the_first_one_leaves_at_once(pair: Pair) -> None:
    """In the same step of the task: a single request is not held back."""
    async with pair() as (active, passive):
        for _ in range(3):
            assert active.try_send(b"?")
            with kernels(passive) as sock:
                assert select.select([sock], [], [], 5)[0]
            assert not corked(active)
            assert await passive.recv() == b"?"


async def test_it_leaves_when_the_loop_goes_round(pair: Pair) -> None:
    """The task that sent it may wait for something else altogether."""
    async with pair() as (active, passive):
        words = batch(active)
        with anyio.fail_after(5):
            while corked(active):
                await anyio.lowlevel.checkpoint()
        assert await received(passive, words)


async def test_it_leaves_before_a_look(pair: Pair) -> None:
    async with pair() as (active, passive):
        words = batch(active)
        source_of(active).drain()
        assert not corked(active)
        assert await received(passive, words)


@pytest.mark.parametrize("end", ["close", "shutdown"])
async def test_it_leaves_before_the_end(pair: Pair, end: str) -> None:
    async with pair() as (active, passive):
        words = batch(active)
        if end == "close":
            active.close()
        else:
            await active.shutdown()
        assert await received(passive, words)
        with pytest.raises(aiofabric.FabricConnectionResetError):
            await passive.recv()


async def send_and_vanish(parent: Parent, port: int, provider: str) -> None:
    endpoint = await aiofabric.connect("127.0.0.1", port, provider=provider)
    parent.tell(len(batch(endpoint)))
    os._exit(0)


async def test_it_leaves_though_the_process_ends(provider: str, child: Callable[..., Child]) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        child_sent = child(send_and_vanish, listener.address.port, provider)
        async with await (await listener.accept_request()).accept() as passive:
            words = [b"%d" % number for number in range(child_sent.receive())]
            assert await received(passive, words)


async def test_the_cork_of_anothers_socket_stays(pair: Pair) -> None:
    """The number of a closed endpoint's descriptor may soon be another file's."""
    async with pair() as (active, passive):
        words, number = batch(active), socket_of(active)
        active.close()
        with ExitStack() as others:
            while (sock := others.enter_context(socket.socket())).fileno() < number:
                pass
            assert sock.fileno() == number
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            assert await received(passive, words)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)


async def test_the_cork_of_a_socket_that_another_thread_opens_during_fi_close_stays(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard: an aborted endpoint's batch ended after fi_close, when its descriptor was another's already."""
    async with pair() as (active, _):
        batch(active)
        number = socket_of(active)
        close = lib.fi_close
        with ExitStack() as others:
            theirs: list[socket.socket] = []

            def close_and_open(fid: object) -> int:
                rc: int = close(fid)
                while not theirs or theirs[-1].fileno() < number:
                    theirs.append(others.enter_context(socket.socket()))
                theirs[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                return rc

            with monkeypatch.context() as patch:
                patch.setattr(lib, "fi_close", close_and_open)
                active.abort()
            assert theirs[-1].fileno() == number
            assert theirs[-1].getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)


def test_a_closed_loop_holds_nothing_back(provider: str, child: Callable[..., Child]) -> None:
    assert child(send_without_a_loop, provider).result() == 0


def send_without_a_loop(_: Parent, provider: str) -> int:
    async def connect() -> tuple[MessageEndpoint, MessageEndpoint]:
        async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
            accepted: list[MessageEndpoint] = []

            async def accept() -> None:
                accepted.append(await (await listener.accept_request()).accept())

            tasks.start_soon(accept)
            active = await aiofabric.connect(listener.address, provider=provider)
        return active, accepted[0]

    with asyncio.Runner() as runner:
        active, passive = runner.run(connect())
        lent = source_of(active).slots.in_use
    sent = 0
    for _data in range(3):
        with pytest.raises(WrongLoopError):
            sent += active.try_send(b"?")
    assert not corked(active)
    assert source_of(active).slots.in_use == lent
    passive.close()
    active.close()
    return sent


async def test_a_connection_from_a_reserved_address_has_them_too(provider: str) -> None:
    async with (
        aiofabric.listen("127.0.0.1", 0, provider=provider) as listener,
        aiofabric.reserve("127.0.0.1", 0, provider=provider) as reservation,
        anyio.create_task_group() as tasks,
    ):

        async def accept() -> None:
            async with await (await listener.accept_request()).accept() as passive:
                await passive.recv()

        tasks.start_soon(accept)
        async with await aiofabric.connect(listener.address, provider=provider, reservation=reservation) as active:
            assert socket_of(active)
            await active.send(b"done")


def test_a_socket_is_known_by_both_its_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        ours, theirs = Address.from_ip(*sock.getsockname()), Address.from_ip(*sock.getpeername())
        elsewhere = Address.from_ip("127.0.0.2", sock.getsockname()[1])
        number = sock.fileno()
        for descriptor, here, there, found in (
            (number, ours, theirs, True),
            (number, theirs, ours, False),
            (number, ours, elsewhere, False),
            (number, elsewhere, theirs, False),
            (server.fileno(), theirs, ours, False),
            (number, ours, None, False),
            (None, ours, theirs, False),
            (1 << 20, ours, theirs, False),
        ):
            assert (connected_socket(descriptor, here, there) is not None) is found
        assert sock.getpeername() == server.getsockname()  # and it is open still
