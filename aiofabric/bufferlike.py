"""Types of buffers to send from and to receive into, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["BufferLike", "Buffers", "DeviceArray"]


class _Array(Protocol):
    """numpy's arrays: before Python 3.12, type hints of numpy do not have the buffer protocol."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...


class _DlpackArray(Protocol):
    @property
    def __dlpack__(self) -> Any: ...


BufferLike: TypeAlias = "Buffer | _Array"
"""bytes, bytearray, memoryview, array, mmap, numpy arrays, and other objects that export their memory."""

Buffers: TypeAlias = "BufferLike | Sequence[BufferLike]"
"""One buffer, or a list of buffers that form one message."""

DeviceArray: TypeAlias = "_CudaArray | _DlpackArray"
"""An array that has DLPack or CUDA's array interface, and need not be in host memory: cupy, torch, jax and others."""
