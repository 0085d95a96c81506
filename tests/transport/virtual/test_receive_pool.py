"""One receive of a shared pool: where it goes after its message, its failure, or a write that used it up."""

# The pool records what it is given.

from typing import Any

import pytest

from aiofabric._ffi import constants
from aiofabric.cq.queue import ErrorEntry
from aiofabric.transport.virtual.receive_pools import SharedBuffer

pytestmark = pytest.mark.once


class Receives:
    """A pool whose one receive is posted."""

    def __init__(self, *, closed: bool = False) -> None:
        self.multiplexer = self
        self.closed = closed
        self.posted = 1
        self.connections: dict[int, Any] = {}
        self.recycled: list[SharedBuffer] = []
        self.idle: list[SharedBuffer] = []
        self.recycle = self.recycled.append
        self.withdrawn = self.idle.append
        double: Any = self
        self.buffer = SharedBuffer(double, memoryview(bytearray(8)), None, ())
        self.buffer.posted = True


def error(code: int) -> ErrorEntry:
    return ErrorEntry(0, 0, 0, 0, 0, code, 0, "", constants.FI_ADDR_NOTAVAIL)


@pytest.mark.parametrize(
    ("code", "closed", "recycled", "idle"),
    [
        (constants.FI_ETRUNC, False, 1, 0),
        (constants.FI_ECANCELED, False, 0, 1),
        (constants.FI_ECANCELED, True, 0, 0),
    ],
    ids=["message too long", "withdrawn", "flushed by the close"],
)
def test_a_receive_that_failed_is_no_longer_posted(code: int, closed: bool, recycled: int, idle: int) -> None:
    pool = Receives(closed=closed)
    pool.buffer.fail(error(code))
    assert (pool.buffer.posted, pool.posted) == (False, 0)
    assert (len(pool.recycled), len(pool.idle)) == (recycled, idle)


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
