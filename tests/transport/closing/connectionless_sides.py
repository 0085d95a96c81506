"""Both sides of connectionless endpoints on which something is under way when a side ends its endpoint.

The target offers memory, and receives. In each round the initiator opens an endpoint and begins its work. When the work
is under way, one side ends its endpoint, or both do. The target keeps one endpoint for all rounds in which it does not
end. A socket beside the fabric carries the addresses, and says when the work is under way.

Each side is a coroutine. Both run in one process, or each in one of its own.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

import aiofabric
from aiofabric import Access, AtomicOp, Caps, Datatype, EndpointType, RdmEndpoint, RemoteRegion
from tests.fixtures.peers import where
from tests.fixtures.providers import OWN_HOST, RDMA_HOST
from tests.transport.closing.sides import (
    ATOMICS,
    ENDS,
    ENOUGH,
    INITIATOR,
    PIECE,
    READY,
    TARGET,
    Round,
    die,
    until_told,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import SocketStream

    from aiofabric import Peer

__all__ = ["WORKS", "initiate", "serve"]

CONCURRENT = 3  # pieces of work at once
SHORT = 10_000 if RDMA_HOST else PIECE
"""Bytes of a tagged message. Slow machines receive many whose sender has ended, and long ones crash rxm then: see
test_messages_of_ended_peers.
"""

_CAPS = Caps.MSG | Caps.TAGGED | Caps.RMA


async def _tagged(endpoint: RdmEndpoint, memory: bytearray, _: RemoteRegion, peer: Peer, tag: int) -> None:
    piece = memoryview(memory)[:SHORT]
    while True:
        await endpoint.send_tagged(piece, tag, to=peer)


async def _large_tagged(endpoint: RdmEndpoint, memory: bytearray, _: RemoteRegion, peer: Peer, tag: int) -> None:
    await endpoint.send_tagged(memory, tag, to=peer)


async def _small(endpoint: RdmEndpoint, memory: bytearray, _: RemoteRegion, peer: Peer, tag: int) -> None:
    piece = bytes(memory[:16])
    while True:
        await endpoint.send(piece, to=peer)
        await anyio.lowlevel.checkpoint()


async def _read(endpoint: RdmEndpoint, memory: bytearray, remote: RemoteRegion, peer: Peer, tag: int) -> None:
    await endpoint.read_into(memory, remote, to=peer)


async def _write(endpoint: RdmEndpoint, memory: bytearray, remote: RemoteRegion, peer: Peer, tag: int) -> None:
    await endpoint.write(memory, remote, to=peer)


async def _atomics(endpoint: RdmEndpoint, memory: bytearray, remote: RemoteRegion, peer: Peer, tag: int) -> None:
    while True:
        await endpoint.fetch_atomic(AtomicOp.SUM, 1, remote[:8], datatype=Datatype.UINT64, to=peer)


_WORK: dict[str, Callable[[RdmEndpoint, bytearray, RemoteRegion, Peer, int], Awaitable[None]]] = {
    "tagged": _tagged,
    "large tagged": _large_tagged,
    "small messages": _small,
    "read": _read,
    "write": _write,
    "atomics": _atomics,
}
WORKS = tuple(_WORK)


def _opened(provider: str) -> AbstractAsyncContextManager[RdmEndpoint]:
    caps = _CAPS | Caps.ATOMIC if provider in ATOMICS else _CAPS
    return aiofabric.open_endpoint(EndpointType.RDM, where(provider), provider=provider, caps=caps, recv_size=1 << 18)


async def _end(endpoint: RdmEndpoint, how: str) -> None:
    if how == "close":
        endpoint.close()
    else:
        await die(how)


# -- the initiator


async def initiate(port: int, round: Round, tag: int) -> None:
    """One round of the initiator."""
    ends, how = round.ended_by(INITIATOR), round.how
    with anyio.fail_after(ENOUGH):
        async with await anyio.connect_tcp(OWN_HOST, port) as control:
            assert await control.receive(len(READY)) == READY
            async with anyio.create_task_group() as tasks, _opened(round.provider) as endpoint:
                await control.send(endpoint.local_address.raw)
                peer = await endpoint.add_peer(await control.receive(1000))
                await control.send(READY)
                remote = RemoteRegion.unpack(await control.receive(1000))
                memory = bytearray(round.size)
                await endpoint.read(remote[:1], to=peer)  # the provider connects at the first operation
                for _ in range(CONCURRENT):
                    tasks.start_soon(_work, round.work, endpoint, memory, remote, peer, tag)
                while round.work == "read" and not memory[0]:
                    await anyio.lowlevel.checkpoint()
                for _ in range(3):
                    await anyio.lowlevel.checkpoint()
                await control.send(b"under way")
                if ends and how == "cancelled":
                    tasks.cancel_scope.cancel()
                elif ends and how != "leaves":
                    await _end(endpoint, how)
                elif not ends:
                    await until_told(control)  # of the target's end, which the provider may not report


async def _work(
    work: str, endpoint: RdmEndpoint, memory: bytearray, remote: RemoteRegion, peer: Peer, tag: int
) -> None:
    with suppress(*ENDS):
        await _WORK[work](endpoint, memory, remote, peer, tag)


# -- the target


async def serve(rounds: list[Round], *, tell: Callable[[int], object]) -> None:
    """The target's side of all rounds. ``tell`` gets the port at which it is asked for its address."""
    async with (
        await anyio.create_tcp_listener(local_host=OWN_HOST) as controls,
        _opened(rounds[0].provider) as lasting,
    ):
        left, tags = iter(rounds), count()
        finished, turn = anyio.Event(), anyio.Lock()

        async def one(control: SocketStream) -> None:
            async with control, turn:
                round, tag = next(left), next(tags)
                with anyio.fail_after(ENOUGH):
                    await control.send(READY)
                    if round.ended_by(TARGET):
                        with suppress(*ENDS):
                            async with _opened(round.provider) as endpoint:
                                await _serve_round(endpoint, control, round, tag)
                    else:
                        await _serve_round(lasting, control, round, tag)
            if tag == len(rounds) - 1:
                finished.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(controls.serve, one))
            tell(controls.extra(anyio.abc.SocketAttribute.local_port))
            await finished.wait()
            tasks.cancel_scope.cancel()


async def _serve_round(endpoint: RdmEndpoint, control: SocketStream, round: Round, tag: int) -> None:
    memory = bytearray(b"\1") * round.size
    ends, how = round.ended_by(TARGET), round.how

    async def receive() -> None:
        with suppress(*ENDS):
            while round.work == "large tagged":
                await endpoint.recv_tagged_into(bytearray(round.size), tag)
            while round.work == "tagged":
                await endpoint.recv_tagged(tag)
            while True:
                await endpoint.recv()

    try:
        peer = await endpoint.add_peer(await control.receive(1000))
        await control.send(endpoint.local_address.raw)
        assert await control.receive(len(READY)) == READY
    except (anyio.EndOfStream, anyio.BrokenResourceError):  # it died
        return
    with endpoint.domain.register(memory, access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
        await control.send(region.remote.pack())
        async with anyio.create_task_group() as tasks:
            for _ in range(CONCURRENT if "tagged" in round.work else 1):
                tasks.start_soon(receive)
            await until_told(control)
            while ends and round.work == "write" and memory[0] and not endpoint.closed:
                await anyio.lowlevel.checkpoint()
            if ends and how not in ("cancelled", "leaves"):
                await _end(endpoint, how)
            elif not ends:
                await until_told(control)
            tasks.cancel_scope.cancel()
    if not endpoint.closed:
        endpoint.remove_peer(peer)
