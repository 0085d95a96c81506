"""A peer that is killed while it holds a lock of shm's shared memory ends its connections, and hangs nobody."""

import mmap
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import aiofabric
from aiofabric import EndpointType, EpAttr, FabricAttr, Hints, Quirk
from aiofabric._ffi import ffi, lib
from aiofabric.features import quirks
from tests.fixtures.children import Child, ChildFailed, Parent

LOCK = 24  # where libfabric 1.17 has it in the memory of an endpoint (struct smr_region, ofi_shm.h)
OWNER = 4  # and the number of the endpoint's process


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


async def dies_with_the_lock(parent: Parent, port: int, owner: int) -> None:
    async with await aiofabric.connect("127.0.0.1", port, provider="shm") as endpoint:
        await endpoint.send(b"hello")
        parent.hear()
        take_locks_of(owner)
        os.kill(os.getpid(), signal.SIGKILL)


def take_locks_of(owner: int) -> None:
    for path in Path("/dev/shm").glob(f"aiofabric-*-{owner}-*"):
        with path.open("r+b") as file:
            region = ffi.from_buffer(mmap.mmap(file.fileno(), mmap.PAGESIZE))
        assert ffi.cast("int *", region + OWNER)[0] == owner
        lib.aiofabric_spin_lock(region + LOCK)


async def asks_afterwards(parent: Parent, port: int) -> None:
    async with await aiofabric.connect("127.0.0.1", port, provider="shm") as endpoint:
        await endpoint.send(b"hello")
        await parent.ahear()
        await endpoint.send(b"and now?")
        parent.tell(bytes(await endpoint.recv()))


def test_a_killed_peer_s_lock_hangs_nobody(child: Callable[..., Child]) -> None:
    hints = Hints(ep_attr=EpAttr(type=EndpointType.RDM), fabric_attr=FabricAttr(prov_name="shm"))
    if Quirk.LOCKS_OUTLIVE_PROCESSES not in quirks(aiofabric.getinfo(hints=hints)[0]):
        pytest.skip("this libfabric's shm has no lock in shared memory")
    serving = child(server)
    port = serving.hear()
    dying = child(dies_with_the_lock, port, serving.pid)
    assert serving.hear() == "one is there"
    asking = child(asks_afterwards, port)
    assert serving.hear() == "both are there"
    dying.tell("now")
    with pytest.raises(ChildFailed, match="SIGKILL"):
        dying.result()
    asking.tell("now")
    assert asking.hear() == b"all is well"
    serving.result()
