"""Policies: which connection a call takes. `PickFirst` and `RoundRobin` are gRPC's; a program can define its own.

A policy gets the subchannels of its channel, and decides which of them connect. It must not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .subchannel import Connectivity, Subchannel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["POLICIES", "PickFirst", "Policy", "RoundRobin"]


class Policy(Protocol):
    """A load balancing policy."""

    def update(self, subchannels: Sequence[Subchannel]) -> None:
        """The addresses have changed."""

    def connect(self) -> None:
        """A call waits, or the program wants a connection."""

    def changed(self) -> None:
        """The state of a subchannel has changed."""

    @property
    def state(self) -> Connectivity:
        """The state of the channel."""

    def pick(self, method: str) -> Subchannel | None:
        """A READY subchannel for a call of ``method``; None if there is none now."""


class PickFirst:
    """The first address that accepts a connection; it takes all calls."""

    def __init__(self) -> None:
        self._subchannels: Sequence[Subchannel] = ()
        self.chosen: Subchannel | None = None
        """The subchannel that takes all calls."""
        self._wanted = False
        self.state = Connectivity.IDLE

    def update(self, subchannels: Sequence[Subchannel]) -> None:
        self._subchannels = subchannels
        if self.chosen not in subchannels:
            self.chosen = None
        self.changed()

    def connect(self) -> None:
        if self.chosen is None:
            self._wanted = True
            self.changed()

    def changed(self) -> None:
        chosen = self.chosen
        if chosen is not None:
            if chosen.state is Connectivity.READY:
                return
            self.chosen = None
            self.state = Connectivity.IDLE
        for subchannel in self._subchannels:
            if subchannel.state is Connectivity.READY:
                self.chosen = subchannel
                self._wanted = False
                self.state = Connectivity.READY
                return
        if self._wanted and self._subchannels:
            self._try_next()

    def _try_next(self) -> None:
        states = [each.state for each in self._subchannels]
        if Connectivity.CONNECTING not in states:
            for each in self._subchannels:
                if each.state is Connectivity.IDLE:
                    each.connect()
                    break
        if all(each.state is Connectivity.TRANSIENT_FAILURE for each in self._subchannels):
            self.state = Connectivity.TRANSIENT_FAILURE
        elif self.state is not Connectivity.TRANSIENT_FAILURE:  # it stays until an attempt succeeds
            self.state = Connectivity.CONNECTING

    def pick(self, method: str) -> Subchannel | None:
        return self.chosen


class RoundRobin:
    """Connections to all addresses, which take the calls in turn."""

    def __init__(self) -> None:
        self._subchannels: Sequence[Subchannel] = ()
        self._ready: list[Subchannel] = []
        self._turn = 0
        self._wanted = False
        self.state = Connectivity.IDLE

    def update(self, subchannels: Sequence[Subchannel]) -> None:
        self._subchannels = subchannels
        self.changed()

    def connect(self) -> None:
        self._wanted = True
        self.changed()

    def changed(self) -> None:
        self._ready = [each for each in self._subchannels if each.state is Connectivity.READY]
        if self._wanted:
            for each in self._subchannels:
                each.connect()
        states = {each.state for each in self._subchannels}
        if self._ready:
            self.state = Connectivity.READY
        elif self._wanted and states and states <= {Connectivity.TRANSIENT_FAILURE}:
            self.state = Connectivity.TRANSIENT_FAILURE
        elif self._wanted and self.state is not Connectivity.TRANSIENT_FAILURE:
            self.state = Connectivity.CONNECTING

    def pick(self, method: str) -> Subchannel | None:
        ready = self._ready
        if not ready:
            return None
        self._turn = (self._turn + 1) % len(ready)
        return ready[self._turn]


POLICIES: dict[str, Callable[[], Policy]] = {"pick_first": PickFirst, "round_robin": RoundRobin}
