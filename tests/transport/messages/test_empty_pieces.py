"""Hazard: an empty buffer in a list. It has no registration, and verbs reads the descriptor of each buffer."""

from typing import Any

import pytest

from aiofabric import Access, OpFlags
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

LISTS: list[list[bytes]] = [[b"", b"data"], [b"da", b"", b"ta"], [b"data", b""], [b"", b""], [b""] * 9 + [b"data"]]


@pytest.mark.parametrize("pieces", LISTS, ids=str)
async def test_a_list_arrives_without_its_empty_buffers(pair: Pair, pieces: list[bytes]) -> None:
    async with pair() as (one, other):
        await one.send(pieces)
        assert await other.recv() == b"".join(pieces)
        room = bytearray(4)
        with other.domain.register(room, access=Access.REMOTE_WRITE) as region:
            await one.write(pieces, region.remote)
            await one.send(b"written")
            assert await other.recv() == b"written"
        assert room.rstrip(b"\0") == b"".join(pieces)


async def test_empty_buffers_are_not_filled(pair: Pair) -> None:
    async with pair(recv_size=None) as (one, other):
        rooms: list[Any] = [bytearray(), bytearray(2), bytearray(), bytearray(2)]
        await one.send(b"data")
        assert await other.recv_into(rooms) == 4
        assert b"".join(rooms) == b"data"


async def test_an_empty_message_and_an_empty_write_with_flags(pair: Pair) -> None:
    async with pair() as (one, other):
        for empty in (b"", [b"", b""]):
            await one.send(empty, flags=OpFlags.TRANSMIT_COMPLETE)
            await one.send(empty, remote_data=7)
            assert [await other.recv() for _ in range(2)] == [b"", b""]
            with other.domain.register(bytearray(1), access=Access.REMOTE_WRITE) as region:
                await one.write(empty, region.remote, flags=OpFlags.TRANSMIT_COMPLETE)
                await one.write(empty, region.remote, remote_data=7)
                await one.send(b"written")
                while await other.recv() != b"written":  # a write with remote data may take a receive
                    pass


async def test_a_registered_buffer_beside_others(pair: Pair) -> None:
    """Where the provider needs no registration, it may read one descriptor of several."""
    async with pair() as (one, other):
        registered, plain = bytearray(b"a" * 5000), bytearray(b"b" * 5000)
        with one.domain.register(registered, access=Access.SEND | Access.WRITE):
            for pieces in ([registered, plain], [plain, registered]):
                await one.send(pieces)
                assert await other.recv() == b"".join(pieces)
