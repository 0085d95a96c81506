"""What travels when data is checked (-c): both sides know what the n-th message holds."""

from __future__ import annotations

from itertools import count
from string import ascii_lowercase, ascii_uppercase, digits

__all__ = ["FINISH", "CorruptMessageError", "Pattern"]

FINISH = b"fin\0"  # the last message of either side
_CYCLE = (digits + ascii_lowercase + ascii_uppercase).encode()
_STEP = 7  # by so much further on in the cycle each message begins


class CorruptMessageError(ValueError):
    """A message did not hold what its number says."""


class Pattern:
    """The contents of one direction's messages, one after the other.

    Args:
        largest: bytes of the longest message that will be asked for.
    """

    def __init__(self, largest: int) -> None:
        self._text = memoryview(_CYCLE * (largest // len(_CYCLE) + 2))
        self._numbers = count()

    def next(self, size: int) -> memoryview:
        """The next message, ``size`` bytes."""
        start = next(self._numbers) * _STEP % len(_CYCLE)
        return self._text[start : start + size]

    def check(self, message: memoryview, number: int) -> None:
        """Compare a received message with the next one.

        Raises:
            CorruptMessageError: they differ.
        """
        expected = self.next(len(message))
        if message == expected:
            return
        at = next(i for i, (a, b) in enumerate(zip(message, expected, strict=True)) if a != b)
        raise CorruptMessageError(
            f"message {number} of {len(message)} bytes is not what was to come: byte {at} is "
            f"{message[at : at + 1].tobytes()!r} instead of {expected[at : at + 1].tobytes()!r}"
        )
