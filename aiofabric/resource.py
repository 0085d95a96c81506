"""One native object, its parent and its children: in which order they close, and which thread may use them.

libfabric wants children closed before parents, and a refused ``fi_close`` is destructive. 1.17's tcp provider frees the
transfer pool of a completion queue before it returns ``-FI_EBUSY`` (tcpx_cq.c). 2.x's stops the progress of an event
queue (xnet_eq.c). So this tree determines the order of closing; aiofabric never tries a close that may be refused.

There are two classes. A `Handle` is the object that parents, queues and the reactor hold: the fid and the tree. A
`Resource` is the object that the caller holds. No native object refers to a `Resource`. So a `Resource` that the
program drops is collected, and its warning names the place where it was opened. Its parent still closes its handle in
order, or the event loop does so before (`Handle.forgotten`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
import weakref
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self

from anyio import ClosedResourceError

from ._core import ResourceCore
from ._ffi import constants, ffi, lib
from .errors import ForkedError, WrongLoopError, WrongThreadError, check

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

__all__ = [
    "Handle",
    "Resource",
    "check_resource",
    "leave_block",
    "live_handles",
    "live_resources",
    "loop_ended",
    "opened_at",
    "tell_of_loops",
]

_log = logging.getLogger("aiofabric")
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_handles: weakref.WeakSet[Handle] = weakref.WeakSet()
_users: weakref.WeakSet[LoopUser] = weakref.WeakSet()
_numbers = count()


def opened_at() -> str:
    """``file:line`` of the nearest caller outside this package (and outside contextlib, which calls __enter__)."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, contextlib.__file__)):
        frame = frame.f_back
    return sys.intern(f"{frame.f_code.co_filename}:{frame.f_lineno}")  # one line may open a thousand connections


class Handle:
    """A native object in the tree that determines the close order.

    ``fid`` is any cdata pointer whose struct begins with a ``struct fid``. Subclasses that must do more than close
    their children and call ``fi_close`` override `release`.
    """

    __slots__ = (
        "__weakref__",
        "children",
        "closed",
        "dropped",
        "fid",
        "forked",
        "lingers",
        "needed",
        "number",
        "opened_at",
        "over",
        "parent",
        "released",
        "thread",
        "what",
    )

    def __init__(self, what: str, fid: Any, parent: Handle | None) -> None:
        self.what = what
        self.fid = fid
        self.parent = parent
        self.needed: list[Handle] = []
        self.children: dict[Handle, None] = {}
        self.closed = False
        self.forked = False
        self.dropped = False  # its `Resource` was collected
        self.over = False  # its event loop has ended
        self.lingers = False  # closed, but the native object must stay for a while
        self.released = False  # the native object was closed
        self.thread = threading.get_ident()
        self.number = next(_numbers)
        self.opened_at = opened_at()
        if parent is not None:
            parent.children[self] = None
        _handles.add(self)

    def need(self, other: Handle) -> None:
        """``other`` is bound to this object, so this object must close before ``other``."""
        other.check_open()
        other.children[self] = None
        self.needed.append(other)

    def close(self) -> None:
        """Close the children, newest first, then this object. A second call and a forked child do nothing."""
        if self.closed or self.forked:
            return
        self.check_thread()
        self.closed = True
        if not self.children:
            self._leave()
            return
        with ExitStack() as order:  # runs the last callback first, and each even if others raise
            order.callback(self._leave)
            for child in self.children:
                order.callback(child.close)

    def _leave(self) -> None:
        """Close the native object; if a child still lingers, the last such child calls this when it has closed."""
        if self.released or self.lingers or self.children:
            return
        self.released = True
        above = self.needed if self.parent is None else [*self.needed, self.parent]
        for other in above:
            other.children.pop(self, None)
        self.release()
        for other in above:
            if other.closed:
                other._leave()
            elif other.dropped and not other.children:
                other.forgotten()

    def release(self) -> None:
        """Close the native object."""
        rc = lib.fi_close(ffi.cast("struct fid *", self.fid))
        if rc == -constants.FI_EBUSY and not self.children:
            # All objects of aiofabric on it are closed. rxm (1.17 to 2.6) forgets the registration of a large message
            # that its peer never fetched, and then holds its domain until the process ends.
            _log.warning("%s opened at %s: the provider keeps it open (FI_EBUSY)", self.what, self.opened_at)
            return
        check(rc, "fi_close")

    def check_open(self) -> None:
        """Raise if this process or this thread may not use the object, or if it is closed."""
        self.check_caller()
        if self.closed:
            raise ClosedResourceError(f"this {self.what} is closed")
        if self.over:
            raise WrongLoopError(
                f"this {self.what} belongs to an event loop that has ended (it was opened at {self.opened_at}): "
                "it can make no progress. Close it, and open a new one in the loop that uses it, or use one "
                "asyncio.run() for the whole program"
            )

    def check_caller(self) -> None:
        """Raise if this process or this thread may not even close the object."""
        if self.forked:
            raise ForkedError(
                f"this {self.what} belongs to the parent process (opened at {self.opened_at}): libfabric objects "
                "do not survive fork(); open a new one in the child, or start it with the 'spawn' method"
            )
        self.check_thread()

    def on_loop_end(self, driver: object) -> None:
        """The event loop of ``driver`` ends: objects of that loop cannot be used any more."""

    def forgotten(self) -> None:
        """The program has dropped its object without closing it. Called by the garbage collector, so it must make no
        native call, and again when no child is left. Here it does nothing: the parent closes the handle.
        """

    def on_fork(self) -> None:
        """Called in a forked child."""
        self.forked = True

    def check_thread(self) -> None:
        if threading.get_ident() != self.thread:
            raise WrongThreadError(
                f"this {self.what} belongs to the thread that opened it (at {self.opened_at}); run the call in its "
                "event loop with loop.call_soon_threadsafe() or anyio.from_thread.run()"
            )


