"""Remote memory over a connection: reads, writes, their bounds, and the side effects that a peer's access must not
have.
"""

# Doubles: the random numbers that keys are made of.

import mmap
import random
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest

import aiofabric
from aiofabric import Access, OpFlags, RemoteRegion
from tests.fixtures.providers import LONGEST, Pair

MIB = 1 << 20
BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE

MEMORY: dict[str, Callable[[int], Any]] = {
    "bytearray": bytearray,
    "mmap": lambda size: mmap.mmap(-1, size),
    "numpy": lambda size: np.zeros(size // 8),
    "memoryview": lambda size: memoryview(bytearray(size + 2))[1:-1],
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", MEMORY)
async def test_write_and_read_back(pair: Pair, kind: str) -> None:
    data = random.Random(1).randbytes(8192)
    memory, back = MEMORY[kind](8192), MEMORY[kind](8192)
    async with pair() as (active, passive), passive.domain.register(memory, access=BOTH) as region:
        await passive.send(region.remote.pack())
        remote = RemoteRegion.unpack(await active.recv())
        assert remote == region.remote
        assert await active.write(data, remote) == 8192
        assert await active.read_into(back, remote) == 8192
        assert await active.read(remote) == data
    for each in (memory, back):
        assert bytes(memoryview(each).cast("B")) == data


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, 128, 129, 65536, MIB + 1, min(64 * MIB, LONGEST)])
async def test_sizes_both_ways(pair: Pair, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 255, size, dtype=np.uint8)
    memory = np.zeros(size, dtype=np.uint8)
    async with pair() as (active, passive), active.domain.register(memory, access=BOTH) as region:
        assert await passive.write(data, region.remote) == size
        assert np.array_equal(np.frombuffer(await passive.read(region.remote), dtype=np.uint8), data)
        assert np.array_equal(memory, data)


@pytest.mark.anyio
async def test_parts_are_taken_by_byte_range(pair: Pair) -> None:
    memory = bytearray(range(256))
    async with pair() as (active, passive), passive.domain.register(memory, access=BOTH) as region:
        remote = region.remote
        assert await active.read(remote[10:20]) == bytes(range(10, 20))
        assert await active.read(remote[100:][5:7]) == bytes([105, 106])
        await active.write(b"###", remote[1:4])
        assert await active.read(remote[:5]) == b"\x00###\x04"
        assert await active.read(remote[7:7]) == b""
    assert memory[:5] == b"\x00###\x04"


@pytest.mark.anyio
@pytest.mark.parametrize("registered", [False, True], ids=["plain", "registered"])
@pytest.mark.parametrize("flags", [OpFlags(0), OpFlags.DELIVERY_COMPLETE], ids=["call", "message"])
async def test_in_pieces(pair: Pair, flags: OpFlags, registered: bool) -> None:
    """fi_writev and fi_readv, or fi_writemsg and fi_readmsg with several buffers."""
    memory = bytearray(5000)
    pieces: list[Any] = [b"one", memoryview(bytearray(b"two" * 1000)), np.arange(4, dtype=np.int32)]
    whole = b"".join(memoryview(each).cast("B") for each in pieces)
    async with pair() as (active, passive), passive.domain.register(memory, access=BOTH) as region:
        near = active.domain.register(bytearray(len(whole)))
        rooms = [memoryview(near.buffer)[:5], memoryview(near.buffer)[5:9], memoryview(near.buffer)[9:]]
        if not registered:
            near.close()
        assert await active.write(pieces, region.remote, flags=flags) == len(whole)
        assert await active.read_into(rooms, region.remote, flags=flags and OpFlags.COMPLETION) == len(whole)
        assert near.buffer == memory[: len(whole)] == whole
        assert await active.write([b"#"] * 50, region.remote) == 50  # more than it carries: the tail is joined
        assert await active.write([b"alone"], region.remote) == 5
        assert await active.write([], region.remote) == 0
        assert await active.read(region.remote[:51]) == b"alone" + b"#" * 45 + bytes(whole[50:51])
        for wrong in ([], [bytearray(1)] * 50):
            with pytest.raises(ValueError, match="buffers at once"):
                await active.read_into(wrong, region.remote)
        with pytest.raises(IndexError):
            await active.write([memory[:3000], memory[:3000]], region.remote)
        near.close()


@pytest.mark.anyio
async def test_range_outside_is_refused_before_posting(pair: Pair) -> None:
    async with pair() as (active, passive), passive.domain.register(bytearray(100), access=BOTH) as region:
        remote = region.remote
        for wrong in (slice(0, 101), slice(-1, 5), slice(60, 50), slice(101, None)):
            with pytest.raises(IndexError):
                remote[wrong]
        with pytest.raises(IndexError):
            await active.write(bytes(101), remote)
        with pytest.raises(IndexError):
            await active.read_into(bytearray(11), remote[90:])
        with pytest.raises(BufferError):
            await active.read_into(b"read-only", remote)
        assert active.statistics().sends == 0
        assert await active.read(remote[:1]) == b"\x00"  # the connection never noticed


