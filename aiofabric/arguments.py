"""Checks of what a program passes: a wrong argument is named before anything inside fails on it."""

from __future__ import annotations

from typing import Any

__all__ = ["check_count", "check_number", "check_type"]


def check_type(name: str, value: object, *kinds: type) -> None:
    """Raise TypeError unless the argument ``name`` is of one of these types."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be of type {wanted}, not {value!r:.100}")


def check_number(name: str, value: Any, bits: int) -> None:
    """Raise TypeError or ValueError unless the argument ``name`` is a number of at most ``bits`` bits, 0 or more."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be a number, not {value!r:.100}")
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} must be 0 to 2**{bits} - 1, not {value}")


def check_count(name: str, value: Any, bits: int) -> None:
    """The same for a number that is 1 or more; True and False are none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r:.100}")
    if not 1 <= value < 1 << bits:
        raise ValueError(f"{name} must be 1 to 2**{bits} - 1, not {value}")
