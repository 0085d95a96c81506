"""Operation: slot, waiter and pins of one posted transfer, and the states it may be in.

    NEW -> POSTED -> FINISHED                     the usual path
    NEW -> QUEUED -> POSTED                       no transmit credits yet
    QUEUED -> FINISHED                            cancelled or closed before it was posted
    POSTED -> CANCELLING -> FINISHED              the caller left; the provider completed it after fi_cancel
    CANCELLING -> ABANDONED -> FINISHED           no completion in time: pinned until it comes, or until close

An operation owns all memory that the provider may access, from before the posting call until it is finished. It is
registered before it is posted, because its completion may be read before the posting call returns to the caller.
The fields, and the way in which it finishes, are in _core/operations/operation.c.
"""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from .._core import Operation, learn_states
from ..errors import InternalError

__all__ = ["MOVES", "Operation", "State"]


class State(Enum):
    """The state of an operation; see the picture above."""

    NEW = "new"
    QUEUED = "queued"
    POSTED = "posted"
    CANCELLING = "cancelling"
    ABANDONED = "abandoned"
    FINISHED = "finished"


NEW, QUEUED, POSTED = State.NEW, State.QUEUED, State.POSTED
CANCELLING, ABANDONED, FINISHED = State.CANCELLING, State.ABANDONED, State.FINISHED

MOVES: dict[State, frozenset[State]] = {
    NEW: frozenset({POSTED, QUEUED, FINISHED}),
    QUEUED: frozenset({POSTED, FINISHED}),
    POSTED: frozenset({CANCELLING, FINISHED}),
    CANCELLING: frozenset({ABANDONED, FINISHED}),
    ABANDONED: frozenset({FINISHED}),
    FINISHED: frozenset(),
}


def _impossible(what: str, old: State, new: State) -> NoReturn:
    raise InternalError(f"{what}: impossible move from {old.value} to {new.value}")


learn_states(tuple(State), MOVES, _impossible)
