"""Hazard: the owner closes a region and frees its memory while a peer's write into it is under way."""

# Doubles: the 30 seconds for which memory is kept for a peer that does not answer.
import signal
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aiofabric
from aiofabric import Access, Listener, MemoryRegion, MessageEndpoint, RemoteRegion
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import Pair, over

pytestmark = pytest.mark.anyio
provider = over(["tcp", "tcp;ofi_rxm"])

SIZE = 64 << 20  # much more than the sockets take
WRITTEN = 255


async def writes(parent: Parent, provider: str, port: int) -> str:
    async with await aiofabric.connect("127.0.0.1", port, provider=provider) as endpoint:
        remote = RemoteRegion.unpack(await endpoint.recv())
        await endpoint.write(bytes([WRITTEN]) * SIZE, remote)
        await endpoint.send(b"done")
        await endpoint.recv()
        return "written"


async def until_free(memory: bytearray) -> None:
    """Wait for the earliest moment at which a program may free its memory."""
    with anyio.fail_after(10):
        while True:
            try:
                memory.append(0)
            except BufferError:
                await anyio.sleep(0.001)
            else:
                return


async def test_memory_is_kept_until_the_write_has_ended(child: Any, provider: str) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        peer: Child = child(writes, provider, listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            memory = bytearray(SIZE)
            with endpoint.domain.register(memory, access=Access.REMOTE_WRITE) as region:
                await endpoint.send(region.remote.pack())
                while memory[0] != WRITTEN:
                    await anyio.lowlevel.checkpoint()
                peer.send_signal(signal.SIGSTOP)
            assert memory[-1] == 0, "the write was over before the region was closed"
            for _ in range(20):
                await anyio.sleep(0.01)
                with pytest.raises(BufferError):
                    memory.append(0)
            peer.send_signal(signal.SIGCONT)
            assert await endpoint.recv() == b"done"
            assert memory.count(WRITTEN) == SIZE
            await until_free(memory)
            await endpoint.send(b"end")
            assert await peer.aresult() == "written"


async def being_written(listener: Listener, memory: bytearray) -> tuple[MessageEndpoint, MemoryRegion]:
    """Accept a peer, and offer it memory, until its write has begun."""
    endpoint = await (await listener.accept_request()).accept()
    region = endpoint.domain.register(memory, access=Access.REMOTE_WRITE)
    await endpoint.send(region.remote.pack())
    while memory[0] != WRITTEN:
        await anyio.lowlevel.checkpoint()
    return endpoint, region


@pytest.fixture
async def stopped_writer(child: Any) -> AsyncIterator[tuple[Child, bytearray]]:
    """A peer over rxm that was stopped in the middle of its write; the connection and the region are closed."""
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp;ofi_rxm") as listener:
        peer: Child = child(writes, "tcp;ofi_rxm", listener.address.port)
        memory = bytearray(SIZE)
        endpoint, region = await being_written(listener, memory)
        peer.send_signal(signal.SIGSTOP)
        endpoint.abort()
        region.close()
        assert memory[-1] == 0, "the write was over before the region was closed"
        yield peer, memory


async def test_memory_is_kept_after_the_connection_was_closed(stopped_writer: tuple[Child, bytearray]) -> None:
    """rxm keeps its own connection, on which the write goes on, also if the peer's address is removed."""
    peer, memory = stopped_writer
    with anyio.move_on_after(3):  # longer than until a peer that refuses messages is removed
        while True:
            with pytest.raises(BufferError):
                memory.append(0)
            await anyio.sleep(0.01)
    peer.send_signal(signal.SIGCONT)
    await until_free(memory)


async def writes_and_stays(parent: Parent, provider: str, port: int) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider):  # keeps its native endpoint, and answers
        with pytest.raises(aiofabric.FabricError):
            await writes(parent, provider, port)
        await parent.areceive()


async def test_a_peer_that_stays_tells_when_its_write_has_ended(child: Any) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp;ofi_rxm") as listener:
        peer: Child = child(writes_and_stays, "tcp;ofi_rxm", listener.address.port)
        memory = bytearray(SIZE)
        endpoint, region = await being_written(listener, memory)
        endpoint.abort()
        region.close()
        await until_free(memory)
        assert memory.count(WRITTEN) == SIZE
        peer.tell("end")
        await peer.aresult()


@pytest.fixture
def given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiofabric.transport.virtual.notices._LATE", 1.0)  # 30 s


@pytest.mark.usefixtures("given_up_soon")
async def test_memory_is_given_back_at_last_if_the_peer_stays_stopped(stopped_writer: tuple[Child, bytearray]) -> None:
    peer, memory = stopped_writer
    await until_free(memory)
    peer.kill()


async def test_memory_is_given_back_after_a_peer_was_killed(child: Any, provider: str) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        peer: Child = child(writes, provider, listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            memory = bytearray(SIZE)
            with endpoint.domain.register(memory, access=Access.REMOTE_WRITE) as region:
                await endpoint.send(region.remote.pack())
                while memory[0] != WRITTEN:
                    await anyio.lowlevel.checkpoint()
                peer.kill()
            await until_free(memory)


async def test_the_next_message_gives_the_memory_back(pair: Pair) -> None:
    async with pair() as (active, passive):
        memory = bytearray(4096)
        with passive.domain.register(memory, access=Access.REMOTE_WRITE) as region:
            await passive.send(region.remote.pack())
            await active.write(b"text", RemoteRegion.unpack(await active.recv()))
        for one, other in ((active, passive), (passive, active)):  # both are endpoints of the region's domain
            await one.send(b"done")
            await other.recv()
        assert memory[:4] == b"text"
        await until_free(memory)
