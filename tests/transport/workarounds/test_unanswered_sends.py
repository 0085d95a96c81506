"""Rings of sends that are read only if they are 1.17's, and peers that count as gone only if that is proved."""

# Privates: a ring is written as shm of 1.17 would.
# Doubles: no process here hides its mappings.

import logging
import os
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from aiofabric import Address
from aiofabric._ffi import ffi
from aiofabric.flags import AddressFormat
from aiofabric.transport.workarounds import shm_unanswered_sends
from aiofabric.transport.workarounds.shm_names import own_namespace
from aiofabric.transport.workarounds.shm_unanswered_sends import (
    _ANSWER,
    _BEHIND,
    _BUSY,
    _CANCELLED,
    _CONTEXT,
    _COPIED,
    _HEAD,
    _IN_PIECES,
    _RING,
    _SIZE,
    _SUCCESS,
    _TOTAL,
    _VERSION,
    _WAY,
    _WHERE,
    Unanswered,
    is_gone,
)

pytestmark = pytest.mark.once

AT, SIZE, LENGTH = 128, 4, 4096


class Ring:
    """The memory of an endpoint with a ring of four entries, of which ``written - read`` wait for an answer."""

    def __init__(self, read: int = 3, written: int = 6) -> None:
        self.memory = ffi.new("char[]", LENGTH)
        self.operations = [ffi.new("char[]", 512) for _ in range(SIZE)]
        self.put(0, _VERSION)
        self.put(_TOTAL, LENGTH)
        self.put(_RING, AT)
        self.put(_BEHIND, AT + _HEAD + SIZE * _ANSWER)
        for place, word in enumerate((SIZE, SIZE - 1, read, written)):
            self.put(AT + 8 * place, word)
        for place, operation in enumerate(self.operations):
            self.put(self.entry(place), int(ffi.cast("uintptr_t", operation)))
            self.put(self.entry(place) + 8, _BUSY)
            ffi.buffer(operation)[_WHERE : _WHERE + 8] = struct.pack("Q", self.entry(place))
            ffi.buffer(operation)[_CONTEXT : _CONTEXT + 8] = struct.pack("Q", 100 + place)
            ffi.buffer(operation)[_SIZE : _SIZE + 8] = struct.pack("Q", 5000)

    @staticmethod
    def entry(place: int) -> int:
        return AT + _HEAD + place * _ANSWER

    def put(self, offset: int, word: int) -> None:
        ffi.buffer(self.memory)[offset : offset + 8] = struct.pack("Q", word)

    def state(self, place: int) -> int:
        return int(struct.unpack_from("Q", ffi.buffer(self.memory), self.entry(place) + 8)[0])

    def unanswered(self) -> list[Any]:
        return list(shm_unanswered_sends._answers(self.memory, LENGTH))


def test_the_entries_that_wait_are_found_across_the_end_of_the_ring() -> None:
    assert [each.context for each in Ring().unanswered()] == [103, 100, 101]
    assert Ring(read=2, written=2).unanswered() == []


@pytest.mark.parametrize(
    "words",
    [
        {0: _VERSION + 1},
        {0: _VERSION | 2 << 16},
        {_TOTAL: LENGTH + 1},
        {AT: 0},
        {AT: SIZE - 1, AT + 8: SIZE - 2, _BEHIND: AT + _HEAD + (SIZE - 1) * _ANSWER},
        {AT + 8: 2 * SIZE},
        {_BEHIND: AT},
    ],
    ids=["version", "debug build", "length", "size 0", "no power of two", "mask", "next part"],
)
def test_memory_of_another_layout_is_left_alone(words: dict[int, int]) -> None:
    ring = Ring()
    for offset, word in words.items():
        ring.put(offset, word)
    assert ring.unanswered() == []


def test_a_ring_that_ends_behind_the_memory_is_left_alone() -> None:
    ring = Ring()
    for total, found in ((AT + _HEAD, 3), (AT + _HEAD - 1, 0)):
        ring.put(_TOTAL, total)
        assert len(list(shm_unanswered_sends._answers(ring.memory, total))) == found


def test_a_message_in_one_piece_is_cancelled_and_one_in_pieces_was_copied() -> None:
    ring = Ring(read=0, written=3)
    whole, pieces, answered = ring.unanswered()
    ffi.buffer(ring.operations[1])[_WAY : _WAY + 2] = struct.pack("H", _IN_PIECES)
    ring.put(ring.entry(2) + 8, 7)
    for each in (whole, pieces, answered):
        each.give()
    assert [ring.state(place) for place in range(4)] == [_CANCELLED, _SUCCESS, 7, _BUSY]
    copied = [struct.unpack_from("Q", ffi.buffer(each), _COPIED)[0] for each in ring.operations]
    assert copied == [0, 5000, 0, 0]


class Named(NamedTuple):
    address: Address


def address_of(process: object, namespace: int | None = None) -> Address:
    here = own_namespace() if namespace is None else namespace
    name = f"fi_shm://aiofabric-{here:x}-{process}-00000000"
    return Address(AddressFormat.ADDR_STR, name.encode())


def test_a_process_that_nothing_is_known_of_is_not_gone() -> None:
    assert not is_gone(address_of("nobody"))
    assert not is_gone(address_of(os.getpid(), namespace=1))
    assert is_gone(address_of(os.getpid()))  # it has no such memory


@pytest.mark.parametrize(
    ("error", "gone"), [(FileNotFoundError, True), (ProcessLookupError, True), (PermissionError, False)]
)
def test_a_process_whose_mappings_cannot_be_read_is_gone_if_it_does_not_exist(
    error: type[OSError], gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise error

    monkeypatch.setattr(Path, "read_text", refuse)
    assert is_gone(address_of(os.getpid())) is gone


@pytest.mark.parametrize("error", [OSError("no memory"), ValueError("another layout")])
def test_an_endpoint_that_cannot_be_examined_yet_is_examined_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiofabric")
    later: list[Any] = []
    driver = SimpleNamespace(call_later=lambda _, call: later.append(call))
    source = SimpleNamespace(driver=driver, drain=lambda: 0, wake=lambda: None)
    transfer = SimpleNamespace(slot=SimpleNamespace(address=1))
    route = SimpleNamespace(posted=[transfer])
    handle: Any = SimpleNamespace(
        source=source, closed=False, address=address_of(os.getpid()), route_to=lambda _: route
    )

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(Unanswered, "_take_lock", lambda *_: None)
    monkeypatch.setattr(Unanswered, "_answer", refuse)
    unanswered = Unanswered(handle)
    peer: Any = Named(address_of(os.getpid()))
    unanswered.watch(peer)
    later.pop()()
    assert f"cannot be examined yet: {error}" in caplog.text
    assert len(later) == 1
    route.posted.clear()
    later.pop()()
    assert later == []
