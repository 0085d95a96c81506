"""Messages as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["serialized"]


def serialized(message: Any, serializer: Callable[[Any], bytes] | None) -> bytes:
    """The bytes of a message."""
    if isinstance(message, str):
        message = message.encode()
    data = message if serializer is None else serializer(message)
    if not isinstance(data, bytes):
        raise TypeError(f"A message must be bytes when it is sent, not {type(data).__name__}: give a serializer")
    return data
