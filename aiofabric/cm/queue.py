"""EventQueue: connection events, decoded and passed to the handler of their fid (man page: fi_eq)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .._ffi import constants, ffi, lib
from ..errors import check
from ..resource import Handle, Resource, check_resource
from .events import Event, EventError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..errors import FabricError
    from ..fabric import Fabric
    from ..resource import Handle as _Handle

__all__ = ["EventHandler", "EventQueue"]

_ROOM = 16 + 1024  # a CM entry and more private data than any provider carries: fi_eq_read truncates silently
_BURST = 64
_EAGAIN, _EAVAIL = constants.FI_EAGAIN, constants.FI_EAVAIL


class EventHandler(Protocol):
    """An object that gets the events of a fid."""

    def event(self, event: Event, /) -> None: ...
    def event_error(self, error: EventError, /) -> None: ...

    def wait_failed(self, error: FabricError, /) -> int:
        """Raise the error in all tasks that wait for an event, because none will arrive; return their number."""


class EventQueue(Resource):
    """An event queue of a fabric, with a wait descriptor if the provider offers one.

    Args:
        fabric: the fabric to open it on.
        parent: the object that must close after it, if not the fabric itself.

    Raises:
        FabricError: the provider refused (fi_eq_open).
    """

    __slots__ = ("_buffer", "_entry", "_eq", "_event", "_fabric", "_fd", "_fids", "_handlers")

    def __init__(self, fabric: Fabric, *, parent: _Handle | None = None) -> None:
        check_resource("fabric", fabric, "Fabric")
        fabric._handle.check_open()
        out = ffi.new("struct fid_eq **")
        attr = ffi.new("struct fi_eq_attr *")
        # FI_WAIT_FD must be requested: GETWAIT on a queue opened with FI_WAIT_NONE dereferences NULL in util_eq.c.
        attr.wait_obj = constants.FI_WAIT_FD
        check(lib.fi_eq_open(fabric._handle.fid, attr, out, ffi.NULL), "fi_eq_open")
        self._eq = out[0]
        self._handle = Handle("EventQueue", self._eq, parent or fabric._handle)
        room = ffi.new("char[]", 128)
        rc = lib.fi_control(ffi.addressof(self._eq.fid), constants.FI_GETWAIT, room)
        self._fd = None if rc else int(ffi.cast("int *", room)[0])
        self._buffer = ffi.new("char[]", _ROOM)
        self._entry = ffi.cast("struct fi_eq_cm_entry *", self._buffer)
        self._event = ffi.new("uint32_t *")
        self._fabric = fabric._handle.fid
        self._fids = ffi.new("struct fid *[1]", [self.native])
        self._handlers: dict[int, EventHandler] = {}

    def fileno(self) -> int | None:
        """The wait descriptor; None if the provider has none."""
        return self._fd

    @property
    def native(self) -> Any:
        """The ``struct fid *``, for binding and for fi_trywait."""
        return ffi.addressof(self._eq.fid)

    def handle_events_of(self, fid: Any, handler: EventHandler) -> int:
        """Pass events about ``fid`` to ``handler``; return the key for `forget`."""
        key = int(ffi.cast("uintptr_t", fid))
        self._handlers[key] = handler
        return key

    def forget(self, key: int) -> None:
        """Drop events about a fid from now on."""
        self._handlers.pop(key, None)

    def quiet(self) -> bool:
        """fi_trywait: whether it is safe to sleep on the descriptor."""
        code = lib.fi_trywait(self._fabric, self._fids, 1)
        return code != -_EAGAIN and check(code, "fi_trywait") == 0

    def wait_failed(self, error: Callable[[], FabricError]) -> int:
        """Raise an error in all tasks that wait for events, because the descriptor cannot be waited for; return their
        number.
        """
        return sum(handler.wait_failed(error()) for handler in [*self._handlers.values()])

    def read(self) -> int:
        """fi_eq_read: the next event's size, or a negative error code."""
        return int(lib.fi_eq_read(self._eq, self._event, self._buffer, _ROOM, 0))

    def drain(self) -> int:
        """Pass at most 64 pending events to their handlers; return how many there were."""
        count = 0
        while count < _BURST and not self.closed:
            n = self.read()
            if n == -_EAVAIL:
                self._read_error()
            elif n <= 0:
                if n not in (0, -_EAGAIN):
                    check(n, "fi_eq_read")
                break
            else:
                self._dispatch(n)
            count += 1
        return count

    def _dispatch(self, size: int) -> None:
        kind = self._event[0]
        entry = self._entry
        key = int(ffi.cast("uintptr_t", entry.fid))
        info = entry.info if kind == constants.FI_CONNREQ else ffi.NULL
        param = bytes(ffi.buffer(self._buffer, size)[ffi.sizeof("struct fi_eq_cm_entry") :])
        handler = self._handlers.get(key)
        if handler is not None:
            handler.event(Event(kind, key, param, info))
        elif info != ffi.NULL:
            lib.fi_freeinfo(info)

    def _read_error(self) -> None:
        entry = ffi.new("struct fi_eq_err_entry *")  # err_data_size 0: returns the provider's own buffer
        if lib.fi_eq_readerr(self._eq, entry, 0) <= 0:
            return
        param = b""
        if entry.err_data_size and entry.err_data != ffi.NULL:
            param = bytes(ffi.buffer(entry.err_data, entry.err_data_size))
        text = ffi.NULL
        if entry.prov_errno:
            text = lib.fi_eq_strerror(self._eq, entry.prov_errno, entry.err_data, ffi.NULL, 0)
        key = int(ffi.cast("uintptr_t", entry.fid))
        handler = self._handlers.get(key)
        if handler is not None:
            words = ffi.string(text).decode(errors="replace") if text != ffi.NULL else ""
            handler.event_error(EventError(key, entry.err, entry.prov_errno, words, param))

    def __repr__(self) -> str:
        return f"<EventQueue fd={self._fd}{' closed' if self.closed else ''}>"
