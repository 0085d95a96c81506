"""Undelivered messages: messages that cancelled receives still got, kept for the next receive that they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..._ffi import constants
from ...address_vector import Peer

if TYPE_CHECKING:
    from ..._core import Message
    from ...cq.operation import Operation

__all__ = ["UndeliveredMessage", "asked_for"]

_ANYBODY = constants.FI_ADDR_UNSPEC


class UndeliveredMessage(NamedTuple):
    """A message, with the number of its source, and its tag if it had one."""

    message: Message
    source: int | None
    tag: int | None

    def fits(self, where: tuple[Any, ...]) -> bool:
        """Whether a receive would take it. ``where`` is the source, and for tagged ones also the tag and the ignored
        bits."""
        if where[0] != _ANYBODY and (where[0] != self.source or self._is_removed()):
            return False
        if self.tag is None or len(where) == 1:
            return self.tag is None and len(where) == 1
        return not (self.tag ^ where[1]) & ~where[2]

    def _is_removed(self) -> bool:
        """Whether its sender was removed as a peer: another peer may have the number by now."""
        source = self.message.source
        return isinstance(source, Peer) and source.vector is None

    def fits_receive(self, receive: Operation) -> bool:
        """Whether a posted receive would take it; peeks and receives of claims take no other message."""
        return receive.what != "fi_trecvmsg" and self.fits(asked_for(receive))


def asked_for(receive: Operation) -> tuple[Any, ...]:
    """The source that a receive asks for, and for tagged ones also the tag and the ignored bits."""
    if receive.post is None:  # posted from C
        return (_ANYBODY, receive.wanted_tag, 0) if receive.tagged else (_ANYBODY,)
    args = receive.post[1]
    if receive.what == "fi_trecvmsg":
        return args[1].addr, args[1].tag, args[1].ignore
    asked: tuple[Any, ...] = args[4:-1]  # the arguments after endpoint, buffer, length and descriptor
    return asked