@pytest.mark.anyio
async def test_lying_about_the_range_ends_the_connection_and_nothing_else(pair: Pair) -> None:
    """The target's provider checks key, bounds and access; tcp then drops the connection."""
    memory = bytearray(100)
    guard = bytes(memory)
    async with pair() as (active, passive), passive.domain.register(memory, access=Access.REMOTE_READ) as region:
        true = region.remote
        lie = RemoteRegion(true.address, true.key, 1 << 20)
        with anyio.fail_after(5), pytest.raises((aiofabric.FabricConnectionError, aiofabric.RemoteAccessError)):
            await active.read(lie)
        with anyio.fail_after(5), pytest.raises(aiofabric.FabricConnectionError):
            await passive.recv()
    assert memory == guard


@pytest.mark.anyio
@pytest.mark.parametrize("what", ["key", "access", "closed region"])
async def test_access_that_was_not_granted_is_refused(pair: Pair, what: str) -> None:
    """By the peer's provider; both sides get the possible reasons."""
    memory = bytearray(100)
    async with pair() as (active, passive):
        access = Access.REMOTE_READ if what == "access" else BOTH
        with passive.domain.register(memory, access=access) as region:
            remote = replace(region.remote, access=None)  # as a peer that does not say what it grants
            if what == "key":
                remote = replace(remote, key=remote.key ^ 1)
            if what != "closed region":
                with suppress(aiofabric.FabricConnectionError, aiofabric.RemoteAccessError):
                    await active.write(b"x" * 100, remote)  # complete for tcp when it is in the socket
                with anyio.fail_after(5), pytest.raises(aiofabric.FabricConnectionError, match="fi_write of 100 bytes"):
                    await active.recv()
        if what == "closed region":
            refused = (aiofabric.FabricConnectionError, aiofabric.RemoteAccessError)
            with anyio.fail_after(5), pytest.raises(refused, match="fi_read"):
                await active.read(remote)
        with (
            anyio.fail_after(5),
            pytest.raises(aiofabric.FabricConnectionResetError, match="has registered memory for remote access"),
        ):
            await passive.recv()
    assert memory == bytes(100)


@pytest.mark.anyio
async def test_access_that_the_region_does_not_grant_is_not_posted(pair: Pair) -> None:
    readable, writable = bytearray(b"r" * 100), bytearray(b"w" * 100)
    async with (
        pair() as (active, passive),
        passive.domain.register(readable, access=Access.REMOTE_READ) as source,
        passive.domain.register(writable, access=Access.REMOTE_WRITE) as target,
    ):
        from_there = RemoteRegion.unpack(source.remote.pack())
        to_there = RemoteRegion.unpack(target.remote.pack())
        with pytest.raises(aiofabric.RemoteAccessError, match="REMOTE_READ"):
            await active.write(b"x" * 100, from_there)
        with pytest.raises(aiofabric.RemoteAccessError, match="REMOTE_WRITE"):
            await active.read(to_there[5:])
        assert await active.read(from_there) == readable  # the connection never noticed
        await active.write(b"x" * 100, to_there)


@pytest.mark.anyio
async def test_only_an_open_region_for_peers_has_a_description(pair: Pair) -> None:
    async with pair() as (_, passive):
        local = passive.domain.register(bytearray(10))
        with pytest.raises(ValueError, match="local use only"):
            _ = local.remote
        assert len(local) == 10
        local.close()
        region = passive.domain.register(bytearray(10), access=BOTH)
        assert region.remote.access == BOTH
        region.close()
        with pytest.raises(anyio.ClosedResourceError):
            _ = region.remote


@pytest.mark.anyio
async def test_write_with_remote_data_is_no_message(pair: Pair) -> None:
    """Its completion at the target belongs to no operation there."""
    async with pair() as (active, passive), passive.domain.register(bytearray(64), access=BOTH) as region:
        for n in range(300):  # every transfer entry of the provider was used before
            await active.send(b"%d" % n)
            assert await passive.recv() == b"%d" % n
        for n in range(300):
            await active.write(b"%064d" % n, region.remote, remote_data=n)
            if n % 3 == 0:
                await active.send(b"%d" % n)
                assert await passive.recv() == b"%d" % n
        assert await active.read(region.remote) == b"%064d" % 299
        assert passive.recv_nowait() is None
        pool = passive.statistics().pool
        assert pool is not None
        assert pool.messages == 400


