"""Conversion of libfabric's error codes to exceptions; all exceptions are made here.

Each situation has a class, and the class has the builtin exception of that situation as its second base. So ordinary
code (``except ConnectionResetError``, ``except TimeoutError``) catches what it expects::

    FabricError (OSError)
    ├── FabricConnectionError (ConnectionError)
    │   ├── FabricConnectionRefusedError (ConnectionRefusedError)
    │   │   └── FabricConnectionRejectedError  .param: the listener's private data
    │   ├── FabricConnectionResetError (ConnectionResetError)
    │   │   └── FabricConnectionEndedError  the peer closed in order
    │   ├── FabricConnectionAbortedError (ConnectionAbortedError)
    │   ├── FabricBrokenPipeError (BrokenPipeError)
    │   └── UnreachableError
    ├── FabricTimeoutError (TimeoutError)  the provider's, not the caller's
    ├── RemoteAccessError (PermissionError)
    ├── TruncatedMessageError  .size, .limit
    ├── MessageTooLongError  .size, .limit
    ├── QueueOverrunError
    ├── NotSupportedError
    ├── NameResolutionError (socket.gaierror)
    └── NoProviderError
    LibfabricNotFound (ImportError)
    ForkedError, WrongThreadError, InternalError (RuntimeError)

FI_EAGAIN, FI_EAVAIL and FI_ECANCELED have no class: the code that gets them handles them itself.
"""

from __future__ import annotations

import errno as _errno
import os
import re
import socket as _socket
from typing import Any

from ._ffi import constants, ffi, is_loaded, lib
from ._ffi.load import LibfabricNotFound

__all__ = [
    "FabricBrokenPipeError",
    "FabricConnectionAbortedError",
    "FabricConnectionEndedError",
    "FabricConnectionError",
    "FabricConnectionRefusedError",
    "FabricConnectionRejectedError",
    "FabricConnectionResetError",
    "FabricError",
    "FabricTimeoutError",
    "ForkedError",
    "InternalError",
    "LibfabricNotFound",
    "MessageTooLongError",
    "NameResolutionError",
    "NoProviderError",
    "NotSupportedError",
    "QueueOverrunError",
    "RemoteAccessError",
    "TruncatedMessageError",
    "UnreachableError",
    "WrongLoopError",
    "WrongThreadError",
    "check",
    "error_name",
    "error_text",
    "from_errno",
    "unresolved",
]


class FabricError(OSError):
    """A libfabric call or operation failed (man page: fi_errno).

    Attributes: ``errno`` (positive, of fi_errno), ``strerror`` (the text of fi_strerror), ``call`` (the C function, or
    the operation in words), ``peer`` (the peer's address, or None), ``provider_errno`` and ``provider_text`` (the
    provider's own reason; 0 and "" if it gave none), ``detail`` (more in words).
    """

    cure: str = ""
    """One sentence with the user's next step. The class has a default; an instance may have a more specific one."""

    def __init__(
        self,
        errno: int,
        call: str,
        *,
        provider_errno: int = 0,
        provider_text: str = "",
        peer: object = None,
        detail: str = "",
    ) -> None:
        OSError.__init__(self, errno, error_text(errno))
        self.call = call
        self.peer = peer
        self.provider_errno = provider_errno
        self.provider_text = provider_text
        self.detail = detail

    def __str__(self) -> str:
        peer = "" if self.peer is None else f" with {self.peer}"
        text = f"{self.call}{peer}: {self.strerror} [{error_name(self.errno or 0)}]"
        if self.provider_errno or self.provider_text:
            text += f", provider says {self.provider_text or self.provider_errno}"
        cure = self.cure or _CURES.get(self.errno or 0, "")
        if self.errno == _C.FI_EINVAL and _NEEDS_INTERFACE.search(text):
            cure = cure or "A link-local address needs its interface: write it behind the address, as in fe80::1%eth0"
        return ". ".join(part.rstrip(".") for part in (text, self.detail, cure) if part)


class FabricConnectionError(FabricError, ConnectionError):
    """The connection failed or ended; the subclasses tell how."""


class FabricConnectionRefusedError(FabricConnectionError, ConnectionRefusedError):
    """No process listens at the address; or a listener without aiofabric rejected the request without data."""

    cure = "Check that a listener runs at that address"
    param: bytes = b""


class FabricConnectionRejectedError(FabricConnectionRefusedError):
    """The listener rejected the request (`ConnectionRequest.reject`, ``accept=``, ``backlog=``, or its close).

    ``param``: the private data that the listener sent, at most 256 bytes.
    """

    cure = "The listener runs and rejected the request; .param has its reason, if it gave one"


class FabricConnectionResetError(FabricConnectionError, ConnectionResetError):
    """The connection broke: the peer was killed, aborted the connection, or lost its network.

    The end of a peer that does not use aiofabric always raises this: libfabric does not report whether an end was
    orderly.
    """

    cure = "Connect again; messages that the peer sent last may be lost"


