"""Both sides of connections on which something is under way when a side ends them.

The target listens, and offers memory. In each round the initiator connects to the same listener and begins its work.
When the work is under way, one side ends the connection, or both do. A socket beside the connection tells the target
that the work is under way, so no message of the connection itself is needed.

Each side is a coroutine. Both run in one process, or each in one of its own.
"""

from __future__ import annotations

import os
import signal
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.lowlevel
import pytest

import aiofabric
from aiofabric import Access, AtomicOp, Datatype, MessageEndpoint, RemoteRegion
from tests.fixtures.providers import CONNECTED, HOST, OWN_HOST, RDMA_HOST, RXM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import SocketStream

    from tests.fixtures.children import Child

__all__ = [
    "ATOMICS",
    "BOTH",
    "DEATHS",
    "ENDS",
    "ENOUGH",
    "INITIATOR",
    "PIECE",
    "PROVIDERS",
    "READY",
    "TARGET",
    "TIMES",
    "WORKS",
    "Round",
    "all_told",
    "deadly",
    "die",
    "initiate",
    "in_turn",
    "rounds_of",
    "serve",
    "until_told",
]

SIZE = 32 << 20  # bytes of a large transfer: under way long enough to be ended in the middle
SIZE_WHERE_SLOW = 2 << 20  # rxd carries 12 MB in a second, an emulated device 20
PIECE = 100_000  # bytes of each message of a stream
ENOUGH = 30.0  # seconds for one round: for any machine, not the promise
WORK_PARAM = b"work"
READY = b"ready"  # for the next round
DEATHS = ["killed", "interrupted"]
CONNECTIONS = 4  # that are made at once
TIMES = 1 if RDMA_HOST else 2  # that a round is repeated

PROVIDERS = [*CONNECTED, RXM] if RDMA_HOST else [*CONNECTED, RXM, "shm", "udp;ofi_rxd"]
INITIATOR, TARGET, BOTH = "initiator", "target", "both"
ATOMICS = ("tcp;ofi_rxm", "shm", "verbs;ofi_rxm")
"""Providers whose connections have atomics, on every library."""

ENDS = (aiofabric.FabricError, anyio.ClosedResourceError)


class Round(NamedTuple):
    """The work that is under way, the side that ends it, and the way; and the address of the listener."""

    provider: str
    work: str
    who: str
    how: str
    host: str = OWN_HOST

    @property
    def size(self) -> int:
        return SIZE_WHERE_SLOW if "rxd" in self.provider or "verbs" in self.provider else SIZE

    @property
    def recv_size(self) -> int | None:
        return None if self.work == "large send" else 1 << 18

    def ended_by(self, side: str) -> bool:
        return self.who in (side, BOTH)


def in_turn(ways: Sequence[str]) -> list[Any]:
    """The ways to end of each test: one of them, or all where a process takes ten seconds to start."""
    return [pytest.param(each, id="-".join(each)) for each in ([ways] if RDMA_HOST else [[way] for way in ways])]


def rounds_of(provider: str, works: Sequence[str], ways: Sequence[str], processes: int) -> list[Round]:
    """The rounds of some ways to end: each work, ended by each side in each way.

    An emulated device takes a second for a round. So there, one side ends each work, another one for the next work, for
    the next way, and in two processes. Each two of work, side and way still come together. Both ends in one process
    share a domain.
    """
    host = HOST if processes == 1 else OWN_HOST
    sides = (INITIATOR, TARGET, BOTH)
    if RDMA_HOST:
        pairs = [
            (way, work, sides[(i + j + processes) % 3]) for i, way in enumerate(ways) for j, work in enumerate(works)
        ]
        return [Round(provider, work, who, way, host) for way, work, who in pairs]
    return [Round(provider, work, who, way, host) for way, work, who, _ in product(ways, works, sides, range(TIMES))]


def deadly(works: Sequence[str], how: str) -> list[str]:
    """The works under which a side dies: all, or every fourth one on an emulated device, where each takes 20 s."""
    return [*works[DEATHS.index(how) :: 4]] if RDMA_HOST else [*works]


def all_told(child: Child, rounds: list[Round]) -> None:
    """Each round ends, and then the child itself; a failure names the round before."""
    for round in rounds:
        assert child.receive(ENOUGH + 30) == round
    assert child.result(ENOUGH + 30) == len(rounds)


