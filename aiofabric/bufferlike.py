"""Types of buffers to send from and to receive into, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["BufferLike", "Buffers"]


class _Array(Protocol):
    """numpy's arrays: before Python 3.12, type hints of numpy do not have the buffer protocol."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


BufferLike: TypeAlias = "Buffer | _Array"
"""bytes, bytearray, memoryview, array, mmap, numpy arrays, and other objects that export their memory."""

Buffers: TypeAlias = "BufferLike | Sequence[BufferLike]"
"""One buffer, or a list of buffers that form one message."""