def _mark_forked() -> None:
    # A child that closes an inherited endpoint removes the parent's socket from the shared epoll instance, and then the
    # parent's operations never complete. So the child may not touch any object.
    for handle in list(_handles):
        handle.on_fork()
    for user in list(_users):
        user._on_fork()


os.register_at_fork(after_in_child=_mark_forked)


def loop_ended(driver: object) -> None:
    """Tell all open objects that the event loop of ``driver`` has ended."""
    for handle in list(_handles):
        handle.on_loop_end(driver)
    for user in list(_users):
        user._on_loop_end(driver)


class LoopUser(Protocol):
    """An object that is no handle, and uses some."""

    def _on_fork(self) -> None: ...  # in a forked child
    def _on_loop_end(self, driver: object) -> None: ...  # as for handles


def tell_of_loops(user: LoopUser) -> None:
    """Tell an object, while it lives, when this process is a forked child and when an event loop has ended."""
    _users.add(user)


def live_handles() -> list[Handle]:
    """The handles that are open in this process now, oldest first. May be called in any thread."""
    while True:
        try:
            return sorted((h for h in _handles.copy() if not (h.closed or h.forked)), key=lambda h: h.number)
        except RuntimeError:  # another thread opened or closed something meanwhile
            continue


def live_resources() -> list[str]:
    """The objects that are open in this process now, one line each: kind and place where it was opened."""
    return [f"{h.what} opened at {h.opened_at}" for h in live_handles()]


def check_resource(name: str, value: Any, what: str) -> None:
    """Raise TypeError unless the argument ``name`` is an object of libfabric of this kind, such as a Domain."""
    handle = getattr(value, "_handle", None)
    if not isinstance(handle, Handle) or handle.what != what:
        raise TypeError(f"{name} must be a {what} of aiofabric, not {value!r:.100}")


async def leave_block(error: BaseException | None, close: Callable[[], Awaitable[object]]) -> None:
    """Close at the end of an ``async with`` block that ``error`` ends. KeyboardInterrupt and SystemExit stay, also if
    the close is cancelled: the cancellation would replace them, and then end in its cancel scope.
    """
    try:
        await close()
    except BaseException:
        if not _ends_program(error):
            raise


def _ends_program(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_ends_program, error.exceptions))
    return isinstance(error, (KeyboardInterrupt, SystemExit))


class Resource(ResourceCore):
    """Base of all objects that are opened and must be closed. A context manager, ``with`` and ``async with`` alike.

    Closing first closes all objects that were opened from it, and never leaves it open. A second close does nothing. An
    object that is collected while open warns (`ResourceWarning`). The native object then closes with its parent; that
    of an endpoint closes soon, from the event loop.
    """

    __slots__ = ("__weakref__", "_handle")
    _handle: Handle

    def close(self) -> None:
        """Close now; all objects opened from this one are closed first."""
        self._handle.close()

    async def aclose(self) -> None:
        """Close, like `close`; a cancel cannot leave it open."""
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the object is closed."""
        return self._handle.closed

    @property
    def native(self) -> Any:
        """The open C object, a cffi pointer, for hints and for calls that this package does not wrap."""
        self._handle.check_open()
        return self._handle.fid

    def __enter__(self) -> Self:
        self._handle.check_open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._handle.check_open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await leave_block(exc, self.aclose)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)  # absent when opening failed
        if handle is not None and not (handle.closed or handle.forked):
            warnings.warn(
                f"unclosed {handle.what}, opened at {handle.opened_at}",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )
            handle.dropped = True
            handle.forgotten()
