"""How data is cut and laid out for each collective call, and when a group is closed: the calls are only recorded."""

# Privates: the group's own calls are replaced; a handle without libfabric gets the events of its join.

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import AtomicOp, Datatype
from aiofabric._ffi import ffi
from aiofabric.cm.events import JOIN_COMPLETE
from aiofabric.flags import CollectiveOp
from aiofabric.transport.connectionless.collective import Group, _pieces
from aiofabric.transport.connectionless.group_handle import GroupHandle
from tests.cq.manual import ManualDriver, done
from tests.fixtures.methods import methods_of

pytestmark = pytest.mark.once

MOST = 8192  # bytes of one call


class Recorded(Group):
    """A group of some members; each call is recorded, and its result is what the test sets."""

    def __init__(self, members: int, rank: int = 0) -> None:
        self.members = (None,) * members  # type: ignore[assignment]
        self.rank = rank
        self.asked: list[Any] = []
        self.calls: list[tuple[str, Any, Any]] = []
        self.at_call: Any = lambda arguments: None

    def _ask(self, kind: CollectiveOp, op: AtomicOp = AtomicOp.NOOP, datatype: Datatype = Datatype.VOID) -> None:
        self.asked.append((kind, op, datatype))

    async def _run(self, call: str, arguments: Any, tail: Any, pins: Any) -> None:
        self.calls.append((call, arguments, tail))
        self.at_call(arguments)


def data(pointer: Any, size: int) -> bytes:
    return bytes(ffi.buffer(ffi.cast("char *", pointer), size))


@pytest.mark.parametrize(
    ("count", "most", "pieces"),
    [(0, 4, []), (1, 4, [(0, 1)]), (4, 4, [(0, 4)]), (5, 4, [(0, 4), (4, 5)]), (8, 4, [(0, 4), (4, 8)])],
)
def test_pieces_have_at_most_their_size(count: int, most: int, pieces: list[tuple[int, int]]) -> None:
    assert list(_pieces(count, most)) == pieces


# -- one call for all


def test_a_barrier_has_no_data() -> None:
    group = Recorded(3)
    done(group.barrier())
    assert group.calls == [("fi_barrier", (), ())]
    assert group.asked[0][0] == CollectiveOp.BARRIER


@pytest.mark.parametrize(
    ("size", "members", "moved"), [(9, 3, [9]), (10, 3, [12]), (1, 4, [4]), (MOST + 1, 2, [MOST, 2])]
)
def test_a_broadcast_moves_whole_shares(size: int, members: int, moved: list[int]) -> None:
    """libfabric's broadcast goes beyond the end of other lengths."""
    group = Recorded(members)
    sent = bytes(range(256)) * 40
    seen: list[bytes] = []
    group.at_call = lambda arguments: seen.append(data(arguments[0], arguments[1]))
    done(group.broadcast(sent[:size], root=0))
    assert [arguments[1] for _, arguments, _ in group.calls] == moved
    assert seen[0][: min(size, MOST)] == sent[: min(size, MOST)]
    assert all(tail == (0, Datatype.UINT8, 0) for _, _, tail in group.calls)


def test_a_broadcast_fills_the_buffers_of_the_others() -> None:
    group = Recorded(3, rank=1)
    memory = bytearray(b"..........")
    group.at_call = lambda arguments: ffi.memmove(arguments[0], b"0123456789AB", 12)
    done(group.broadcast(memory, root=0))
    assert memory == b"0123456789"
    root = Recorded(3, rank=0)
    root.at_call = group.at_call
    done(root.broadcast(memory := bytearray(b".........."), root=0))
    assert memory == b".........."  # the root's own is only read