class FabricConnectionEndedError(FabricConnectionResetError):
    """The peer closed the connection in order: everything that it sent was received.

    Only another aiofabric endpoint can report this. The end of any other peer is a `FabricConnectionResetError`.
    """

    cure = "The peer will send no more messages; open a new connection to continue"

    def __init__(self, errno: int, call: str, **more: Any) -> None:
        super().__init__(errno, call, **more)
        self.strerror = "The peer closed the connection in order"
        self.args = (errno, self.strerror)


class FabricConnectionAbortedError(FabricConnectionError, ConnectionAbortedError):
    """This side ended the connection, or the attempt to connect."""

    cure = "Connect again"


class FabricBrokenPipeError(FabricConnectionError, BrokenPipeError):
    """The operation was posted to a connection that has already ended."""

    cure = "Connect again"


class UnreachableError(FabricConnectionError):
    """No path leads to the peer's network or host."""

    cure = "Check the address, the route to it, and that both ends use the same provider and fabric"


class FabricTimeoutError(FabricError, TimeoutError):
    """The provider's own time limit for the peer has passed. Time limits of the caller raise a plain TimeoutError."""

    cure = "Check that the peer is alive and that no firewall blocks the connection"


class RemoteAccessError(FabricError, PermissionError):
    """The target's memory region does not allow this access, or its key is not valid (any more).

    Software providers also end the connection.
    """

    cure = (
        "Check that the peer still has the region registered, with this key, with the access needed, "
        "and that the range lies inside it"
    )


class TruncatedMessageError(FabricError):
    """A message was longer than the buffer that received it.

    The rest of a direct receive's message is lost. A pooled message is kept, and the next receive gets it again.

    ``size``: length of the message in bytes, None if the provider does not report it; ``limit``: size of the buffer in
    bytes, None if unknown. libfabric 1.17's tcp provider also ends the connection.
    """

    cure = "Receive with a buffer of the largest message's size (recv_size=), or send smaller messages"
    size: int | None = None
    limit: int | None = None


class MessageTooLongError(FabricError):
    """The message is longer than the peer's receives, or than the provider carries (ep_attr.max_msg_size).

    ``size``: length of the message in bytes; ``limit``: the longest possible, in bytes. Nothing was sent.
    """

    cure = (
        "Send it in smaller pieces, let the peer open its endpoint with a larger recv_size=, "
        "or expose it as a memory region and let the peer read it"
    )
    size: int | None = None
    limit: int | None = None


class QueueOverrunError(FabricError):
    """A completion queue overflowed, and completions are lost: the operations bound to it never complete."""

    cure = "Open the queue with a larger size, and close the endpoints that were bound to this one"


class NotSupportedError(FabricError):
    """The provider, or this version of libfabric, does not support the request."""

    cure = "aiofabric.getinfo() with the capability in its hints lists the providers that have it"


class NoProviderError(FabricError):
    """No provider matches the hints; the text repeats them and names the one that no provider meets."""


class NameResolutionError(FabricError, _socket.gaierror):
    """The host name or the service name does not resolve. ``errno`` is getaddrinfo's, such as ``socket.EAI_NONAME``."""

    cure = "Check the spelling, /etc/hosts, and the name server"

    def __init__(self, errno: int, call: str, **more: Any) -> None:
        super().__init__(errno, call, **more)
        if errno == _socket.EAI_SERVICE:
            self.cure = "Give the port as a number, or as a name of /etc/services"


class ForkedError(RuntimeError):
    """A forked child used an object of its parent; even closing it would break the parent's connection."""


class WrongThreadError(RuntimeError):
    """An object was used from another thread than the thread of its event loop."""


class WrongLoopError(RuntimeError):
    """An object was used after the end of its event loop: for example, in a second ``asyncio.run()``."""


class InternalError(RuntimeError):
    """aiofabric reached an impossible state: a bug in aiofabric, not in the program; please report it."""


_C = constants

_CLASSES: dict[int, type[FabricError]] = {
    _C.FI_ECONNREFUSED: FabricConnectionRefusedError,
    _C.FI_ECONNRESET: FabricConnectionResetError,
    _C.FI_ECONNABORTED: FabricConnectionAbortedError,
    _errno.EPIPE: FabricBrokenPipeError,
    _C.FI_ESHUTDOWN: FabricBrokenPipeError,
    _C.FI_ENOTCONN: FabricBrokenPipeError,
    _C.FI_EHOSTUNREACH: UnreachableError,
    _C.FI_EHOSTDOWN: UnreachableError,
    _C.FI_ENETUNREACH: UnreachableError,
    _C.FI_ENETDOWN: UnreachableError,
    _C.FI_EFIREWALLADDR: UnreachableError,
    _C.FI_ETIMEDOUT: FabricTimeoutError,
    _C.FI_EKEYREJECTED: RemoteAccessError,
    _C.FI_ETRUNC: TruncatedMessageError,
    _C.FI_EMSGSIZE: MessageTooLongError,
    _C.FI_EOVERRUN: QueueOverrunError,
    _C.FI_ENOSYS: NotSupportedError,
    _C.FI_EOPNOTSUPP: NotSupportedError,
    _C.FI_ENOPROTOOPT: NotSupportedError,
    _C.FI_EBADFLAGS: NotSupportedError,
}

