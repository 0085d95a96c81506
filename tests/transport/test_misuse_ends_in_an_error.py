"""Hazards: mistakes of a program with an open endpoint, which a provider would only assert or crash on.

Each subject runs in a process of its own, ends in errors that name the mistake, and leaves the endpoint usable.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest
from anyio import ClosedResourceError

from aiofabric import (
    Access,
    AtomicOp,
    Caps,
    Datatype,
    MessageTooLongError,
    NotSupportedError,
    OpFlags,
    RemoteRegion,
    WrongThreadError,
)
from tests.fixtures.children import Child, Parent
from tests.fixtures.peers import peers, skip_without
from tests.fixtures.providers import connected_pair, require

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"]),
]

BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE
NO_NUMBER = (-1, 1 << 64)  # of 64 bits
LENGTH = 8000  # more than any provider injects


class Side:
    """One endpoint, and how its calls name the other."""

    def __init__(self, one: Any, other: Any, names: dict[str, Any]) -> None:
        self.one = one
        self.other = other
        self.names = names

    async def refuses(self, call: Callable[..., Any], *args: Any, error: Any, **options: Any) -> None:
        with anyio.fail_after(5):
            with pytest.raises(error):  # noqa: PT012 (a call, or what it returns)
                answer = call(*args, **options)
                if isinstance(answer, Awaitable):
                    answer = await answer
                raise AssertionError(f"{call} with {args!r:.100} and {options} answered {answer!r}")

    async def alive(self) -> None:
        with anyio.fail_after(10):
            await self.one.send(b"still here", **self.names)
            assert await self.other.recv() == b"still here"


@asynccontextmanager
async def sides(provider: str, caps: Caps | None) -> AsyncIterator[Side]:
    room: dict[str, Any] = {"recv_size": 1 << 20, "recv_count": 4}
    if caps is None:
        async with connected_pair(provider, **room) as (one, other):
            yield Side(one, other, {})
    else:
        async with peers(provider, caps, **room) as (one, other, peer, _):
            yield Side(one, other, {"to": peer})


# -- the themes


async def sends(side: Side) -> None:
    one, names = side.one, side.names
    for data in (5, None, "text", [b"bytes", "text"], object()):
        await side.refuses(one.send, data, **names, error=TypeError)
    await side.refuses(one.send, memoryview(bytes(10))[::2], **names, error=BufferError)
    for data in NO_NUMBER:
        await side.refuses(one.send, b"x", remote_data=data, **names, error=(ValueError, NotSupportedError))
    for flags in (-1, 1 << 62, OpFlags.PEEK, OpFlags.TRIGGER):
        await side.refuses(one.send, b"x", flags=flags, **names, error=(ValueError, NotSupportedError))
    too_much = bytes(one.max_inject + 1)
    for data in (too_much, [too_much[:1], too_much]):
        await side.refuses(one.send, data, flags=OpFlags.INJECT, **names, error=MessageTooLongError)
    assert not one.try_send(too_much, **names)
    for pieces in ([b"x"] * 500, [b"y" * 4000] * 50):  # far more than an iovec has: the tail is joined
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(one.send, pieces, **names))
            assert await side.other.recv() == b"".join(pieces)


async def sizes(side: Side) -> None:
    """Around the limits of rxm's protocols: inject, eager, segmented, OOB listener."""
    one = side.one
    limits = (one.max_inject, 4096, 16 << 10, 128 << 10, 1 << 19)
    for size in (each + more for each in limits for more in (-1, 0, 1)):
        for data in (bytes(size), [bytes(size // 2), bytes(size - size // 2)]):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(one.send, data, **side.names))
                assert len(await side.other.recv()) == size


async def receives(side: Side) -> None:
    one = side.one
    await side.refuses(one.recv_into, b"read-only", error=BufferError)
    for buffers in ([], [bytearray(1)] * 500):
        await side.refuses(one.recv_into, buffers, error=ValueError)
    for size in (-1, 1 << 62):
        await side.refuses(one.recv, size, error=TypeError)  # this one has a pool


async def tags(side: Side) -> None:
    one, names = side.one, side.names
    for tag in NO_NUMBER:
        await side.refuses(one.send_tagged, b"x", tag, **names, error=ValueError)
        await side.refuses(one.send_tagged, bytes(5000), tag, **names, error=ValueError)
        await side.refuses(one.recv_tagged, tag, error=ValueError)
        await side.refuses(one.recv_tagged, 1, ignore=tag, error=ValueError)
        await side.refuses(one.recv_tagged_into, bytearray(1), tag, error=ValueError)
        await side.refuses(one.peek_tagged, tag, error=(ValueError, NotSupportedError))
    await side.refuses(one.send_tagged, b"x", 1.5, **names, error=TypeError)
    for size in (-1, 1 << 62):
        await side.refuses(one.recv_tagged, 1, max_bytes=size, error=(ValueError, MemoryError, OverflowError))
    await side.refuses(one.recv_tagged, 1, source="nobody", error=(TypeError, AttributeError, NotSupportedError))
    await side.refuses(one.send, b"x", error=TypeError)  # to whom?
    assert one.statistics().sends <= 1  # nothing was left behind


async def remote_memory(side: Side) -> None:
    one, names = side.one, side.names
    with side.other.domain.register(bytearray(LENGTH), access=BOTH) as region:
        remote = region.remote
        for call in (one.write, one.read_into):
            await side.refuses(call, bytearray(LENGTH + 1), remote, **names, error=IndexError)
            await side.refuses(call, [bytearray(LENGTH)] * 2, remote, **names, error=IndexError)
            await side.refuses(call, bytearray(1), remote[LENGTH:], **names, error=IndexError)
            for nothing in (b"bytes", None, 5):
                await side.refuses(call, bytearray(1), nothing, **names, error=TypeError)
                await side.refuses(call, nothing if nothing != b"bytes" else "text", remote, **names, error=TypeError)
            await side.refuses(call, bytearray(1), remote, flags=-1, **names, error=ValueError)
        await side.refuses(one.write, bytes(LENGTH), remote, flags=OpFlags.INJECT, **names, error=MessageTooLongError)
        await side.refuses(one.read_into, bytes(1), remote, **names, error=BufferError)
        await side.refuses(one.read_into, [bytearray(1)] * 500, remote, **names, error=ValueError)
        for part in (slice(-1, None), slice(5, 2), slice(0, LENGTH + 1), slice(1 << 70, None)):
            await side.refuses(remote.__getitem__, part, error=IndexError)
        for number in NO_NUMBER:
            await side.refuses(RemoteRegion, number, remote.key, 1, error=ValueError)
            await side.refuses(RemoteRegion, remote.address, number, 1, error=ValueError)
            await side.refuses(RemoteRegion, remote.address, remote.key, number, error=ValueError)
            await side.refuses(one.write, b"x", remote, remote_data=number, **names, error=ValueError)
        await side.refuses(RemoteRegion, (1 << 64) - 8, remote.key, 9, error=ValueError)
        for words in (b"", b"short", bytes(26)):
            await side.refuses(RemoteRegion.unpack, words, error=ValueError)


async def registrations(side: Side) -> None:
    domain = side.one.domain
    await side.refuses(domain.register, b"", error=ValueError)
    await side.refuses(domain.register, "text", error=TypeError)
    await side.refuses(domain.register, b"read-only", access=Access.REMOTE_WRITE, error=BufferError)
    for number in NO_NUMBER:
        await side.refuses(domain.register, bytearray(1), key=number, error=ValueError)
    for access in (-1, 1 << 40, Caps.MSG):
        await side.refuses(domain.register, bytearray(1), access=access, error=ValueError)


async def atomics(side: Side) -> None:
    one, names = side.one, side.names
    many = np.ones(LENGTH // 8 + 1, np.int64)
    with side.other.domain.register(bytearray(LENGTH), access=BOTH) as region:
        remote = region.remote
        refusals = (ValueError, TypeError, IndexError, NotSupportedError, MessageTooLongError)
        for value in (many, np.ones(1 << 20), np.ones(0), np.zeros(1, object), np.zeros(1, "M8[s]"), "text", b""):
            await side.refuses(one.fetch_atomic, AtomicOp.SUM, value, remote, **names, error=refusals)
            await side.refuses(one.atomic, AtomicOp.SUM, value, remote, **names, error=refusals)
        for op in (-1, 999):
            await side.refuses(one.atomic, op, np.ones(1), remote, **names, error=(*refusals, OverflowError))
        await side.refuses(one.atomic, AtomicOp.BAND, np.ones(1), remote, **names, error=NotSupportedError)
        await side.refuses(one.atomic, AtomicOp.SUM, 1, remote, datatype=Datatype.VOID, **names, error=refusals)
        for against in (np.ones(2, np.int64), np.ones(1, np.int32)):
            call = one.compare_atomic
            await side.refuses(call, AtomicOp.CSWAP, np.ones(1, np.int64), against, remote, **names, error=ValueError)
        await side.refuses(one.atomic, AtomicOp.SUM, many[:1], b"memory", **names, error=TypeError)


async def closed(side: Side) -> None:
    """Closed objects raise a clear error, closed once or twice; open ones still work."""
    one, names = side.one, side.names
    region = side.other.domain.register(bytearray(LENGTH), access=BOTH)
    own, remote = one.domain.register(bytearray(LENGTH)), region.remote
    for each in (own, region):
        each.close()
        each.close()
    await one.aclose()
    await one.aclose()
    one.close()
    for call in (lambda: one.send(b"x", **names), one.recv, lambda: one.recv_into(bytearray(1))):
        await side.refuses(call, error=ClosedResourceError)
    for call in (one.try_send, one.send_nowait):
        await side.refuses(call, b"x", **names, error=ClosedResourceError)
    await side.refuses(one.write, b"x", remote, **names, error=ClosedResourceError)
    await side.refuses(one.read, remote, **names, error=ClosedResourceError)
    await side.refuses(one.batch, **names, error=ClosedResourceError)
    if names:
        for call in (lambda: one.send_tagged(b"x", 1, **names), lambda: one.recv_tagged(1)):
            await side.refuses(call, error=ClosedResourceError)
        await side.refuses(one.add_peer, side.other.local_address, error=ClosedResourceError)
        await side.refuses(one.remove_peer, names["to"], error=ClosedResourceError)
    side.one, side.other = side.other, side.one


async def threads(side: Side) -> None:
    """A second thread, without a loop and with one, and the loop it belongs to is undisturbed."""
    one, names = side.one, side.names

    async def in_another_loop() -> None:
        for call in (lambda: one.send(b"x", **names), one.recv, lambda: one.recv_into(bytearray(1))):
            await side.refuses(call, error=WrongThreadError)

    await anyio.to_thread.run_sync(lambda: anyio.run(in_another_loop))

    def without_a_loop() -> None:
        for call in (lambda: one.try_send(b"x", **names), one.close, lambda: one.send_nowait(b"x", **names)):
            with pytest.raises(WrongThreadError):
                call()

    await anyio.to_thread.run_sync(without_a_loop)


CONNECTED = [sends, sizes, receives, remote_memory, registrations, closed, threads]
CONNECTIONLESS = [*CONNECTED, tags, atomics]


async def commit(parent: Parent, provider: str, theme: str, caps: Caps | None) -> None:
    async with sides(provider, caps) as side:
        await globals()[theme](side)
        if theme != "closed":
            await side.alive()


@pytest.mark.parametrize("provider", ["tcp", "shm", "tcp;ofi_rxm"])
@pytest.mark.parametrize("theme", [theme.__name__ for theme in CONNECTED])
async def test_on_a_connection(theme: str, provider: str, child: Callable[..., Child]) -> None:
    await child(commit, require(provider), theme, None).aresult()


@pytest.mark.parametrize("provider", ["tcp;ofi_rxm", "tcp", "shm", "udp;ofi_rxd"])
@pytest.mark.parametrize("theme", [theme.__name__ for theme in CONNECTIONLESS])
async def test_on_a_connectionless_endpoint(theme: str, provider: str, child: Callable[..., Child]) -> None:
    caps = Caps.MSG | Caps.TAGGED | Caps.RMA | (Caps.ATOMIC if theme == "atomics" else Caps(0))
    skip_without(provider, caps)
    await child(commit, provider, theme, caps).aresult()
