"""RemoteRegion: the description of a peer's registered memory (man pages: fi_mr, fi_rma)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

from ._ffi import constants
from .errors import from_errno
from .flags import Access

__all__ = ["RemoteRegion"]

_RAW_BASE = 8  # bytes of the base address before a raw key


@dataclass(frozen=True, slots=True)
class RemoteRegion:
    """A peer's memory that was registered for remote access: address, key, length in bytes, and permitted access.

    ``region[4096:8192]`` is a part of it, by byte range. `pack` and `unpack` convert it to bytes for a message. ``raw``
    is empty, except with providers whose keys are longer than 64 bits (FI_MR_RAW). ``access`` is ``REMOTE_READ``,
    ``REMOTE_WRITE`` or both; None if the peer did not send it.
    """

    address: int
    key: int
    length: int
    raw: bytes = b""
    access: Access | None = None

    _PACKED = struct.Struct("!QQQ")
    _ACCESS = (None, Access.REMOTE_READ, Access.REMOTE_WRITE, Access.REMOTE_READ | Access.REMOTE_WRITE)

    def __post_init__(self) -> None:
        if (self.address | self.key | self.length) >> 64 or self.address + self.length > 1 << 64:
            raise ValueError("address, key, length and end of a RemoteRegion must be 0 to 2**64 - 1")

    def pack(self) -> bytes:
        """25 bytes to send to the peer that uses the region; more if it has a ``raw`` key."""
        access = self._ACCESS.index(self.access).to_bytes(1, "big")
        return self._PACKED.pack(self.address, self.key, self.length) + access + self.raw

    @classmethod
    def unpack(cls, packed: bytes | bytearray | memoryview) -> Self:
        """The region that `pack` described.

        Also accepts the first 24 bytes alone, three numbers in network byte order: a peer without aiofabric may send
        them.

        Raises:
            TypeError: ``packed`` is text, or another object that is no bytes.
            ValueError: the bytes are neither 25 nor those of a longer key.
        """
        try:
            packed = bytes(memoryview(packed))
        except TypeError:
            raise TypeError(f"unpack() takes the bytes that pack() returned, not {packed!r}") from None
        size = cls._PACKED.size
        access, raw = packed[size : size + 1] or b"\0", packed[size + 1 :]
        if len(packed) < size or 0 < len(raw) <= _RAW_BASE or access[0] >= len(cls._ACCESS):
            raise ValueError(f"these {len(packed)} bytes are not a packed RemoteRegion, which has {size + 1} bytes")
        address, key, length = cls._PACKED.unpack(packed[:size])
        return cls(address, key, length, raw, cls._ACCESS[access[0]])

    def _check(self, call: str, size: int, needed: Access, peer: object) -> None:
        """Raise unless ``call`` may access ``size`` bytes from the start of the region.

        Raises:
            IndexError: the region has fewer bytes.
            RemoteAccessError: the owner did not register the region for this access.
        """
        if size > self.length:
            raise IndexError(f"{size} bytes do not fit a remote region of {self.length} bytes")
        if self.access is not None and int(needed) & ~int(self.access):
            detail = f"The peer registered the region for {self.access}, but this needs {needed}; nothing was sent"
            error = from_errno(constants.FI_EACCES, call, peer=peer, detail=detail)
            error.cure = f"Let the peer register the memory with access=Access.{needed.name}"
            raise error

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: slice) -> RemoteRegion:
        """A part, by byte range. Unlike with a sequence, a range that is not inside the region raises `IndexError`."""
        if not isinstance(index, slice):
            raise TypeError("a RemoteRegion is sliced by byte range, region[start:stop]")
        if index.step not in (None, 1):
            raise ValueError("a RemoteRegion slice has no step")
        start = 0 if index.start is None else index.start
        stop = self.length if index.stop is None else index.stop
        if not 0 <= start <= stop <= self.length:
            raise IndexError(f"bytes {start}:{stop} are outside a remote region of {self.length} bytes")
        return RemoteRegion(self.address + start, self.key, stop - start, self.raw, self.access)


# In a dataclass with slots, a class attribute without annotation is not a field; _PACKED relies on it.
