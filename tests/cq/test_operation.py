"""The states of an operation and their possible changes are one table, which Python and C follow."""

import gc
from itertools import product
from typing import Any

import pytest

from aiofabric.cq.operation import MOVES, Operation, State
from aiofabric.cq.slots import Slot
from aiofabric.errors import InternalError
from aiofabric.memory import pin

pytestmark = pytest.mark.once


def operation(pins: Any = None) -> Operation:
    return Operation("fi_test", None, Slot(None, 0), pins, 0)


@pytest.mark.parametrize(("old", "new"), list(product(State, State)))
def test_moves_are_those_of_the_table(old: State, new: State) -> None:
    it = operation()
    it.state = old
    if new in MOVES[old]:
        it.move(new)
        assert it.state is new
    else:
        with pytest.raises(InternalError, match=f"fi_test.*{old.value}.*{new.value}"):
            it.move(new)


def test_every_path_ends_finished() -> None:
    for state in State:
        seen, ahead = set(), {state}
        while ahead:
            seen |= ahead
            ahead = {after for s in ahead for after in MOVES[s]} - seen
        assert State.FINISHED in seen
    assert MOVES[State.FINISHED] == frozenset()


def test_settling_drops_the_pins_and_tells_once() -> None:
    told: list[Operation] = []
    it = operation(pins=object())
    it.notify = told.append
    it.finish()
    assert it.pins is None
    assert told == [it]
    with pytest.raises(InternalError):
        it.finish()
    assert told == [it]


@pytest.mark.parametrize("state", State)
def test_only_who_left_leaves_an_orphan(state: State) -> None:
    """A message for a cancelled caller is kept; an error is not."""
    for error in (None, OSError()):
        it = operation(pins="pins")
        kept: list[Any] = []
        it.orphaned = lambda _, it=it, kept=kept: kept.append(it.pins)
        it.state = state
        if state is State.FINISHED:
            continue
        it.finish(error)
        left = state in (State.CANCELLING, State.ABANDONED) and error is None
        assert kept == (["pins"] if left else [])


def test_the_collector_clears_no_buffer_that_an_operation_uses() -> None:
    """Hazard: it crashes if it clears a memoryview that has an export. A process crashed so at its exit, with large
    answers of RPC under way: 30 of 72 servers over shm.
    """
    pins = [pin(memoryview(bytearray(10)))]
    it = operation(pins)
    it.post = len, (pins,)
    found = gc.get_referents(it)
    assert not any(each is pins or each is it.post for each in found)
