"""Buffers on their way to the provider: scatter-gather lists and local descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._ffi import ffi
from ..memory import pin

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["gather", "local_descriptor"]


def gather(buffers: Sequence[Any], limit: int) -> tuple[Any, Any, int]:
    """Pin ``buffers`` as one message: (pins, iov, count), or (joined buffer, None, 1).

    A provider carries few pieces (tcp 4): of a longer list the tail is joined, which copies it.
    """
    if len(buffers) == 0:
        return b"", None, 1
    if limit < 2 or len(buffers) == 1:
        return (buffers[0] if len(buffers) == 1 else _join(buffers)), None, 1
    if len(buffers) > limit:
        buffers = [*buffers[: limit - 1], _join(buffers[limit - 1 :])]
    pins = [pin(buffer) for buffer in buffers]
    iov = ffi.new("struct iovec[]", [(p, len(p)) for p in pins])
    return pins, iov, len(pins)


def _join(buffers: Sequence[Any]) -> bytes:
    return b"".join(ffi.buffer(pin(buffer)) for buffer in buffers)


def local_descriptor(endpoint: Any, pins: Any) -> Any:
    """The registration that local memory needs where the provider says FI_MR_LOCAL; NULL elsewhere."""
    return ffi.NULL
