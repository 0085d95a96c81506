"""What can be sent and received into, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["BufferLike", "Buffers"]


class _Array(Protocol):
    """numpy's arrays: their type hints have the buffer protocol from Python 3.12 on only."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


BufferLike: TypeAlias = "Buffer | _Array"
"""bytes, bytearray, memoryview, array, mmap, numpy arrays, and whatever else exports its memory."""

Buffers: TypeAlias = "BufferLike | Sequence[BufferLike]"
"""One buffer, or a list of them that is one message."""
