"""Messages that cancelled receives still got: which receive each goes to, and what happens to one that is too long."""

# Privates: whether a cancelled receive still gets a message is the provider's choice, so the test keeps one itself.

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from aiofabric import Address, Message, Peer, TruncatedMessageError
from aiofabric._ffi import constants
from aiofabric.memory import pin
from aiofabric.transport.messages.undelivered import UndeliveredMessage
from tests.fixtures.providers import Pair, over

pytestmark = pytest.mark.anyio
provider = over(["tcp"])

ANYBODY = constants.FI_ADDR_UNSPEC


@pytest.mark.once
@pytest.mark.parametrize(
    ("source", "tag", "where", "fits"),
    [
        (3, None, (ANYBODY,), True),
        (3, None, (3,), True),
        (3, None, (4,), False),
        (None, None, (4,), False),
        (3, 7, (ANYBODY, 7, 0), True),
        (3, 7, (4, 7, 0), False),
        (3, 7, (ANYBODY, 6, 0), False),
        (3, 7, (ANYBODY, 6, 1), True),
        (3, 7, (ANYBODY,), False),
        (3, None, (ANYBODY, 7, 0), False),
    ],
)
def test_a_kept_message_goes_to_a_receive_that_asks_for_its_source_and_tag(
    source: int | None, tag: int | None, where: tuple[int, ...], fits: bool
) -> None:
    assert UndeliveredMessage(Message(b""), source, tag).fits(where) is fits


@pytest.mark.once
def test_a_kept_message_of_a_removed_peer_goes_to_no_receive_that_names_its_number() -> None:
    """Another peer may have the number by now."""
    peer = Peer(Address.from_ip("127.0.0.1", 1), 3, None)
    peer.vector = SimpleNamespace()  # type: ignore[assignment]
    kept = UndeliveredMessage(Message(b"", peer), 3, 7)
    assert kept.fits((3, 7, 0))
    peer.vector = None
    assert not kept.fits((3, 7, 0))
    assert kept.fits((ANYBODY, 7, 0))


async def test_a_kept_message_that_is_too_long_waits_for_a_receive_with_room(pair: Pair) -> None:
    async with pair(recv_size=None) as (active, passive):
        endpoint: Any = passive
        transfer = SimpleNamespace(length=4, source=None, tag=0, flags=0, data=0)
        endpoint._keep(pin(b"kept"), False, transfer)
        with anyio.fail_after(10):
            for _ in range(2):
                with pytest.raises(TruncatedMessageError) as caught:
                    await passive.recv(3)
                assert (caught.value.size, caught.value.limit) == (4, 3)
            assert await passive.recv(4) == b"kept"
            await active.send(b"next")
            assert await passive.recv(10) == b"next"


async def test_what_a_cancelled_receive_got_in_part_is_not_kept(pair: Pair) -> None:
    async with pair(recv_size=None) as (active, passive):
        endpoint: Any = passive
        endpoint._keep(pin(bytearray(4)), False, SimpleNamespace(length=5, source=None, tag=0, flags=0, data=0))
        with anyio.fail_after(10):
            await active.send(b"next")
            assert await passive.recv(10) == b"next"
