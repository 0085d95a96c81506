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
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from .._core import Operation, learn_states
from ..errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOVES", "Operation", "State", "report_to"]


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


def report_to(done: Callable[[BaseException | None], object] | None) -> Callable[[Operation], object]:
    """The ``notify`` of an operation that calls ``done(error)``, for calls without a task.

    Raises:
        TypeError: ``done`` is no function.
    """
    if not callable(done):
        raise TypeError(f"done must be a function of one argument, the error or None, not {done!r}")
    return partial(_report, done)


def _report(done: Callable[[BaseException | None], object], operation: Operation) -> None:
    done(operation.error)


def _impossible(what: str, old: State, new: State) -> NoReturn:
    raise InternalError(f"{what}: impossible move from {old.value} to {new.value}")


learn_states(tuple(State), MOVES, _impossible)
