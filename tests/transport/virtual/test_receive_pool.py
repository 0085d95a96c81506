"""One receive of a shared pool: where it goes after its message, its failure, or a write that used it up."""

# The pool records what it is given.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric._ffi import constants
from aiofabric.cq.queue import ErrorEntry
from aiofabric.cq.slots import Slots
from aiofabric.transport.virtual.receive_pools import SharedBuffer

pytestmark = pytest.mark.once


class Receives:
    """A pool whose one receive is posted."""

    def __init__(self, *, closed: bool = False) -> None:
        self.multiplexer = self
        self.closed = closed
        self.withdrawing: SharedBuffer | None = None
        self.source = SimpleNamespace(slots=Slots(), operations={})
        self.posted = 1
        self.connections: dict[int, Any] = {}
        self.recycled: list[SharedBuffer] = []
        self.idle: list[SharedBuffer] = []
        self.recycle = self.recycled.append
        self.withdrawn = self.idle.append
        double: Any = self
        slot = self.source.slots.acquire()
        self.buffer = SharedBuffer(double, memoryview(bytearray(8)), slot, (slot.pointer,))
        self.buffer.posted = True
        self.source.operations[slot.address] = self.buffer


def error(code: int) -> ErrorEntry:
    return ErrorEntry(0, 0, 0, 0, 0, code, 0, "", constants.FI_ADDR_NOTAVAIL)


@pytest.mark.parametrize(
    ("code", "withdrawn", "closed", "recycled", "idle"),
    [
        (constants.FI_ETRUNC, False, False, 1, 0),
        (constants.FI_ECANCELED, False, False, 1, 0),
        (constants.FI_ECANCELED, True, False, 0, 1),
        (constants.FI_ECANCELED, False, True, 0, 0),
    ],
    ids=["message too long", "sender died", "withdrawn", "flushed by the close"],
)
def test_a_receive_that_failed_is_no_longer_posted(
    code: int, withdrawn: bool, closed: bool, recycled: int, idle: int
) -> None:
    pool = Receives(closed=closed)
    pool.withdrawing = pool.buffer if withdrawn else None
    pool.buffer.fail(error(code))
    assert (pool.buffer.posted, pool.posted) == (False, 0)
    assert (len(pool.recycled), len(pool.idle)) == (recycled, idle)


def test_a_second_report_of_a_failure_names_no_receive() -> None:
    pool = Receives()
    before = pool.buffer.slot
    pool.buffer.fail(error(constants.FI_ECANCELED))
    assert before.address not in pool.source.operations
    assert pool.source.operations == {pool.buffer.slot.address: pool.buffer}
    assert pool.buffer.args == (pool.buffer.slot.pointer,)
    assert pool.source.slots.acquire() is not before  # it is not used again at once


def test_a_receive_that_fails_after_its_message_is_counted_once() -> None:
    pool = Receives()
    pool.buffer.complete((0, 0, 5, 0, 0, 77, 0))
    assert (pool.buffer.posted, pool.posted, pool.recycled) == (False, 0, [pool.buffer])
    pool.buffer.fail(error(constants.FI_ETRUNC))
    assert pool.posted == 0


def test_a_receive_that_a_write_used_up_is_posted_again() -> None:
    pool = Receives()
    pool.buffer.consumed()
    assert (pool.buffer.posted, pool.posted, pool.recycled) == (False, 0, [pool.buffer])
