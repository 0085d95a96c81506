"""Operation: slot, waiter and pins of one posted transfer, and the states it may be in.

    NEW -> POSTED -> SETTLED                      the ordinary life
    NEW -> QUEUED -> POSTED                       no transmit room yet
    QUEUED -> SETTLED                             cancelled or closed before it was ever posted
    POSTED -> CANCELLING -> SETTLED               the caller left, the provider was asked, and answered
    CANCELLING -> ABANDONED -> SETTLED            it did not answer in time: pinned until it does, or until close

An operation owns whatever the provider may touch, from before the posting call until it is settled: it is
registered first and posted second, because a completion may be read before the posting call's caller goes on.
What it is made of, and how it settles, is in _core/operation.c.
"""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from .._core import Operation, learn_states
from ..errors import InternalError

__all__ = ["MOVES", "Operation", "State"]


class State(Enum):
    """Where an operation is in its life; see the picture above."""

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
