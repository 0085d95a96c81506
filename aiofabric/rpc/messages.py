"""Messages and method names of programs, checked before they reach the protocol."""

from __future__ import annotations

from typing import Any

__all__ = ["message_bytes", "method_name"]


def message_bytes(message: Any) -> bytes:
    """The bytes of a message; TypeError if it is no buffer."""
    if type(message) is bytes:
        return message
    try:
        return bytes(memoryview(message))
    except TypeError:
        raise TypeError(f"A message must be bytes, or another buffer, not {type(message).__name__}") from None


def method_name(method: Any) -> str:
    """The name of a method; TypeError if it is not a str."""
    if not isinstance(method, str):
        raise TypeError(f"The name of a method must be a str such as '/service/method', not {method!r}")
    return method
