"""Tagged messages: the receive that gets each, with all metadata, and none lost to a cancel."""

import random
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from aiofabric import Caps, Envelope, RdmEndpoint, library_version
from tests.fixtures.peers import RDM, peers

pytestmark = pytest.mark.anyio

MIB = 1 << 20
CANCELS = 3000
NAMES_SENDERS = [name for name in RDM if name != "udp;ofi_rxd"]


async def test_a_receive_takes_what_differs_only_in_ignored_bits(rdm: str) -> None:
    if rdm == "shm" and library_version() < (1, 18):
        pytest.skip("masks are refused with 1.17's shm")
    async with peers(rdm) as (one, other, there, _):
        for tag in (0x11, 0x12, 0x21, 0xFF00000000000001 >> 1):
            await one.send_tagged(b"%x" % tag, tag, to=there)
        assert await other.recv_tagged(0x20, ignore=0x0F) == b"21"
        assert await other.recv_tagged(0x12) == b"12"
        got = await other.recv_tagged(0, ignore=0xFF)
        assert (got, got.tag) == (b"11", 0x11)
        got = await other.recv_tagged(0, ignore=(1 << 64) - 1)
        assert (got, got.tag) == (b"7f80000000000000", 0xFF00000000000001 >> 1)


async def test_plain_and_tagged_messages_do_not_mix(rdm: str) -> None:
    async with peers(rdm) as (one, other, there, _):
        await one.send_tagged(b"tagged", 0, to=there)
        await one.send(b"plain", to=there)
        assert await other.recv() == b"plain"
        assert await other.recv_tagged(0) == b"tagged"


@pytest.mark.parametrize("name", NAMES_SENDERS)
async def test_a_directed_receive_waits_for_its_sender(name: str) -> None:
    async with (
        peers(name, Caps.MSG | Caps.TAGGED | Caps.SOURCE | Caps.DIRECTED_RECV) as (one, other, there, back),
        anyio.create_task_group() as tasks,
    ):
        myself, got = await other.add_peer(other.local_address), []

        async def receive() -> None:
            got.append(await other.recv_tagged(5, source=back))

        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        await other.send_tagged(b"from myself", 5, to=myself)
        message = await other.recv_tagged(5, source=myself)
        assert (message, message.source) == (b"from myself", myself)
        assert got == []
        await one.send_tagged(b"from the other", 5, to=there)
        with anyio.fail_after(5):
            while not got:
                await anyio.lowlevel.checkpoint()
        assert (got[0], got[0].source) == (b"from the other", back)


@pytest.mark.parametrize("size", [0, 1, 64, 65, 128, 129, 4096, 4097, 16384, 16385, 131072, 131073, MIB])
async def test_sizes_from_inject_to_rendezvous(rdm: str, size: int) -> None:
    data, room = random.Random(size).randbytes(size), bytearray(size + 1)
    async with peers(rdm) as (one, other, there, _), anyio.create_task_group() as tasks:
        tasks.start_soon(partial(one.send_tagged, data, 1, to=there))
        assert (await other.recv_tagged_into(room, 1))[:2] == (size, 1)
        assert room[:size] == data
        tasks.start_soon(partial(one.send_tagged, data, 2, to=there, remote_data=size + 7))
        got = await other.recv_tagged(2, max_bytes=size or 1)
        assert (got, got.tag, got.remote_data) == (data, 2, size + 7)


