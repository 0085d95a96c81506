"""The contents of messages when data is checked (-c): both sides can compute the n-th message."""

from __future__ import annotations

from itertools import count
from string import ascii_lowercase, ascii_uppercase, digits

__all__ = ["FINISH", "CorruptMessageError", "Pattern"]

FINISH = b"fin\0"  # the last message of either side
_CYCLE = (digits + ascii_lowercase + ascii_uppercase).encode()
_STEP = 7  # each message begins that many characters later in the cycle


class CorruptMessageError(ValueError):
    """A message had other contents than expected."""


class Pattern:
    """The contents of the messages of one direction, in order.

    Args:
        largest: bytes of the longest message.
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
            f"message {number} of {len(message)} bytes has unexpected contents: byte {at} is "
            f"{message[at : at + 1].tobytes()!r} instead of {expected[at : at + 1].tobytes()!r}"
        )
