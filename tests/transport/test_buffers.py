"""Lists of buffers for one message, and the registrations that an operation holds."""

from typing import Any

import pytest

from aiofabric import RemoteRegion
from aiofabric._ffi import ffi
from aiofabric.flags import Access
from aiofabric.memory import pin
from aiofabric.transport.buffers import (
    Pieces,
    acquire_region,
    acquire_regions,
    acquire_rma,
    acquire_rma_parts,
    contents,
    fill,
    gather,
)

pytestmark = pytest.mark.once


def sizes(iov: Any, count: int) -> list[int]:
    return [iov[index].iov_len for index in range(count)]


# -- one message of several buffers


@pytest.mark.parametrize("limit", [0, 1, 2, 4])
def test_one_buffer_is_passed_as_it_is(limit: int) -> None:
    data = b"one"
    pins, iov, count = gather([data], limit)
    assert (pins is data, iov, count) == (True, None, 1)


@pytest.mark.parametrize("limit", [0, 1])
def test_a_provider_that_takes_one_buffer_gets_all_joined(limit: int) -> None:
    assert gather([b"one", bytearray(b"two")], limit) == (b"onetwo", None, 1)


@pytest.mark.parametrize(("limit", "found"), [(2, [3, 9]), (3, [3, 3, 6]), (4, [3, 3, 5, 1]), (5, [3, 3, 5, 1])])
def test_the_tail_of_a_longer_list_is_joined(limit: int, found: list[int]) -> None:
    pins, iov, count = gather([b"one", b"two", b"three", b"!"], limit)
    assert sizes(iov, count) == found
    assert b"".join(ffi.buffer(each) for each in pins) == b"onetwothree!"


def test_an_empty_list_is_an_empty_message() -> None:
    assert gather([], 4) == (b"", None, 1)


# -- one receive of several buffers


@pytest.mark.parametrize(("count", "limit", "fits"), [(1, 0, True), (2, 2, True), (3, 2, False), (2, 0, False)])
def test_a_receive_has_at_most_the_providers_number_of_buffers(count: int, limit: int, fits: bool) -> None:
    buffers = [bytearray(3) for _ in range(count)]
    if fits:
        room = Pieces.room(buffers, limit)
        assert (len(room), sizes(room.iov, count)) == (3 * count, [3] * count)
    else:
        with pytest.raises(ValueError, match=f"into 1 to {max(1, limit)} buffers at once, not {count}"):
            Pieces.room(buffers, limit)


def test_a_receive_needs_a_buffer() -> None:
    with pytest.raises(ValueError, match="not 0"):
        Pieces.room([], 4)


@pytest.mark.parametrize("length", [0, 2, 3, 4, 7])
def test_buffers_are_filled_in_turn(length: int) -> None:
    parts = [bytearray(b"..."), bytearray(b"....")]
    room = Pieces.room(parts, 4)
    fill(room, b"message", length)
    assert b"".join(parts) == b"message"[:length] + b"......."[length:]
    assert contents(room, length) == b"message"[:length]


def test_one_buffer_is_filled_from_its_start() -> None:
    part = bytearray(b"....")
    room = pin(part, writable=True)
    fill(room, b"message", 3)
    assert part == b"mes."
    assert bytes(contents(room, 3)) == b"mes"


# -- registrations


class Held:
    """A registration; it counts the operations that hold it."""

    def __init__(self) -> None:
        self.descriptor = ffi.new("char *")
        self.uses = 1

    def end_use(self) -> None:
        self.uses -= 1


class Memory:
    """A domain's registrations: each buffer gets the next one of ``answers``; None: it needs none."""

    def __init__(self, *answers: Any, busy: bool = True) -> None:
        self.answers = list(answers)
        self.busy = busy
        self.regions = self
        self.asked: list[Access] = []
        self.keys: list[Held] = []
        self.refuses_keys = False

    def acquire(self, handle: Any, pins: Any, access: Access) -> Any:
        self.asked.append(access)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def acquire_key(self, remote: RemoteRegion) -> tuple[int, list[Held]]:
        if self.refuses_keys:
            raise OSError("no key")
        self.keys.append(Held())
        return 77, [self.keys[-1]]


REMOTE = RemoteRegion(address=4096, key=11, length=1000)
RAW = RemoteRegion(address=4096, key=0, length=1000, raw=b"a long key")
PINS = b"data"


def test_memory_that_needs_no_registration_has_none() -> None:
    memory: Any = Memory(None)
    assert acquire_region(memory, PINS, Access.SEND) == (ffi.NULL, ())
    assert memory.asked == [Access.SEND]


def test_the_operation_holds_the_registration_of_its_memory() -> None:
    held: Any = Held()
    memory: Any = Memory(held)
    assert acquire_region(memory, PINS, Access.SEND) == (held.descriptor, (held,))


def test_each_buffer_of_a_list_has_its_descriptor() -> None:
    held: Any = Held()
    memory: Any = Memory(None, held)
    found, regions = acquire_regions(memory, [PINS, PINS], Access.RECV)
    assert (found[0], found[1], regions) == (ffi.NULL, held.descriptor, [held])
    assert acquire_regions(Memory(None, None), [PINS, PINS], Access.RECV) == (ffi.NULL, [])  # type: ignore[arg-type]


def test_where_no_memory_is_registered_none_is_looked_for() -> None:
    memory: Any = Memory(busy=False)
    assert acquire_regions(memory, [PINS], Access.RECV) == (ffi.NULL, [])
    assert acquire_rma(memory, PINS, Access.READ, REMOTE) == (ffi.NULL, 11, ())
    assert not memory.asked


def test_a_list_that_cannot_be_registered_holds_nothing() -> None:
    held: Any = Held()
    memory: Any = Memory(held, OSError("full"))
    with pytest.raises(OSError, match="full"):
        acquire_regions(memory, [PINS, PINS], Access.RECV)
    assert held.uses == 0


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("remote", [REMOTE, RAW], ids=["number", "raw"])
def test_a_long_key_is_held_too(remote: RemoteRegion, busy: bool) -> None:
    held: Any = Held()
    memory: Any = Memory(held, busy=busy)
    found = acquire_rma(memory, PINS, Access.WRITE, remote)
    if busy or remote is RAW:
        assert found == (held.descriptor, 77, (held, *memory.keys))
    else:
        assert found == (ffi.NULL, 11, ())


def test_an_access_without_a_key_holds_nothing() -> None:
    held: Any = Held()
    memory: Any = Memory(held)
    memory.refuses_keys = True
    with pytest.raises(OSError, match="no key"):
        acquire_rma(memory, PINS, Access.WRITE, RAW)
    assert held.uses == 0


def test_the_parts_of_an_access_share_one_key() -> None:
    one: Any = Held()
    two: Any = Held()
    memory: Any = Memory(one, two)
    key, found, held = acquire_rma_parts(memory, [(PINS, Access.READ), (PINS, Access.WRITE)], REMOTE)
    assert (key, found, held) == (77, [one.descriptor, two.descriptor], [one, *memory.keys, two])
    assert memory.asked == [Access.READ, Access.WRITE]


def test_parts_that_cannot_be_registered_hold_nothing() -> None:
    held: Any = Held()
    memory: Any = Memory(held, OSError("full"))
    with pytest.raises(OSError, match="full"):
        acquire_rma_parts(memory, [(PINS, Access.READ), (PINS, Access.WRITE)], REMOTE)
    assert (held.uses, [each.uses for each in memory.keys]) == (0, [0])
