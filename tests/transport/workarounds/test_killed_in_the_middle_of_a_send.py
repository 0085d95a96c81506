"""A peer that is killed in the middle of a send over shared memory ends its own connections, and blocks no other
process.
"""

import mmap
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import aiofabric
from aiofabric import Quirk
from aiofabric._ffi import ffi, lib
from aiofabric.transport.workarounds.shm_orphaned_entries import queues_of
from tests.fixtures.children import Child, ChildFailed, Parent
from tests.fixtures.peers import quirks_of
from tests.fixtures.stopping import LOCK

# Where an endpoint's memory has the number of its process, by SMR_VERSION.
OWNER = {4: 4, 8: 4, 10: 40}


async def server(parent: Parent) -> None:
    """Two clients in turn: the first one's end is seen, and the second one is answered after it."""
    async with aiofabric.listen("127.0.0.1", 0, provider="shm") as listener:
        parent.tell(listener.address.port)
        async with await (await listener.accept_request()).accept() as doomed:
            assert await doomed.recv() == b"hello"
            parent.tell("one is there")
            async with await (await listener.accept_request()).accept() as other:
                assert await other.recv() == b"hello"
                parent.tell("both are there")
                with pytest.raises(aiofabric.FabricConnectionResetError):
                    await doomed.recv()
                assert await other.recv() == b"and now?"
                await other.send(b"all is well")


async def is_killed(parent: Parent, port: int, in_the_midst: Callable[[Path], None], owner: int) -> None:
    async with await aiofabric.connect("127.0.0.1", port, provider="shm") as endpoint:
        await endpoint.send(b"hello")
        parent.receive()
        for path in memory_of(owner):
            in_the_midst(path)
        os.kill(os.getpid(), signal.SIGKILL)


def memory_of(process: int) -> list[Path]:
    return list(Path("/dev/shm").glob(f"aiofabric-*-{process}-*"))


def with_a_lock(path: Path) -> None:
    with path.open("r+b") as file:
        region = ffi.from_buffer(mmap.mmap(file.fileno(), mmap.PAGESIZE))
    version = region[0][0]
    assert ffi.cast("int *", region + OWNER[version])[0] == int(path.name.split("-")[2])
    lib.aiofabric_spin_lock(region + LOCK[version])


def with_a_claim(path: Path) -> None:
    with path.open("r+b") as file:
        region = ffi.from_buffer(mmap.mmap(file.fileno(), 0))
    queues = [queue for _, queue in queues_of(region)]
    assert queues
    for queue in queues:
        ffi.cast("int64_t *", queue.start)[0] += 1  # the place that is written next (ofi_atomic_queue.h, _next)


async def asks_afterwards(parent: Parent, port: int) -> None:
    async with await aiofabric.connect("127.0.0.1", port, provider="shm") as endpoint:
        await endpoint.send(b"hello")
        await parent.areceive()
        await endpoint.send(b"and now?")
        parent.tell(bytes(await endpoint.recv()))


@pytest.mark.parametrize(
    ("in_the_midst", "quirk"),
    [(with_a_lock, Quirk.LOCKS_OUTLIVE_PROCESSES), (with_a_claim, Quirk.ORPHANED_ENTRIES_STAY)],
)
def test_a_peer_killed_in_the_midst_of_a_send_hangs_nobody(
    child: Callable[..., Child], in_the_midst: Callable[[Path], None], quirk: Quirk
) -> None:
    if quirk not in quirks_of("shm"):
        pytest.skip(f"this libfabric's shm has no {quirk.name}")
    serving = child(server)
    port = serving.receive()
    doomed = child(is_killed, port, in_the_midst, serving.pid)
    assert serving.receive() == "one is there"
    asking = child(asks_afterwards, port)
    assert serving.receive() == "both are there"
    doomed.tell("now")
    with pytest.raises(ChildFailed, match="SIGKILL"):
        doomed.result()
    asking.tell("now")
    assert asking.receive() == b"all is well"
    serving.result()
