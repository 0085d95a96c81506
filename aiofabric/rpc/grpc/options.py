"""Channel arguments: checked as gRPC does, and translated where the runtime has something like them.

docs/howto/grpc-aio.md has the table of what is translated, and what is ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..protocol.connection import DEFAULT_LIMITS, Limits

__all__ = ["checked", "compressions", "limits_of", "number"]

_UNLIMITED = (1 << 31) - 1

_ALL = 0b111  # identity, deflate, gzip
_COMPRESSIONS = {"deflate": 1, "gzip": 2}


def checked(options: Any) -> dict[str, Any]:
    """The options by name. Raises TypeError or ValueError for what is not a sequence of pairs of a name and a value."""
    if isinstance(options, str | bytes | dict):
        raise TypeError(f"Options must be a sequence of pairs of a name and a value, not {options!r}")
    found: dict[str, Any] = {}
    for option in options or ():
        try:
            name, value = option
        except (TypeError, ValueError):
            raise ValueError(f"An option must be a pair of a name and a value, not {option!r}") from None
        if isinstance(name, bytes):
            name = name.decode()
        if not isinstance(name, str):
            raise TypeError(f"The name of an option must be str or bytes, not {name!r}")
        if not isinstance(value, int | str | bytes | tuple) and not hasattr(value, "__int__"):
            raise TypeError(f"The value of the option {name!r} must be int, str or bytes, not {value!r}")
        found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def number(options: dict[str, Any], name: str, default: int | None = None) -> int | None:
    """An option that must be an integer."""
    value = options.get(name, default)
    if value is not None and not isinstance(value, int):
        raise TypeError(f"The option {name!r} must be an integer, not {value!r}")
    return value


def compressions(options: dict[str, Any]) -> frozenset[str]:
    """The compressions that a server accepts calls with. (Nothing is compressed.)"""
    bits = number(options, "grpc.compression_enabled_algorithms_bitset", _ALL)
    assert bits is not None
    return frozenset(name for name, bit in _COMPRESSIONS.items() if bits >> bit & 1)


def limits_of(options: dict[str, Any]) -> Limits:
    """The limits of a channel or of a server."""
    changes: dict[str, Any] = {}
    for name, field in (
        ("grpc.max_receive_message_length", "max_message"),
        ("grpc.max_metadata_size", "max_metadata"),
        ("grpc.max_concurrent_streams", "max_calls"),
    ):
        value = number(options, name)
        if value is not None:
            changes[field] = value if value >= 0 else _UNLIMITED
    return replace(DEFAULT_LIMITS, **changes) if changes else DEFAULT_LIMITS