def test_an_allreduce_is_cut_between_elements() -> None:
    group = Recorded(2)
    count = MOST // 8 + 3
    value = array("q", range(count))
    found = done(group.allreduce(AtomicOp.SUM, value))
    assert [arguments[1] for _, arguments, _ in group.calls] == [MOST // 8, 3]
    (_, first, tail), (_, second, _) = group.calls
    assert tail == (Datatype.INT64, AtomicOp.SUM, 0)
    for side in (0, 3):
        start, end = (int(ffi.cast("uintptr_t", each[side])) for each in (first, second))
        assert end - start == MOST
    assert data(second[0], 24) == array("q", range(count - 3, count)).tobytes()
    assert len(found) == count
    assert group.asked == [(CollectiveOp.ALLREDUCE, AtomicOp.SUM, Datatype.INT64)]


@pytest.mark.parametrize("size", [5, MOST, MOST + 3])
def test_an_allgather_is_laid_out_by_rank(size: int) -> None:
    group = Recorded(3)

    def gather(arguments: Any) -> None:
        """Each member's bytes are its rank."""
        width = arguments[1]
        ffi.memmove(arguments[3], b"".join(bytes([rank]) * width for rank in range(3)), 3 * width)

    group.at_call = gather
    found = bytes(memoryview(done(group.allgather(bytearray(size)))).cast("B"))
    assert found == b"".join(bytes([rank]) * size for rank in range(3))
    assert [arguments[1] for _, arguments, _ in group.calls] == ([size] if size <= MOST else [MOST, 3])


# -- calls with a root


@pytest.mark.parametrize("root", [-1, 3])
def test_a_root_is_a_rank(root: int) -> None:
    group = Recorded(3)
    for call in (
        group.broadcast(bytearray(3), root=root),
        group.scatter(bytearray(9), root=root, result=bytearray(3)),
        group.gather(bytearray(3), root=root),
        group.reduce(AtomicOp.SUM, array("i", [1]), root=root),
    ):
        with pytest.raises(ValueError, match="root must be a rank, 0 to 2"):
            done(call)
    assert not group.calls
    done(group.gather(bytearray(3), root=2))
    done(group.gather(bytearray(3), root=0))


@pytest.mark.parametrize("size", [5, MOST // 3, MOST // 3 + 2])
def test_a_scatter_sends_each_member_its_share(size: int) -> None:
    group = Recorded(3)
    whole = b"".join(bytes([65 + rank]) * size for rank in range(3))
    seen: list[bytes] = []
    group.at_call = lambda arguments: seen.append(data(arguments[0], 3 * arguments[1]))
    result = bytearray(size)
    assert done(group.scatter(whole, root=0, result=result)) is result
    widths = [arguments[1] for _, arguments, _ in group.calls]
    assert widths == ([size] if size <= MOST // 3 else [MOST // 3, 2])
    assert seen == [b"".join(bytes([65 + rank]) * width for rank in range(3)) for width in widths]
    starts = [int(ffi.cast("uintptr_t", arguments[3])) for _, arguments, _ in group.calls]
    assert [start - starts[0] for start in starts] == [0, MOST // 3][: len(starts)]


def test_the_others_of_a_scatter_send_nothing() -> None:
    group = Recorded(3, rank=1)
    done(group.scatter(None, root=0, result=bytearray(5)))
    ((_, arguments, tail),) = group.calls
    assert (arguments[0], arguments[1], tail) == (ffi.NULL, 5, (0, Datatype.UINT8, 0))


@pytest.mark.parametrize("size", [14, 16])
def test_a_scatter_of_other_lengths_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"value has {size} bytes, but 3 shares have 5 bytes each"):
        done(Recorded(3).scatter(bytes(size), root=0, result=bytearray(5)))


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_root_has_a_result(rank: int) -> None:
    group = Recorded(3, rank=rank)
    gathered = done(group.gather(array("i", [1, 2]), root=1))
    reduced = done(group.reduce(AtomicOp.SUM, array("i", [1, 2]), root=1))
    assert (gathered is None, reduced is None) == (rank == 0, rank == 0)
    if rank == 1:
        assert (len(gathered), len(reduced)) == (6, 2)
    (_, gather, tail), (_, reduce, other) = group.calls
    assert (gather[1], reduce[1]) == (2, 2)
    assert (gather[3] == ffi.NULL, reduce[3] == ffi.NULL) == (rank == 0, rank == 0)
    assert (tail, other) == ((1, Datatype.INT32, 0), (1, Datatype.INT32, AtomicOp.SUM, 0))


# -- equal shares


def test_shares_are_counted_in_elements() -> None:
    group = Recorded(3)
    done(group.alltoall(array("i", range(6))))
    room = array("i", [0, 0])
    done(group.reduce_scatter(AtomicOp.SUM, array("i", range(6)), result=room))
    (_, exchanged, tail), (_, reduced, other) = group.calls
    assert (exchanged[1], reduced[1]) == (2, 6)
    assert (tail, other) == ((Datatype.INT32, 0), (Datatype.INT32, AtomicOp.SUM, 0))


@pytest.mark.parametrize("count", [2, 4, 7])
def test_elements_that_give_no_equal_shares_are_refused(count: int) -> None:
    group = Recorded(3)
    with pytest.raises(ValueError, match=f"{count} elements cannot be divided into 3 equal shares"):
        done(group.alltoall(array("i", range(count))))
    assert not group.calls


# -- the life of a group


@methods_of(GroupHandle, "event", "event_error", "wait_failed", "busy", "finished", "leave", "poll", "_joined")
class Handle:
    """The state of a group's handle."""

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.joining = True
        self.left = False
        self.error: Any = None
        self.waiter: Any = self.driver.create_waiter()
        self.submissions = SimpleNamespace(posted=[], waiting=[])
        self.endpoint = SimpleNamespace(source=SimpleNamespace(polled={self: None}))
        self.closes = 0

    def close(self) -> None:
        self.closes += 1

    @property
    def polled(self) -> bool:
        return self in self.endpoint.source.polled


@pytest.fixture
def handle() -> Any:
    return Handle()


def test_a_group_is_joined_with_its_event(handle: Any) -> None:
    handle.event(SimpleNamespace(kind=JOIN_COMPLETE + 1))
    assert (handle.joining, handle.waiter.done(), handle.polled) == (True, False, True)
    handle.event(SimpleNamespace(kind=JOIN_COMPLETE))
    assert (handle.joining, handle.waiter.done(), handle.polled, handle.error) == (False, True, False, None)
    handle.event(SimpleNamespace(kind=JOIN_COMPLETE))  # once more


def test_a_join_that_fails_has_its_error(handle: Any) -> None:
    handle.event_error(SimpleNamespace(errno=5, text="why"))
    assert (handle.joining, handle.waiter.done(), handle.polled) == (False, True, False)
    assert "why" in str(handle.error)


def test_a_join_whose_events_cannot_be_awaited_ends_once(handle: Any) -> None:
    error = OSError("no events")
    assert handle.wait_failed(error) == 1
    assert (handle.error, handle.waiter.done(), handle.joining) == (error, True, True)
    assert handle.wait_failed(error) == 0
    handle.waiter = None
    assert handle.wait_failed(error) == 0


@pytest.mark.parametrize("work", ["posted", "waiting"])
def test_a_group_that_was_left_closes_after_its_last_operation(work: str, handle: Any) -> None:
    handle.event(SimpleNamespace(kind=JOIN_COMPLETE))
    getattr(handle.submissions, work).append("operation")
    handle.endpoint.source.polled[handle] = None
    handle.leave()
    assert (handle.busy, handle.closes, handle.polled) == (True, 0, True)
    handle.finished()
    assert handle.closes == 0
    getattr(handle.submissions, work).clear()
    handle.finished()
    assert (handle.closes, handle.polled) == (1, False)


def test_a_group_that_works_for_nothing_closes_at_once(handle: Any) -> None:
    handle.leave()
    assert handle.closes == 0  # it is still joining
    handle.event(SimpleNamespace(kind=JOIN_COMPLETE))
    assert handle.closes == 1
    idle: Any = Handle()
    idle.joining = False
    idle.leave()
    assert idle.closes == 1


def test_a_group_that_stays_is_polled_while_it_works(handle: Any) -> None:
    handle.joining = False
    handle.finished()
    assert (handle.closes, handle.polled, handle.poll()) == (0, False, 0)


def test_a_group_that_was_left_takes_no_operation() -> None:
    handle = SimpleNamespace(
        endpoint=SimpleNamespace(check_usable=lambda call: None), check_open=lambda: None, left=False, closed=False
    )
    group: Any = SimpleNamespace(_handle=handle)
    is_closed: Any = Group.closed
    Group._check_member(group)
    assert not is_closed.fget(group)
    handle.left = True
    with pytest.raises(ClosedResourceError, match="was left"):
        Group._check_member(group)
    assert is_closed.fget(group)
    handle.left, handle.closed = False, True
    assert is_closed.fget(group)