# In other calls the same codes have a local cause: a privileged port, a key that is already taken.
_CLASSES_RMA: dict[int, type[FabricError]] = {
    _C.FI_EACCES: RemoteAccessError,
    _C.FI_EPERM: RemoteAccessError,
    _C.FI_ENOKEY: RemoteAccessError,
}
_RMA_CALLS = (
    "fi_read",
    "fi_write",
    "fi_inject_write",
    "fi_atomic",
    "fi_inject_atomic",
    "fi_fetch",
    "fi_compare",
)

_NEEDS_INTERFACE = re.compile(r"\[fe[89ab][0-9a-f]:[0-9a-f:]*\]")

_CURES = {
    _C.FI_EADDRINUSE: "Another socket listens there already: choose another port, or 0 for a free one",
    _C.FI_EADDRNOTAVAIL: "The address is not one of this host's; getinfo() lists those",
    _C.FI_EACCES: "Ports below 1024 and some devices need privileges",
    _C.FI_ENOMEM: "Free memory, or raise the limit on locked memory (ulimit -l) for providers that pin it",
    _C.FI_EMFILE: "Raise the limit on open files (ulimit -n)",
    _C.FI_ENOKEY: (
        "Another region of the domain has that key: leave key= out, and aiofabric chooses a random one. If it did, the "
        "provider gave two registrations one key: ask for no capability that is not used, such as FI_ATOMIC over rxm"
    ),
    _C.FI_EBUSY: "The object is still in use: close the objects that were opened from it first",
}

_FABRIC_NAMES = (
    "EOTHER ETOOSMALL EOPBADSTATE EAVAIL EBADFLAGS ENOEQ EDOMAIN ENOCQ ECRC ETRUNC ENOKEY ENOAV EOVERRUN "
    "ENORX ENOMR EFIREWALLADDR"
)
_NAMES = {getattr(_C, f"FI_{name}"): name for name in _FABRIC_NAMES.split()}

_RESOLVER = {
    getattr(_socket, name): (name, words)
    for name, words in (
        ("EAI_NONAME", "The name does not resolve"),
        ("EAI_NODATA", "The name has no address"),
        ("EAI_AGAIN", "The name server does not answer"),
        ("EAI_FAIL", "The name server failed"),
        ("EAI_FAMILY", "The name has no address of this family"),
        ("EAI_SERVICE", "There is no such service name"),
    )
    if hasattr(_socket, name)
}


def error_name(errno: int) -> str:
    """Return the symbol of an error of fi_errno, such as ``FI_ECONNREFUSED``, or of getaddrinfo (negative codes)."""
    if errno in _RESOLVER:
        return _RESOLVER[errno][0]
    return f"FI_{_NAMES.get(errno) or _errno.errorcode.get(errno, errno)}"


def error_text(errno: int) -> str:
    """Return the text of an error: fi_strerror's, or the system's before libfabric is loaded."""
    if errno in _RESOLVER:
        return _RESOLVER[errno][1]
    if is_loaded():
        text: str = ffi.string(lib.fi_strerror(errno)).decode(errors="replace")
        return text
    return _NAMES.get(errno) or os.strerror(errno)


def from_errno(
    errno: int,
    call: str,
    *,
    provider_errno: int = 0,
    provider_text: str = "",
    peer: object = None,
    detail: str = "",
) -> FabricError:
    """Return the exception for a positive error code of fi_errno that ``call`` returned.

    ``provider_errno`` and ``provider_text`` are an error entry's prov_errno and the queue's strerror.
    """
    kind = _CLASSES_RMA.get(errno) if call.startswith(_RMA_CALLS) else None
    return (kind or _CLASSES.get(errno, FabricError))(
        errno,
        call,
        provider_errno=provider_errno,
        provider_text=provider_text,
        peer=peer,
        detail=detail,
    )


def unresolved(error: _socket.gaierror, node: object, service: object) -> NameResolutionError:
    """Return the exception for a host and a port that getaddrinfo did not find."""
    peer = f"{node}:{service}" if service else node
    return NameResolutionError(error.errno or _socket.EAI_FAIL, "getaddrinfo", peer=peer)


def check(rc: int, call: str, *, peer: object = None, local: object = None) -> int:
    """Return ``rc`` if it is a success (zero or more), else raise the exception for it.

    ``call`` is the name of the C function that returned it, ``peer`` the remote address, ``local`` the local address.
    """
    if rc >= 0:
        return rc
    raise from_errno(-rc, call if local is None else f"{call} at {local}", peer=peer)
