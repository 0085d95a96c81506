"""Operation: slot, waiter and pins of one posted transfer, and the states it may be in.

    NEW -> POSTED -> SETTLED                      the ordinary life
    NEW -> PARKED -> POSTED                       no transmit room yet
    PARKED -> SETTLED                             cancelled or closed before it was ever posted
    POSTED -> CANCELLING -> SETTLED               the caller left, the provider was asked, and answered
    CANCELLING -> ABANDONED -> SETTLED            it did not answer in time: pinned until it does, or until close

An operation owns whatever the provider may touch, from before the posting call until it is settled: it is
registered first and posted second, because a completion may be read before the posting call's caller goes on.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from ..errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..regions import Held
    from .slots import Slot

__all__ = ["MOVES", "Operation", "State"]


class State(Enum):
    """Where an operation is in its life; see the picture above."""

    NEW = "new"
    PARKED = "parked"
    POSTED = "posted"
    CANCELLING = "cancelling"
    ABANDONED = "abandoned"
    SETTLED = "settled"

    __hash__ = object.__hash__  # Enum's own is a Python function: 0.5 us of every operation


NEW, PARKED, POSTED = State.NEW, State.PARKED, State.POSTED
CANCELLING, ABANDONED, SETTLED = State.CANCELLING, State.ABANDONED, State.SETTLED

MOVES: dict[State, frozenset[State]] = {
    NEW: frozenset({POSTED, PARKED, SETTLED}),
    PARKED: frozenset({POSTED, SETTLED}),
    POSTED: frozenset({CANCELLING, SETTLED}),
    CANCELLING: frozenset({ABANDONED, SETTLED}),
    ABANDONED: frozenset({SETTLED}),
    SETTLED: frozenset(),
}


class Operation:
    """One transfer. ``notify`` is called once, when it is settled.

    ``pins`` keeps buffers exported until then, ``held`` the registrations that its descriptors and keys are of.
    """

    __slots__ = (
        "data", "error", "flags", "held", "length", "notify", "orphaned", "owner", "pins", "post", "slot", "source",
        "state", "tag", "what",
    )  # fmt: skip

    def __init__(self, what: str, owner: Any, slot: Slot, pins: Any, length: int, held: Sequence[Held] = ()) -> None:
        self.what = what
        self.owner = owner
        self.slot = slot
        self.pins = pins
        self.held = held
        self.length = length  # of a send the caller's, of a receive the provider's: tcp reports 0 for sends
        self.state = NEW
        self.error: BaseException | None = None
        self.notify: Callable[[Operation], None] | None = None
        self.orphaned: Callable[[Operation], None] | None = None  # called instead when the caller has left
        self.post: tuple[Callable[..., int], tuple[Any, ...]] | None = None  # function and arguments, while unposted
        self.flags = self.data = self.tag = 0
        self.source: int | None = None

    def move(self, state: State) -> None:
        """Change state; an impossible move is a defect of ours and says so."""
        if state not in MOVES[self.state]:
            raise InternalError(f"{self.what}: impossible move from {self.state.value} to {state.value}")
        self.state = state

    def settle(self, error: BaseException | None = None) -> None:
        """Give the operation its answer: drop the pins, then tell whoever waits."""
        left = self.state is CANCELLING or self.state is ABANDONED
        self.move(SETTLED)
        self.error = self.error or error  # the caller may have been answered before the provider did
        self.post = None
        if left and error is None and self.orphaned is not None:
            self.orphaned(self)
        self.pins = None
        if self.held:
            self.let_go()
        notify = self.notify
        if notify is not None:
            self.notify = None
            notify(self)

    def let_go(self) -> None:
        """The provider has nothing of the operation any more: give back what it held."""
        held, self.held = self.held, ()
        for each in held:
            each.unuse()

    def result(self) -> Operation:
        """The settled operation itself, or its error raised."""
        if self.error is not None:
            raise self.error
        return self