async def _read(endpoint: MessageEndpoint, memory: bytearray, remote: RemoteRegion) -> None:
    await endpoint.read_into(memory, remote)


async def _write(endpoint: MessageEndpoint, memory: bytearray, remote: RemoteRegion) -> None:
    await endpoint.write(memory, remote)


async def _write_data(endpoint: MessageEndpoint, memory: bytearray, remote: RemoteRegion) -> None:
    await endpoint.write(memory, remote, remote_data=7)


async def _send(endpoint: MessageEndpoint, memory: bytearray, _: RemoteRegion) -> None:
    await endpoint.send(memory)


async def _stream(endpoint: MessageEndpoint, memory: bytearray, _: RemoteRegion) -> None:
    piece = memoryview(memory)[:PIECE]
    while True:
        await endpoint.send(piece)


async def _small(endpoint: MessageEndpoint, memory: bytearray, _: RemoteRegion) -> None:
    piece = bytes(memory[:16])
    while True:
        await endpoint.send(piece)
        await anyio.lowlevel.checkpoint()


async def _atomics(endpoint: MessageEndpoint, _: bytearray, remote: RemoteRegion) -> None:
    while True:
        await endpoint.fetch_atomic(AtomicOp.SUM, 1, remote[:8], datatype=Datatype.UINT64)


_WORK: dict[str, Callable[[MessageEndpoint, bytearray, RemoteRegion], Awaitable[None]]] = {
    "read": _read,
    "write": _write,
    "write with data": _write_data,
    "large send": _send,
    "stream": _stream,
    "small messages": _small,
    "atomics": _atomics,
}
WORKS = (*_WORK, "connects")


async def _work(work: str, endpoint: MessageEndpoint, memory: bytearray, remote: RemoteRegion) -> None:
    with suppress(*ENDS):
        await _WORK[work](endpoint, memory, remote)


async def _end(endpoint: MessageEndpoint, how: str) -> None:
    if how == "close":
        endpoint.close()
    elif how == "abort":
        endpoint.abort()
    elif how == "aclose":
        await endpoint.aclose()
    else:
        await die(how)


async def _end_or_wait(endpoint: MessageEndpoint, round: Round, side: str) -> None:
    if round.ended_by(side):
        await _end(endpoint, round.how)
    else:
        async for _ in endpoint:
            pass


async def die(how: str) -> None:
    number = {"killed": signal.SIGKILL, "interrupted": signal.SIGINT}.get(how)
    if number is not None:
        os.kill(os.getpid(), number)
        await anyio.sleep_forever()


async def until_told(control: SocketStream) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        await control.receive(100)


# -- the initiator


async def initiate(port: int, control_port: int, round: Round) -> None:
    """One round of the initiator."""
    with anyio.fail_after(ENOUGH):
        async with AsyncExitStack() as stack:
            control = await stack.enter_async_context(await anyio.connect_tcp(OWN_HOST, control_port))
            assert await control.receive(len(READY)) == READY
            if round.work == "connects":
                await _make_connections(port, control, round)
            else:
                await _work_and_end(port, control, round)


async def _work_and_end(port: int, control: SocketStream, round: Round) -> None:
    ends, how = round.ended_by(INITIATOR), round.how
    options = {"provider": round.provider, "recv_size": round.recv_size, "param": WORK_PARAM}
    endpoint = await aiofabric.connect(round.host, port, **options)  # type: ignore[arg-type]
    async with anyio.create_task_group() as tasks:
        remote = RemoteRegion.unpack(await control.receive(1000))
        async with endpoint:
            memory = bytearray(round.size)
            await endpoint.read(remote[:1])  # the provider connects at the first operation
            for _ in range(3):
                tasks.start_soon(_work, round.work, endpoint, memory, remote)
            while round.work == "read" and not memory[0]:
                await anyio.lowlevel.checkpoint()
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            await control.send(b"under way")
            if ends and how == "cancelled":
                tasks.cancel_scope.cancel()
            elif ends:
                await _end(endpoint, how)
            else:
                await until_told(control)  # of the target's end


