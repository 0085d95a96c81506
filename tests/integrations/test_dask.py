"""Dask over a fabric: one connection in detail, and a cluster of two processes."""

# Doubles: a domain that registers no memory.

import asyncio
import errno
import gc
import struct
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import dask.config
import numpy as np
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from distributed import Client, Scheduler, Worker
from distributed.comm.addressing import get_address_host_port, get_local_address_for, resolve_address
from distributed.comm.core import Comm, CommClosedError, connect, listen
from distributed.comm.registry import backends
from distributed.protocol.serialize import to_serialize

from aiofabric import Access, Domain, FabricError, RemoteRegion
from aiofabric.integrations.dask import EXPOSED, MOST_FRAMES, FabricBackend, FabricComm
from aiofabric.streams import FabricStream, connect_stream, listen_stream
from aiofabric.testing import live_resources
from tests.fixtures.children import Child, Parent
from tests.fixtures.waiting import until

TIMEOUT = 60.0  # seconds; starting Dask takes three on two busy cores
HERE: dict[str, Any] = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": ":0"}


def register(provider: str) -> None:
    """As Dask does by the entry point; the tests run from a source tree, too."""
    dask.config.set({"distributed.comm.fabric.provider": provider})
    backends["fabric"] = FabricBackend()


@pytest.fixture
def fabric(carrier: str) -> Iterator[None]:
    with dask.config.set({"distributed.comm.fabric.provider": carrier}):
        register(carrier)
        yield
        del backends["fabric"]


async def connected() -> tuple[Comm, Comm, Any]:
    """Both ends of a connection, and its listener."""
    accepted: asyncio.Future[Comm] = asyncio.get_running_loop().create_future()

    async def keep(comm: Comm) -> None:
        accepted.set_result(comm)

    listener = await listen("fabric://127.0.0.1:0", keep)
    ours = await connect(listener.contact_address)
    return ours, await accepted, listener


@asynccontextmanager
async def a_pair() -> AsyncIterator[tuple[Comm, Comm, Any]]:
    with anyio.fail_after(TIMEOUT):
        ours, theirs, listener = await connected()
        yield ours, theirs, listener
        ours.abort()
        theirs.abort()
        listener.stop()
        await others()


@asynccontextmanager
async def a_stream(provider: str) -> AsyncIterator[tuple[FabricComm, FabricStream]]:
    """A connection of Dask's, and the stream of a peer that may say anything."""
    with anyio.fail_after(TIMEOUT):
        async with listen_stream("127.0.0.1", 0, provider=provider) as listener:
            accepting = asyncio.create_task(listener.accept())
            peer = await connect_stream("127.0.0.1", listener.address.port, provider=provider)
            comm = FabricComm(await accepting, True)
        yield comm, peer
        comm.abort()
        peer.abort()


def described(size: int) -> bytes:
    """A description of memory that no process has."""
    return RemoteRegion(0, 1, size, b"", Access.REMOTE_READ).pack()


