"""The parts of items that programs push or publish: checked, and shown to the other side where they are large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...arguments import check_type
from ...errors import FabricError
from ...memory import bytes_of
from ..protocol.frames import HEADER, MOST_PARTS, PART_ALIGNMENT
from .connection import INLINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .connection import PipelineConnection
    from .memory.item_pool import ItemPool

__all__ = ["SMALL", "expose", "header_of", "parts_of", "travels"]

SMALL: Final = 4096
"""Bytes up to which an item is copied, and shares a frame with others. Larger parts stay where they are."""
MOST_HEADER: Final = 1024
_ROOM: Final = 1 << 15
"""Bytes of small parts, and of descriptions, in the frame of an item that is read."""


def header_of(header: Any) -> bytes:
    """The header of an item, checked."""
    check_type("header", header, bytes, bytearray, memoryview)
    if len(header) > MOST_HEADER:
        raise ValueError(f"the header of an item has at most {MOST_HEADER} bytes, not {len(header)}")
    return bytes(header)


def parts_of(data: Any) -> list[Any]:
    """The parts of an item, checked: bytes, or views of bytes."""
    parts = list(data) if isinstance(data, (list, tuple)) else [data]
    if not 0 < len(parts) <= MOST_PARTS:
        raise ValueError(f"an item has 1 to {MOST_PARTS} parts, not {len(parts)}")
    return [part if type(part) is bytes else _bytes_of(part) for part in parts]


def _bytes_of(part: Any) -> memoryview:
    try:
        return bytes_of(part)
    except (TypeError, ValueError) as error:  # ValueError: numpy gives no buffer of times, for example
        if isinstance(part, str):
            cure = "data must be bytes-like or a list of such parts, not str: push text.encode()"
        elif _is_scattered(part):
            cure = (
                "data must be contiguous, in C's order, or a list of such parts: push numpy.ascontiguousarray(array), "
                f"or bytes(view); this {type(part).__name__} is not"
            )
        else:
            cure = f"data must be bytes-like or a list of such parts, not {type(part).__name__}: {error}"
        raise TypeError(cure) from None


def _is_scattered(part: Any) -> bool:
    try:
        with memoryview(part) as view:
            return not view.c_contiguous
    except (TypeError, ValueError):
        return False


def travels(size: int, parts: int, recv_size: int) -> bool:
    """Whether an item of ``size`` bytes travels in a message, and is not read out of its memory. A long message has two
    parts at most: with what comes before and between them it has four pieces, as many as most providers send without a
    copy.
    """
    return (size <= INLINE or parts <= 2) and HEADER.size + (8 + PART_ALIGNMENT) * parts + size <= recv_size


def expose(
    connection: PipelineConnection, parts: Sequence[Any], pool: ItemPool | None = None
) -> tuple[list[Any], list[Any]]:
    """Regions of the large parts, and the parts with descriptions in their place. Memory of the pool has other regions,
    which stay.

    Raises:
        FabricError: the host limits the memory that a process may register, for example. It says what to do.
    """
    regions: list[Any] = []
    described: list[Any] = []
    room = _ROOM - 256 * len(parts)
    try:
        for part in parts:
            if not len(part) or (len(part) <= SMALL and len(part) <= room):
                room -= len(part)
                described.append(part)
            else:
                remote = None if pool is None else pool.find(connection, part)
                if remote is None:
                    regions.append(connection.expose(part))
                    remote = regions[-1].remote
                described.append((len(part), remote.pack()))
    except BaseException as error:
        for region in regions:
            region.close()
        if isinstance(error, FabricError):
            size = sum(map(len, parts))
            error.detail = f"An item of {size} bytes cannot be registered, which lets the other side read it"
            error.cure = f"Allow this process to lock more memory (ulimit -l), or send parts of at most {INLINE} bytes"
        raise
    return regions, described