@pytest.mark.parametrize("size", [40, 8000])
async def test_in_pieces_on_both_sides(rdm: str, size: int) -> None:
    data = random.Random(size).randbytes(size)
    third = size // 3
    async with peers(rdm) as (one, other, there, _), anyio.create_task_group() as tasks:
        for extra in (None, 9):
            room = [bytearray(third), bytearray(third), bytearray(size)]
            pieces: list[bytes | bytearray | memoryview] = [
                data[:10],
                bytearray(data[10:third]),
                memoryview(data)[third:],
            ]
            tasks.start_soon(partial(one.send_tagged, pieces, 3, to=there, remote_data=extra))
            got = await other.recv_tagged_into(room, 3)
            assert (got.length, got.tag, got.remote_data) == (size, 3, extra)
            assert b"".join(room)[:size] == data
        many = [data[at : at + 3] for at in range(0, size, 3)]
        tasks.start_soon(partial(one.send_tagged, many, 4, to=there))
        assert await other.recv_tagged(4) == data


async def test_remote_data_beyond_the_providers_is_refused(rdm: str) -> None:
    async with peers(rdm) as (one, other, there, _):
        for wrong in (-1, 1 << 64):
            with pytest.raises(ValueError, match="this provider carries 64 bits"):
                await one.send_tagged(b"", 1, to=there, remote_data=wrong)
        await one.send_tagged(b"most", 1, to=there, remote_data=(1 << 64) - 1)
        assert (await other.recv_tagged(1)).remote_data == (1 << 64) - 1


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_random_cancels_lose_nothing(rdm: str) -> None:
    """Every message arrives once, with its own tag, whichever receive was cancelled meanwhile."""
    chance = random.Random(5)
    wanted = [(1, 0), (2, 0), (0, 3)]
    if rdm == "shm" and library_version() < (1, 18):
        wanted.pop()  # masks are refused there
    got: list[tuple[int, int]] = []
    cancelled = sent = 0

    def numbered(number: int) -> bytes:
        return number.to_bytes(4, "big") * chance.choice((1, 16, 1024))

    async def attempt(ep: RdmEndpoint, scope: anyio.CancelScope) -> None:
        tag, ignore = chance.choice(wanted)
        with scope:
            if chance.random() < 0.5:
                message = await ep.recv_tagged(tag, ignore=ignore, max_bytes=4096)
                found, data = Envelope(len(message), message.tag, None, None), bytes(message)
            else:
                room = bytearray(4096)
                found = await ep.recv_tagged_into(room, tag, ignore=ignore)
                data = bytes(room[: found.length])
            assert data == data[:4] * (len(data) // 4)
            assert ignore or found.tag == tag
            got.append((int.from_bytes(data[:4], "big"), found.tag))

    async with peers(rdm) as (one, other, there, _):
        while cancelled < CANCELS:
            scopes = [anyio.CancelScope() for _ in range(10)]
            async with anyio.create_task_group() as tasks:
                for scope in scopes:
                    tasks.start_soon(attempt, other, scope)
                for _ in range(chance.randrange(4)):
                    await anyio.lowlevel.checkpoint()
                while sent - len(got) < 4:
                    await one.send_tagged(numbered(sent), 1 + sent % 2, to=there)
                    sent += 1
                for _ in range(chance.randrange(6)):
                    await anyio.lowlevel.checkpoint()
                for scope in scopes:
                    scope.cancel()
            cancelled += sum(scope.cancelled_caught for scope in scopes)
        with anyio.fail_after(10):
            for number in set(range(sent)) - {number for number, _ in got}:
                left = await other.recv_tagged(1 + number % 2, max_bytes=4096)
                got.append((int.from_bytes(left[:4], "big"), left.tag))
        assert sorted(got) == [(number, 1 + number % 2) for number in range(sent)]
        statistics = other.statistics()
        assert (statistics.receives, statistics.abandoned) == (0, 0)


async def test_hazard_message_without_its_tag_is_not_sent_untagged(rdm: str) -> None:
    async with peers(rdm, Caps.MSG | Caps.TAGGED) as (one, other, there, _):
        for no_tag in (None, "1"):
            with pytest.raises(TypeError):
                await one.send_tagged(b"lost", no_tag, to=there)  # type: ignore[arg-type]
        await one.send(b"plain", to=there)
        with anyio.fail_after(5):
            assert await other.recv() == b"plain"
