"""Hazard: the owner closes a region and frees its memory while a peer's read of it is being answered."""

import mmap
import socket
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import anyio
import anyio.lowlevel
import pytest

import aiofabric
from aiofabric import Access, RemoteRegion
from aiofabric.memory import close_together
from aiofabric.transport.peer_access import RegionMemory, poll_again
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import Pair, connected_pair, over, require

pytestmark = pytest.mark.anyio
provider = over(["tcp", "tcp;ofi_rxm", "shm", "sockets"])

SIZE = 64 << 20
PATTERN = bytes(range(256)) * (SIZE // 256)


async def reads(parent: Parent, provider: str, port: int) -> str:
    endpoint = await aiofabric.connect("127.0.0.1", port, provider=provider)
    async with endpoint:
        remote = RemoteRegion.unpack(await endpoint.recv())
        memory = bytearray(SIZE)
        await endpoint.send(b"now")
        await parent.areceive()
        try:
            await endpoint.read_into(memory, remote)
        except aiofabric.FabricError as error:  # the region was closed first
            return type(error).__name__
        return "whole" if memory == PATTERN else "damaged"


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02])
async def test_reader_gets_the_memory_or_an_error(child: Any, provider: str, delay: float) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        peer: Child = child(reads, provider, listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            memory = mmap.mmap(-1, SIZE)
            memory[:] = PATTERN
            with endpoint.domain.register(memory, access=Access.REMOTE_READ) as region:
                await endpoint.send(region.remote.pack())
                await endpoint.recv()
                peer.tell("read")
                await anyio.sleep(delay)  # the progress of the read is random
            with anyio.fail_after(20):
                while not memory.closed:  # at the earliest moment at which a program may free its memory
                    try:
                        memory.close()
                    except BufferError:
                        await anyio.sleep(0.001)
            assert await peer.aresult() in ("whole", "FabricConnectionResetError", "RemoteAccessError", "FabricError")


async def reads_once(parent: Parent, provider: str, port: int) -> int:
    async with await aiofabric.connect("127.0.0.1", port, provider=provider) as endpoint:
        return len(await endpoint.read(RemoteRegion.unpack(await endpoint.recv())))


async def test_peer_that_has_ended_keeps_no_memory(child: Any, provider: str) -> None:
    """rxm never delivers a message to the address of a process that has ended, and reports no error."""
    skip_unless_noticed(provider)
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        peer: Child = child(reads_once, provider, listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            memory = bytearray(4096)
            with endpoint.domain.register(memory, access=Access.REMOTE_READ) as region:
                await endpoint.send(region.remote.pack())
                assert await peer.aresult() == len(memory)
                peer.kill()  # it has closed its end already
                with pytest.raises(aiofabric.FabricConnectionResetError):
                    await endpoint.recv()
            with anyio.fail_after(10):
                while True:
                    try:
                        memory.append(0)
                    except BufferError:
                        await anyio.sleep(0.01)
                    else:
                        break
            assert not listener.closed


async def reads_after_the_close(parent: Parent, provider: str, port: int) -> bool:
    async with await aiofabric.connect("127.0.0.1", port, provider=provider) as endpoint:
        closed, still_open = [RemoteRegion.unpack(await endpoint.recv()) for _ in range(2)]
        await endpoint.send(b"ready")
        await parent.areceive()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(endpoint.read, closed)
            await anyio.lowlevel.checkpoint()
            read = await endpoint.read(still_open)
        return len(read) == len(still_open)


@pytest.mark.parametrize("provider", ["udp;ofi_rxd"])
async def test_request_that_comes_just_after_the_close_blocks_no_other(child: Any, provider: str) -> None:
    """rxd answers no request for a closed region, and all that the peer sends later waits behind it."""
    require(provider)
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        peer: Child = child(reads_after_the_close, provider, listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            registered = endpoint.domain.register
            with registered(bytearray(SIZE // 64), access=Access.REMOTE_READ) as other:
                with registered(bytearray(4096), access=Access.REMOTE_READ) as region:
                    await endpoint.send(region.remote.pack())
                    await endpoint.send(other.remote.pack())
                    await endpoint.recv()
                peer.tell("closed")
                with anyio.fail_after(20):
                    assert await peer.aresult()


def skip_unless_noticed(provider: str) -> None:
    if provider == "sockets":
        pytest.skip("whether a response is under way over sockets is known when the endpoint is closed only")


async def test_region_that_nobody_reads_gives_its_memory_back_at_once(pair: Pair, provider: str) -> None:
    """Other connections of the same domain do not keep it either."""
    skip_unless_noticed(provider)
    async with pair() as (active, passive), pair() as (other, _):
        memory = bytearray(1 << 20)
        for n in range(3):
            with passive.domain.register(memory, access=Access.REMOTE_READ) as region:
                await passive.send(region.remote.pack())
                remote = RemoteRegion.unpack(await active.recv())
                assert len(await active.read(remote)) == len(memory)
                await active.send(b"done")
                await passive.recv()
            with anyio.fail_after(5):
                while True:
                    try:
                        memory.append(n)
                    except BufferError:
                        await anyio.sleep(0.001)
                    else:
                        break
        assert not other.closed


async def test_region_closes_after_a_shutdown(pair: Pair) -> None:
    """Virtual connections learn by a message whether the peer still reads, and none can be sent any more."""
    memory = bytearray(100)
    async with pair() as (active, passive):
        with passive.domain.register(memory, access=Access.REMOTE_READ) as region:
            await active.read(region.remote)
            await passive.shutdown()
    memory.append(1)


async def test_memory_is_given_back_with_the_last_endpoint(pair: Pair) -> None:
    async with pair() as (_, passive):
        memory = bytearray(1 << 20)
        region = passive.domain.register(memory, access=Access.REMOTE_READ)
        region.close()
    memory.append(1)


async def test_growth_is_bounded_over_many_regions(pair: Pair, provider: str) -> None:
    skip_unless_noticed(provider)
    async with pair() as (active, passive):
        most = 0
        for _ in range(200):
            memory = bytearray(4096)
            with passive.domain.register(memory, access=Access.REMOTE_READ) as region:
                await passive.send(region.remote.pack())
                await active.read(RemoteRegion.unpack(await active.recv()))
                await active.send(b"done")
                await passive.recv()
            kept = [len(handle_of(end).kept) for end in (active, passive)]  # no public attribute shows it
            most = max(most, *kept)
        assert most < 20


@pytest.mark.parametrize("draining", [False, True])
def test_memory_is_given_back_once_the_socket_has_nothing_left_to_send(draining: bool) -> None:
    later: list[Any] = []
    driver = SimpleNamespace(closed=lambda: False, call_later=lambda _, call: later.append(call))
    source = Mock(draining=draining, closed=False, driver=driver)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connected:
        endpoint: Any = SimpleNamespace(
            kept=[RegionMemory(bytearray(1), None, 0, 0)],
            native_open=True,
            socket=connected.fileno(),
            source=source,
            transmits_completed=0,
        )
        poll_again(endpoint)
        assert (len(endpoint.kept), len(later)) == ((1, 1) if draining else (0, 0))


async def test_regions_close_together_all_of_them_even_if_one_raises(provider: str) -> None:
    """Double: a region that the provider does not close."""

    def refuse() -> None:
        raise OSError("refused")

    async with connected_pair(provider) as (one, _):
        regions: Any = [one.domain.register(bytearray(64), access=Access.REMOTE_READ) for _ in range(3)]
        described = [region.remote for region in regions]
        assert len({remote.key for remote in described}) == 3
        refused: Any = SimpleNamespace(_handle=SimpleNamespace(close=refuse))
        with pytest.raises(OSError, match="refused"):
            close_together([regions[0], refused, *regions[1:]])
        assert [region.closed for region in regions] == [True] * 3
        close_together([])
        with one.domain.register(bytearray(64), access=Access.REMOTE_READ) as later:
            assert later.remote.length == 64
        assert later.closed
