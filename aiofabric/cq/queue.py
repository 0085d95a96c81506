"""CompletionQueue: reading what finished (man page: fi_cq)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from .._ffi import constants, ffi, lib
from ..errors import check
from ..features import Quirk, quirks
from ..resource import Handle, Resource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..domain import Domain

__all__ = ["CompletionQueue", "Entry", "ErrorEntry"]

Entry = tuple[int, ...]
"""A completion as the queue wrote it: op_context, flags, len, buf, data, tag and, with ``source``, fi_addr."""

_BATCH = 64
_ENTRY = struct.Struct("=6Q")  # struct fi_cq_tagged_entry; its layout is asserted in libfabric.src.c
_NO_ADDRESS = 2**64 - 1
_EAGAIN = constants.FI_EAGAIN
_EAVAIL = constants.FI_EAVAIL
_UNKNOWN = constants.FI_EADDRNOTAVAIL


class ErrorEntry(NamedTuple):
    """A failed operation as fi_cq_readerr reported it. ``size`` is 0 where the provider does not know it."""

    context: int
    flags: int
    length: int
    overflow: int  # bytes that did not fit (olen)
    tag: int
    errno: int
    provider_errno: int
    text: str
    source: int
    buffer: int = 0
    data: int = 0
    address: bytes = b""
    """Of a sender whom the address vector does not know (FI_EADDRNOTAVAIL, FI_SOURCE_ERR): where it is."""


class CompletionQueue(Resource):
    """A completion queue of a domain, with a wait descriptor where the provider offers one.

    Args:
        domain: where to open it.
        size: entries; 0 lets the provider choose. The software providers never overrun.
        source: read the sender's address with each completion (needs the capability FI_SOURCE).

    Raises:
        FabricError: the provider refused (fi_cq_open).
    """

    __slots__ = (
        "_buffer",
        "_cq",
        "_fabric",
        "_fd",
        "_fids",
        "_look",
        "_pace",
        "_sources",
        "_trywait",
        "_view",
        "domain",
    )

    def __init__(self, domain: Domain, *, size: int = 0, source: bool = False) -> None:
        self.domain = domain
        domain._handle.check_open()
        self._cq, self._fd = self._open(size)
        self._handle = Handle("CompletionQueue", self._cq, domain._handle)
        self._buffer = ffi.new("struct fi_cq_tagged_entry[]", _BATCH)
        self._view = memoryview(ffi.buffer(self._buffer)).toreadonly()
        self._pace = ffi.new("struct aiofabric_pace *")
        self._sources = ffi.new("fi_addr_t[]", [_NO_ADDRESS] * _BATCH) if source else None
        self._look, self._trywait = lib.aiofabric_cq_look, lib.fi_trywait  # once or more in every wait
        self._fabric = domain.fabric._handle.fid
        self._fids = ffi.new("struct fid *[1]", [self.native])

    def _open(self, size: int) -> tuple[Any, int | None]:
        out = ffi.new("struct fid_cq **")
        attr = ffi.new("struct fi_cq_attr *")
        attr.size = size
        attr.format = constants.FI_CQ_FORMAT_TAGGED
        waits = (constants.FI_WAIT_FD, constants.FI_WAIT_NONE)
        for wait in waits[Quirk.NO_WAIT_FD in quirks(self.domain.info) :]:
            attr.wait_obj = wait
            rc = lib.fi_cq_open(self.domain._handle.fid, attr, out, ffi.NULL)
            if rc:
                continue  # shm: -FI_ENOSYS for a queue with a descriptor
            if wait == constants.FI_WAIT_FD:
                # 128 zeroed bytes: a provider may copy a larger wait object than the int it was asked for
                room = ffi.new("char[]", 128)
                if lib.fi_control(ffi.addressof(out[0].fid), constants.FI_GETWAIT, room):
                    check(lib.fi_close(ffi.addressof(out[0].fid)), "fi_close")  # udp;ofi_rxd: opens, has no descriptor
                    continue
                return out[0], int(ffi.cast("int *", room)[0])
            return out[0], None
        check(rc, "fi_cq_open")
        raise AssertionError

    @property
    def native(self) -> Any:
        """The ``struct fid *``, for binding."""
        return ffi.addressof(self._cq.fid)

    def fileno(self) -> int | None:
        """The wait descriptor; None where the provider has none."""
        return self._fd

    def longest_gap(self) -> int:
        """Nanoseconds between two reads of the last look, the longest; 0 if the first read found something."""
        gap: int = self._pace.gap
        return gap

    def read(self, window: int = 0) -> Sequence[Entry] | None:
        """Up to 64 completions; ``()`` when there are none, None when a failed one is to be read.

        Args:
            window: nanoseconds to keep looking for the first one.
        """
        # One crossing for the whole look: 65-95 ns each way, and up to 15 looks fit in a window.
        if self._sources is None:
            n = self._look(self._cq, self._buffer, _BATCH, window, self._pace)
            if n == 1:
                return (_ENTRY.unpack_from(self._view),)  # iter_unpack costs 120 ns more for the common case
            if n > 0:
                return list(_ENTRY.iter_unpack(self._view[: n * 48]))
        else:
            n = lib.aiofabric_cq_look_from(self._cq, self._buffer, _BATCH, self._sources, window, self._pace)
            if n == 1:
                return ((*_ENTRY.unpack_from(self._view), self._sources[0]),)
            if n > 0:
                entries = _ENTRY.iter_unpack(self._view[: n * 48])
                return [(*entry, self._sources[i]) for i, entry in enumerate(entries)]
        if n == -_EAGAIN or n == 0:
            return ()
        if n == -_EAVAIL:
            return None
        check(n, "fi_cq_read")
        return ()

    def read_error(self) -> ErrorEntry | None:
        """The failed operation at the head of the queue; None when there is none after all."""
        room = ffi.new("struct aiofabric_cq_err_entry *")  # zeroed: 1.17 leaves what it does not know
        room.src_addr = _NO_ADDRESS
        entry = ffi.addressof(room.entry)
        rc = lib.fi_cq_readerr(self._cq, entry, 0)
        if rc <= 0:
            return None
        text = ffi.NULL
        if entry.prov_errno:
            text = lib.fi_cq_strerror(self._cq, entry.prov_errno, entry.err_data, ffi.NULL, 0)
        return ErrorEntry(
            int(ffi.cast("uintptr_t", entry.op_context)),
            entry.flags,
            entry.len,
            entry.olen,
            entry.tag,
            abs(entry.err),  # 1.17's shm reports a truncation with a return code's sign
            entry.prov_errno,
            ffi.string(text).decode(errors="replace") if text != ffi.NULL else "",
            room.src_addr,
            int(ffi.cast("uintptr_t", entry.buf)),
            entry.data,
            # The provider's memory until the next read; 1.17 leaves the size as it was, 0, where there is none.
            bytes(ffi.buffer(entry.err_data, entry.err_data_size))
            if entry.err == _UNKNOWN and entry.err_data and entry.err_data_size
            else b"",
        )

    def progress(self) -> None:
        """Let the provider go on, and read nothing. Any thread."""
        lib.fi_cq_read(self._cq, ffi.NULL, 0)

    def quiet(self) -> bool:
        """fi_trywait: whether it is safe to sleep on the descriptor."""
        calm: bool = self._trywait(self._fabric, self._fids, 1) == 0
        return calm

    def __repr__(self) -> str:
        return f"<CompletionQueue of {self.domain!r} fd={self._fd}{' closed' if self.closed else ''}>"
