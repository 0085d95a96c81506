"""Promise: what one connection sends in a volley leaves together, and nobody waits for it.

A volley is held back by corking the kernel's socket. Hazards: a cork that stays, one that is taken off another's
socket, words that are lost because the end comes first.
"""

import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import pytest

import aiofabric
from aiofabric import Address, MessageEndpoint
from aiofabric.cm.sockets import connected_socket
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

DATA_SEGMENTS, SEGMENTS_AT = struct.Struct("@I"), 156  # tcpi_data_segs_out of struct tcp_info (linux/tcp.h)
MANY = 50  # fewer than an await may answer at once, and than a receiver has receives


@contextmanager
def kernels(endpoint: MessageEndpoint) -> Iterator[socket.socket]:
    """The socket beneath."""
    assert endpoint._descriptor is not None
    with socket.socket(fileno=os.dup(endpoint._descriptor)) as sock:
        yield sock


def segments(endpoint: MessageEndpoint) -> int:
    with kernels(endpoint) as sock:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SEGMENTS_AT + DATA_SEGMENTS.size)
    return int(DATA_SEGMENTS.unpack_from(info, SEGMENTS_AT)[0])


def corked(endpoint: MessageEndpoint) -> bool:
    with kernels(endpoint) as sock:
        return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK))


def volley(endpoint: MessageEndpoint) -> list[bytes]:
    words = [b"%d" % number for number in range(MANY)]
    for word in words:
        assert endpoint.try_send(word)
    return words


async def received(endpoint: MessageEndpoint) -> list[bytes]:
    return [bytes(await endpoint.recv()) for _ in range(MANY)]


async def test_it_leaves_together(pair: Pair) -> None:
    async with pair() as (active, passive):
        before = segments(active)
        words = volley(active)
        assert await received(passive) == words
        assert segments(active) - before < MANY / 5


async def test_awaited_sends_are_one_as_well(pair: Pair) -> None:
    """With completions, and posted in a batch."""
    async with pair() as (active, passive):
        before = segments(active)
        async with active.batch() as batch:
            for number in range(MANY):
                await batch.send(bytes([number]) * 200)
        assert [(await passive.recv())[0] for _ in range(MANY)] == list(range(MANY))
        assert segments(active) - before < MANY / 5


async def test_the_first_one_leaves_at_once(pair: Pair) -> None:
    """In the same step of the task: a request alone waits for nobody."""
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
        words = volley(active)
        assert corked(active)
        with anyio.fail_after(5):
            while corked(active):
                await anyio.lowlevel.checkpoint()
        assert await received(passive) == words


async def test_it_leaves_before_a_look(pair: Pair) -> None:
    async with pair() as (active, passive):
        words = volley(active)
        active._handle.source.drain()
        assert not corked(active)
        assert await received(passive) == words


@pytest.mark.parametrize("end", ["close", "shutdown"])
async def test_it_leaves_before_the_end(pair: Pair, end: str) -> None:
    async with pair() as (active, passive):
        words = volley(active)
        if end == "close":
            active.close()
        else:
            await active.shutdown()
        assert await received(passive) == words
        with pytest.raises(aiofabric.FabricConnectionResetError):
            await passive.recv()


async def send_and_vanish(parent: Parent, port: int, provider: str) -> None:
    endpoint = await aiofabric.connect("127.0.0.1", port, provider=provider)
    volley(endpoint)
    os._exit(0)


async def test_it_leaves_though_the_process_ends(provider: str, child: Callable[..., Child]) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        child(send_and_vanish, listener.address.port, provider)
        async with await (await listener.accept_request()).accept() as passive:
            assert await received(passive) == [b"%d" % number for number in range(MANY)]


async def test_the_cork_of_anothers_socket_stays(pair: Pair) -> None:
    """A closed endpoint's descriptor is somebody else's soon."""
    async with pair() as (active, passive):
        volley(active)
        number = active._descriptor
        assert number is not None
        active.close()
        others = []
        while (sock := socket.socket()).fileno() <= number:
            others.append(sock)
            if sock.fileno() == number:
                break
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        assert sock.fileno() == number
        await received(passive)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)
        for other in others:
            other.close()


def test_a_socket_is_known_by_both_its_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        ours, theirs = Address.from_ip(*sock.getsockname()), Address.from_ip(*sock.getpeername())
        elsewhere = Address.from_ip("127.0.0.2", sock.getsockname()[1])
        found = connected_socket(sock.fileno(), ours, theirs)
        assert found is not None
        assert found.detach() == sock.fileno()
        assert connected_socket(sock.fileno(), theirs, ours) is None
        assert connected_socket(sock.fileno(), ours, elsewhere) is None
        assert connected_socket(sock.fileno(), elsewhere, theirs) is None
        assert connected_socket(server.fileno(), theirs, ours) is None
        assert connected_socket(sock.fileno(), ours, None) is None
        assert connected_socket(None, ours, theirs) is None
        assert connected_socket(1 << 20, ours, theirs) is None
