"""CompletionQueue: reading completions (man page: fi_cq)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .._core import NativeQueue
from .._ffi import address_of, constants, ffi, lib
from ..errors import check
from ..features import Quirk, quirks
from ..resource import Handle, Resource, check_resource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..domain import Domain

__all__ = ["CompletionQueue", "Entry", "ErrorEntry"]

Entry = tuple[int, ...]
"""A completion as the queue wrote it: op_context, flags, len, buf, data, tag and, with ``source``, fi_addr."""

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
    """The address of a sender that the address vector does not know (FI_EADDRNOTAVAIL, FI_SOURCE_ERR)."""


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
        "_cq",
        "_fd",
        "_native_queue",
        "domain",
    )

    _cq: Any
    _fd: int | None

    def __init__(self, domain: Domain, *, size: int = 0, source: bool = False) -> None:
        self.domain = domain
        check_resource("domain", domain, "Domain")
        domain._handle.check_open()
        # efa-direct writes no tags, and refuses the format that has them, as verbs until 1.18.
        layouts = (constants.FI_CQ_FORMAT_TAGGED, constants.FI_CQ_FORMAT_DATA)
        for layout in layouts[Quirk.QUEUE_HAS_NO_TAGS in quirks(domain.info) :]:
            rc = self._open(size, layout)
            if rc != -constants.FI_ENOSYS:
                break
        check(rc, "fi_cq_open")
        self._handle = Handle("CompletionQueue", self._cq, domain._handle)
        fabric = domain.fabric._handle.fid
        tagged = layout == constants.FI_CQ_FORMAT_TAGGED
        self._native_queue = NativeQueue(address_of(self._cq), address_of(fabric), source, tagged)
        if self._fd is not None and self._native_queue.try_wait() == -constants.FI_ENOSYS:  # ucx
            self._fd = None

    def _open(self, size: int, layout: int) -> int:
        """Open the queue, with a wait descriptor if there is one; return the provider's error."""
        out = ffi.new("struct fid_cq **")
        attr = ffi.new("struct fi_cq_attr *")
        attr.size = size
        attr.format = layout
        waits = (constants.FI_WAIT_FD, constants.FI_WAIT_NONE)
        for wait in waits[Quirk.NO_WAIT_FD in quirks(self.domain.info) :]:
            attr.wait_obj = wait
            rc = lib.fi_cq_open(self.domain._handle.fid, attr, out, ffi.NULL)
            if rc:
                continue  # shm: -FI_ENOSYS for a queue with a descriptor
            self._cq, self._fd = out[0], None
            if wait == constants.FI_WAIT_FD:
                # 128 zeroed bytes: a provider may copy a larger wait object than the int it was asked for
                room = ffi.new("char[]", 128)
                if lib.fi_control(ffi.addressof(out[0].fid), constants.FI_GETWAIT, room):
                    check(lib.fi_close(ffi.addressof(out[0].fid)), "fi_close")  # udp;ofi_rxd: opens, has no descriptor
                    continue
                self._fd = int(ffi.cast("int *", room)[0])
            return 0
        return int(rc)

    @property
    def native(self) -> Any:
        """The ``struct fid *``, for binding."""
        return ffi.addressof(self._cq.fid)

    def fileno(self) -> int | None:
        """The wait descriptor; None if the provider has none."""
        return self._fd

    @property
    def native_queue(self) -> NativeQueue | None:
        """The native queue, which a source reads instead of this object."""
        return self._native_queue

    def longest_gap(self) -> int:
        """Nanoseconds of the longest gap between two reads of the last poll; 0 if the first read found something."""
        return self._native_queue.gap

    def read(self, window: int = 0) -> Sequence[Entry] | None:
        """Up to 64 completions; ``()`` when there are none, None when a failed one is to be read.

        Args:
            window: nanoseconds to poll for the first one.
        """
        found = self._native_queue.read(window)
        if isinstance(found, list):
            return found
        if found == -_EAGAIN:
            return ()
        if found != -_EAVAIL:
            check(found, "fi_cq_read")
        return None

    def read_error(self) -> ErrorEntry | None:
        """The failed operation at the head of the queue; None when there is none after all."""
        room = ffi.new("struct aiofabric_cq_err_entry *")  # zeroed: 1.17 does not write all fields
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
        """Drive the provider's progress, without reading a completion. Safe in any thread."""
        lib.fi_cq_read(self._cq, ffi.NULL, 0)

    def quiet(self) -> bool:
        """fi_trywait: whether it is safe to sleep on the descriptor."""
        code = self._native_queue.try_wait()
        return code != -_EAGAIN and check(code, "fi_trywait") == 0

    def __repr__(self) -> str:
        return f"<CompletionQueue of {self.domain!r} fd={self._fd}{' closed' if self.closed else ''}>"
