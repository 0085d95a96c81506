"""Stale numbers: entries for removed peers in the memory of an endpoint over shm.

An endpoint of libfabric 2.5 has a table of its peers. Each entry has the number by which that peer knows the endpoint.
The peer itself clears it when it closes. It cannot clear it if it was killed, or if it closed before this endpoint read
its name. ``fi_av_remove`` unmaps the peer's memory and leaves the number. So when the entry is used for a new peer, a
send to that one takes it for connected, and accesses memory that was never mapped.

So after each ``fi_av_remove``, the numbers are cleared whose peers have no memory mapped here.
"""

from __future__ import annotations

import logging
import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from ..._ffi import ffi

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..._ffi import CData

__all__ = ["clear"]

_log = logging.getLogger(__name__)

# Of SMR_VERSION 10 (2.5.1 and later): the offset of the offsets of the parts, and which parts are the table and the end
# of it.
_VERSION, _PARTS, _TABLE, _BEHIND = 10, 128, 5, 6
_PEERS = 256
# struct smr_peer_data: the number, and where this process has mapped the peer's memory. Its size depends on the build.
_NUMBER, _NAME_SENT, _MAPPED = 0, 12, 16
_SIZES = (64, 128)


def clear(paths: Iterable[Path]) -> None:
    """Clear the stale numbers of endpoints of this process, whose memory has these files."""
    mapped = _mapped()  # now: this function's own mapping may come to where the removed peer's was
    for path in paths:
        try:
            with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory, ffi.from_buffer(memory) as start:
                _clear(start, mapped)
        except (OSError, ValueError) as error:
            _log.info("%s cannot be examined: %s", path, error)


def _clear(start: CData, mapped: set[int]) -> None:
    if ffi.cast("uint8_t *", start)[0] != _VERSION:
        return
    parts = ffi.cast("int64_t *", start + _PARTS)
    size = (parts[_BEHIND] - parts[_TABLE]) // _PEERS
    if size not in _SIZES:
        return
    entries = [start + parts[_TABLE] + size * place for place in range(_PEERS)]
    for entry in entries:
        if ffi.cast("int64_t *", entry + _NUMBER)[0] < 0:
            continue
        where = ffi.cast("uintptr_t *", entry + _MAPPED)
        if where[0] and where[0] not in mapped:
            ffi.cast("int64_t *", entry + _NUMBER)[0] = -1
            ffi.cast("uint16_t *", entry + _NAME_SENT)[0] = 0
            where[0] = 0


def _mapped() -> set[int]:
    """The addresses at which this process has files of shared memory mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {int(line.partition("-")[0], 16) for line in lines if "/dev/shm/" in line}