async def _make_connections(port: int, control: SocketStream, round: Round) -> None:
    """Connect several times at once, and end that, or what it makes."""

    async def connect() -> None:
        with suppress(*ENDS):
            async with await aiofabric.connect(round.host, port, provider=round.provider) as endpoint:
                await _end_or_wait(endpoint, round, INITIATOR)

    async with anyio.create_task_group() as tasks:
        for _ in range(CONNECTIONS):
            tasks.start_soon(connect)
        await anyio.lowlevel.checkpoint()
        await control.send(b"under way")
        if round.ended_by(INITIATOR) and round.how == "cancelled":
            tasks.cancel_scope.cancel()
        elif round.ended_by(INITIATOR):
            await die(round.how)
        await until_told(control)
        tasks.cancel_scope.cancel()


# -- the target


async def serve(rounds: list[Round], *, tell: Callable[[tuple[int, int]], object]) -> None:
    """The target's side of all rounds, over one listener. ``tell`` gets the two ports."""
    async with (
        await anyio.create_tcp_listener(local_host=OWN_HOST) as controls,
        aiofabric.listen(rounds[0].host, 0, provider=rounds[0].provider) as listener,
    ):
        port, control_port = listener.address.port, controls.extra(anyio.abc.SocketAttribute.local_port)
        assert port is not None
        tell((port, control_port))
        left = iter(rounds)
        finished, turn = anyio.Event(), anyio.Lock()

        async def one(control: SocketStream) -> None:
            async with control, turn:
                round = next(left)
                await control.send(READY)
                with anyio.fail_after(ENOUGH):
                    if round.work == "connects":
                        await _accept_connections(listener, control, round)
                    else:
                        await _serve_round(await _request_of(listener), control, round)
            if round is rounds[-1]:
                finished.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(controls.serve, one))
            await finished.wait()
            tasks.cancel_scope.cancel()


async def _serve_round(request: aiofabric.ConnectionRequest, control: SocketStream, round: Round) -> None:
    memory = bytearray(b"\1") * round.size
    ends, how = round.ended_by(TARGET), round.how
    ended = anyio.Event()  # the connection: the initiator may end it before its write has begun

    async def receive(endpoint: MessageEndpoint) -> None:
        with suppress(*ENDS):
            while round.work == "large send":
                await endpoint.recv_into(bytearray(round.size))
            async for _ in endpoint:
                pass
        ended.set()

    with suppress(*ENDS):
        async with await request.accept(recv_size=round.recv_size) as endpoint:
            with endpoint.domain.register(memory, access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
                await control.send(region.remote.pack())
                async with anyio.create_task_group() as tasks:
                    for _ in range(3 if round.work == "large send" else 1):
                        tasks.start_soon(receive, endpoint)
                    await until_told(control)
                    while ends and round.work.startswith("write") and memory[0] and not ended.is_set():
                        await anyio.lowlevel.checkpoint()
                    if ends and how in ("cancelled", "leaves"):
                        tasks.cancel_scope.cancel()
                    elif ends:
                        await _end(endpoint, how)


async def _accept_connections(listener: aiofabric.Listener, control: SocketStream, round: Round) -> None:
    async def accept() -> None:
        with suppress(*ENDS):
            async with await (await listener.accept_request()).accept() as endpoint:
                await _end_or_wait(endpoint, round, TARGET)

    async with anyio.create_task_group() as tasks:
        for _ in range(CONNECTIONS):
            tasks.start_soon(accept)
        await until_told(control)
        await anyio.lowlevel.checkpoint()
        if round.ended_by(TARGET):
            await die(round.how)
        tasks.cancel_scope.cancel()
    while (request := await _waiting_request(listener)) is not None:
        with suppress(*ENDS):
            request.reject()


async def _request_of(listener: aiofabric.Listener) -> aiofabric.ConnectionRequest:
    """The request of this round; a client that died in an earlier one may have left others."""
    while (request := await listener.accept_request()).param != WORK_PARAM:
        with suppress(*ENDS):
            request.reject()
    return request


async def _waiting_request(listener: aiofabric.Listener) -> aiofabric.ConnectionRequest | None:
    """A request that no task has accepted; the next round must not get it."""
    with anyio.move_on_after(0.05):
        return await listener.accept_request()
    return None