@pytest.mark.anyio
async def test_memory_is_held_while_registered_and_free_afterwards(pair: Pair) -> None:
    async with pair() as (_, passive):
        memory = bytearray(100)
        with passive.domain.register(memory, access=BOTH) as region, pytest.raises(BufferError):
            memory.append(1)
        memory.append(1)
        assert region.closed
        region.close()


@pytest.mark.anyio
async def test_memory_that_would_be_written_must_be_writable(pair: Pair) -> None:
    async with pair() as (_, passive):
        with pytest.raises(BufferError):
            passive.domain.register(b"read-only", access=Access.REMOTE_WRITE)
        with passive.domain.register(b"read-only", access=Access.REMOTE_READ):
            pass
        with pytest.raises(BufferError):
            passive.domain.register(np.zeros((8, 8))[:, ::2], access=BOTH)
        with pytest.raises(ValueError, match="empty"):
            passive.domain.register(bytearray(), access=BOTH)


@pytest.mark.anyio
async def test_regions_of_a_domain_have_keys_of_their_own(pair: Pair) -> None:
    async with pair() as (active, passive):
        memory = bytearray(b"abc")
        regions = [passive.domain.register(memory, access=Access.REMOTE_READ) for _ in range(50)]
        assert len({r.key for r in regions}) == 50
        with passive.domain.register(memory, access=Access.REMOTE_READ, key=7):
            with pytest.raises(aiofabric.FabricError):
                passive.domain.register(memory, access=Access.REMOTE_READ, key=7)
            assert await active.read(RemoteRegion(0, 7, 3)) == b"abc"
        for region in regions:
            region.close()


@pytest.mark.anyio
async def test_a_chosen_key_is_not_that_of_another_region(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a key that the program chose, nor one that it wanted for a second region."""
    async with pair() as (_, passive):
        register = partial(passive.domain.register, bytearray(3), access=Access.REMOTE_READ)
        candidates = [5, 7, 7, 5, 9, 5]
        monkeypatch.setattr(secrets, "randbits", lambda _: candidates.pop(0))
        with register() as first, register(key=7):
            with pytest.raises(aiofabric.FabricError):
                register(key=first.key)
            with pytest.raises(aiofabric.FabricError):
                register(key=7)
            with register() as region:
                assert (first.key, region.key) == (5, 9)
        with register() as region:  # free again
            assert region.key == 5
        assert candidates == []


@pytest.mark.anyio
async def test_many_at_once_and_in_any_order(pair: Pair) -> None:
    """More than the transmit limit, reads and writes mixed; each ends with its own answer."""
    size, count = 512, 600
    memory = bytearray(size * count)
    async with pair() as (active, passive), passive.domain.register(memory, access=BOTH) as region:

        async def there_and_back(n: int) -> None:
            part = region.remote[n * size : (n + 1) * size]
            data = n.to_bytes(4, "big") * (size // 4)
            await active.write(data, part)
            assert await active.read(part) == data

        async with anyio.create_task_group() as tasks:
            for n in range(count):
                tasks.start_soon(there_and_back, n)
        assert active.statistics().sends == 0
    assert memory == b"".join(n.to_bytes(4, "big") * (size // 4) for n in range(count))


@pytest.mark.anyio
async def test_target_needs_no_receive_and_no_awaiting_task(pair: Pair) -> None:
    memory = bytearray(MIB)
    async with pair(recv_size=None) as (active, passive), passive.domain.register(memory, access=BOTH) as region:
        for _ in range(20):
            await active.write(bytes(MIB), region.remote)
            await active.read(region.remote)


def test_remote_region_packs_to_what_it_was() -> None:
    for access in (None, Access.REMOTE_READ, Access.REMOTE_WRITE, BOTH):
        region = RemoteRegion(2**64 - 5, 2**63, 5, access=access)
        assert RemoteRegion.unpack(region.pack()) == region
        assert RemoteRegion.unpack(memoryview(bytearray(region.pack()))) == region
        assert RemoteRegion.unpack(region.pack())[1:3].access == access
        assert RemoteRegion.unpack(region.pack()[:24]) == RemoteRegion(2**64 - 5, 2**63, 5)  # from a peer in C
    for wrong in (b"", region.pack()[:23], region.pack() + b"x", region.pack()[:24] + b"\x04"):
        with pytest.raises(ValueError, match="25 bytes"):
            RemoteRegion.unpack(wrong)
    with pytest.raises(TypeError):
        region[3]  # type: ignore[index]
    with pytest.raises(ValueError, match="step"):
        region[::2]


@pytest.mark.anyio
async def test_only_a_remote_region_can_be_read(pair: Pair) -> None:
    async with pair() as (active, _):
        nothing: Any = b"bytes"
        with pytest.raises(TypeError, match="remote must be a RemoteRegion, not bytes"):
            await active.read(nothing)