async def others() -> None:
    """Until every other task has ended."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if rest:
        await asyncio.wait(rest)


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
async def test_messages_arrive_with_memory_of_their_own() -> None:
    async with a_pair() as (ours, theirs, listener):
        listener.stop()  # which ends no connection
        sent = [np.arange(300_000), np.arange(10), np.zeros(0), np.arange(40_000).reshape(200, 200).T]
        message = {"small": (1, b""), "arrays": [to_serialize(each) for each in sent]}
        writing = asyncio.create_task(ours.write(message))
        received = await theirs.read()
        assert await writing > sum(each.nbytes for each in sent)
        assert received["small"] == (1, b"")
        for each, arrived in zip(sent, received["arrays"], strict=True):
            assert (arrived == each).all()
        one, *_, other = received["arrays"]
        assert one.flags.writeable
        assert not np.shares_memory(one, other)


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
async def test_the_end_of_the_peer_shows_on_a_connection_that_nobody_reads() -> None:
    async with a_pair() as (ours, theirs, _):
        await ours.write("last words")
        await ours.close()  # which waits until the other side has confirmed it
        assert ours.closed()
        assert not theirs.closed()
        assert await theirs.read() == "last words"
        assert theirs.closed()
        for comm in (ours, theirs):
            with pytest.raises(CommClosedError):
                await comm.read()
            with pytest.raises(CommClosedError):
                await comm.write("more")


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
async def test_both_sides_may_write_large_arrays_at_once() -> None:
    async with a_pair() as (ours, theirs, _):
        large = np.arange(1_000_000)
        writing = [asyncio.create_task(each.write([to_serialize(large + 1), "small"])) for each in (ours, theirs) * 3]
        for _ in range(3):
            for each in (ours, theirs):
                array, small = await each.read()
                assert (array == large + 1).all()
                assert small == "small"
        await asyncio.gather(*writing)
        assert not [each for each in live_resources() if each.startswith("MemoryRegion")]


@pytest.mark.asyncio
async def test_a_peer_that_has_not_said_that_it_reads_memory_gets_the_array_in_one_frame(carrier: str) -> None:
    """As an older version of this package; its reader would copy parts of a frame together."""
    async with a_stream(carrier) as (comm, peer):
        large = np.zeros(9_000_000)
        writing = asyncio.create_task(comm.write(to_serialize(large)))
        buffered = BufferedByteReceiveStream(peer)
        (count,) = struct.unpack("<Q", await buffered.receive_exactly(8))
        assert large.nbytes in struct.unpack(f"<{count}Q", await buffered.receive_exactly(8 * count))
        peer.abort()
        with pytest.raises(CommClosedError):
            await writing


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
async def test_an_array_that_cannot_be_registered_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host limits the memory that a process may register."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise FabricError(errno.ENOMEM, "fi_mr_regattr")

    monkeypatch.setattr(Domain, "register", refuse)
    async with a_pair() as (ours, theirs, _):
        large = np.arange(1_000_000)
        writing = asyncio.create_task(ours.write(to_serialize(large)))
        assert (await theirs.read() == large).all()
        await writing


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
async def test_a_large_array_may_change_when_its_write_has_returned() -> None:
    async with a_pair() as (ours, theirs, _):
        large = np.zeros(1_000_000)
        reading = asyncio.create_task(theirs.read())
        await ours.write(to_serialize(large))
        large[:] = 1
        assert not (await reading).any()


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
@pytest.mark.parametrize("end", ["cancel", "abort", "close"])
async def test_a_write_that_nobody_reads_ends_with_the_connection(end: str) -> None:
    async with a_pair() as (ours, theirs, _):
        writing = asyncio.create_task(ours.write(to_serialize(np.zeros(1_000_000))))
        await until(lambda: any(each.startswith("MemoryRegion") for each in live_resources()))
        if end == "cancel":
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
        else:
            theirs.abort() if end == "abort" else await theirs.close()
            with pytest.raises(CommClosedError):
                await writing
        assert ours.closed()
        assert not [each for each in live_resources() if each.startswith("MemoryRegion")]


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
async def test_a_read_that_is_cancelled_ends_the_connection() -> None:
    async with a_pair() as (ours, theirs, _):
        reading = asyncio.create_task(theirs.read())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert theirs.closed()
        with pytest.raises(CommClosedError):
            await ours.read()


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
async def test_a_connection_that_dask_drops_ends_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with anyio.fail_after(TIMEOUT):
        dropped, theirs, listener = await connected()
        del dropped
        gc.collect()
        with pytest.raises(CommClosedError):
            await theirs.read()
        assert f"dropped the connection to {theirs.local_address}" in caplog.text
        listener.stop()
        await others()


@pytest.mark.asyncio
@pytest.mark.once
@pytest.mark.parametrize(
    ("header", "said"),
    [
        (struct.pack("<Q", MOST_FRAMES + 1), f"{MOST_FRAMES + 1} frames"),
        (b"GET / HTTP/1.1\r\n", "frames"),
        (struct.pack("<3Q", 2, 1 << 62, 8), f"{(1 << 62) + 8} bytes"),
        (struct.pack("<QQ", 1, 8) + b"half", "EndOfStream"),
        (struct.pack("<QQH", 1, EXPOSED | 8, 3) + b"odd", "described its memory in 3 bytes"),
        (
            struct.pack("<QQH", 1, EXPOSED | 8, 25) + RemoteRegion(0, 1, 9, b"", Access.REMOTE_READ).pack(),
            "exposes 9 bytes",
        ),
        (
            struct.pack("<QQH", 1, EXPOSED | 8, 25) + RemoteRegion(0, 1, 8, b"", Access.REMOTE_READ).pack(),
            "reset by peer",
        ),
        (struct.pack("<3Q", 2, EXPOSED | 1 << 62, 8), f"{(1 << 62) + 8} bytes"),
    ],
)
async def test_a_peer_that_speaks_no_dask_costs_a_connection_and_no_memory(header: bytes, said: str) -> None:
    async with a_stream("tcp") as (comm, peer):
        await peer.send(header)
        await peer.send_eof()
        with pytest.raises(CommClosedError, match=said):
            await comm.read()
        assert comm.closed()


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
async def test_a_client_that_leaves_in_the_handshake_leaves_nothing(carrier: str) -> None:
    async def nobody(comm: Comm) -> None:
        raise AssertionError(comm)

    with anyio.fail_after(TIMEOUT):
        listener = await listen("fabric://127.0.0.1:0", nobody)
        host, port = get_address_host_port(listener.contact_address)
        stream = await connect_stream(host, port, provider=carrier)
        assert await stream.receive()
        await stream.aclose()
        listener.stop()
        await others()


@pytest.mark.asyncio
@pytest.mark.once
@pytest.mark.usefixtures("fabric")
async def test_encryption_is_refused() -> None:
    with pytest.raises(RuntimeError, match="encryption"):
        listen("fabric://127.0.0.1:0", print, require_encryption=True)
    with pytest.raises(RuntimeError, match="encryption"):
        await connect("fabric://127.0.0.1:1", require_encryption=True)


@pytest.mark.asyncio
@pytest.mark.usefixtures("fabric")
async def test_an_address_of_somebody_else_is_an_error() -> None:
    listener = listen("fabric://192.0.2.1:0", print)
    listener.stop()  # which did not start
    with pytest.raises(OSError, match="not one of this host's"):
        await listener


@pytest.mark.asyncio
@pytest.mark.once
@pytest.mark.usefixtures("fabric")
async def test_a_start_that_is_cancelled_leaves_no_listener() -> None:
    starting: Awaitable[Any] = asyncio.ensure_future(listen("fabric://127.0.0.1:0", print).start())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(starting, 0)
    await others()


@pytest.mark.once
@pytest.mark.usefixtures("fabric")
def test_addresses() -> None:
    assert resolve_address("fabric://localhost:1") == "fabric://127.0.0.1:1"
    assert get_local_address_for("fabric://127.0.0.1:1") == "fabric://127.0.0.1"
    assert get_address_host_port("fabric://[::1]:7") == ("::1", 7)


@pytest.mark.once
def test_dask_finds_the_backend_by_its_scheme() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["distributed.comm.backends"]["fabric"].partition(":")
    assert getattr(import_module(module), name) is FabricBackend


async def scheduler_and_worker(parent: Parent) -> None:
    register("tcp")
    async with (
        Scheduler(protocol="fabric://", port=0, **HERE) as scheduler,
        Worker(scheduler.address, nthreads=1, **HERE) as worker,
    ):
        parent.tell((scheduler.address, worker.address))
        await scheduler.finished()


async def worker_and_client(parent: Parent) -> tuple[list[int], float]:
    register("tcp")
    address, far = await parent.areceive()
    async with Worker(address, nthreads=1, **HERE) as near, Client(address, asynchronous=True) as client:
        squares = await client.gather(client.map(square, range(20)))
        ones = client.submit(np.ones, 1_000_000, workers=[far])
        total = await client.submit(np.sum, ones, workers=[near.address])  # which fetches them from the other
        await client.shutdown()
    return squares, float(total)


def square(number: int) -> int:
    return number * number


@pytest.mark.once
@pytest.mark.timeout(4 * TIMEOUT)
def test_a_cluster_of_processes(child: Callable[..., Child]) -> None:
    ours, theirs = child(scheduler_and_worker), child(worker_and_client)
    addresses = ours.receive(TIMEOUT)
    assert all(address.startswith("fabric://127.0.0.1:") for address in addresses)
    theirs.tell(addresses)
    assert theirs.result(TIMEOUT) == ([number * number for number in range(20)], 1_000_000)
    assert ours.result(TIMEOUT) is None
