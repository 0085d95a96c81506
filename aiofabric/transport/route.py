"""Route: the operations for one peer. Each form of sending is a function here, plain and tagged (fi_msg, fi_tagged).

A connected endpoint has one route. A connectionless endpoint has a route for each peer, so a peer that does not answer
delays only its own messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._ffi import address_of, constants, ffi, lib
from ..cq.submission import SubmissionQueue, most_posted
from ..cq.unnamed_failures import watch
from ..errors import FabricError, MessageTooLongError, NotSupportedError, check
from ..features import Quirk, require
from ..flags import Access, Caps, EndpointType, Mode, OpFlags
from ..memory import pin
from .buffers import (
    Pieces,
    acquire_region,
    acquire_regions,
    acquire_rma,
    acquire_rma_parts,
    copy_of,
    descriptors,
    gather,
    is_refused_memory,
    joined,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..cq.operation import Operation
    from ..cq.submission import Transfer
    from ..regions import Registration
    from ..remote_region import RemoteRegion
    from .interfaces import RouteOwner

__all__ = ["Route"]

_EAGAIN = constants.FI_EAGAIN
_SEND, _READ, _WRITE = Access.SEND, Access.READ, Access.WRITE
_REMOTE_CQ_DATA = constants.FI_REMOTE_CQ_DATA
_DELIVERY = constants.FI_DELIVERY_COMPLETE
_FENCE, _COMMIT, _INJECT = constants.FI_FENCE, constants.FI_COMMIT_COMPLETE, constants.FI_INJECT
_LEVELS = OpFlags.INJECT_COMPLETE | OpFlags.TRANSMIT_COMPLETE | OpFlags.DELIVERY_COMPLETE | OpFlags.COMMIT_COMPLETE
_FLAGS = int(
    _LEVELS | OpFlags.MATCH_COMPLETE | OpFlags.MORE | OpFlags.FENCE | OpFlags.INJECT | OpFlags.COMPLETION
    | OpFlags.REMOTE_CQ_DATA | OpFlags.MULTICAST | OpFlags.PEER_TRANSFER | OpFlags.AFFINITY
)  # fmt: skip
_HURT_BY_INJECT = Quirk.INJECT_NEVER_COMPLETES | Quirk.INJECT_WAITS
_COPIED = 32 << 10  # bytes
_UNTRACKED_MOST = 256  # injected messages that may be in flight without a completion that covers them


class Route(SubmissionQueue):
    """The posted and queued operations for one peer; ``peer`` is its fi_addr."""

    flags = _FLAGS  # the flags that operations of this route may have

    __slots__ = ("covered", "fid", "handle")
    direct = True  # small messages go to the provider without `_inject`

    def __init__(self, handle: RouteOwner, peer: int, name: object = None) -> None:
        super().__init__(
            handle.source, handle, most_posted(handle.info.tx_attr.size), receives=False, grace=0.0, name=name
        )
        self.handle = handle
        self.covered = 0  # messages injected before a fence whose completion has not arrived
        self.fid = handle.fid
        pieces = 1 if handle.info.mode & Mode.ASYNC_IOV else handle.info.tx_attr.iov_limit
        if Quirk.EMPTY_DELIVERY_HANGS in handle.known and handle.tx_flags & _DELIVERY:
            pieces = 0  # so `post` checks each message
        thread_check, inject_size = handle.thread_check, handle.inject_size if handle.injects else -1
        # A send over a connection fails only if the connection ends, so nothing is lost if no task waits for it.
        is_plain = type(self).post is Route.post and not handle.regions.local_required
        copies = _COPIED if is_plain and handle.info.ep_attr.type == EndpointType.MSG else 0
        self._send_here(
            address_of(self.fid), thread_check, peer, inject_size, self.direct, handle.longest, pieces, copies
        )

        self.reads_first = Quirk.CONNECTING_CRASHES in handle.known

    def close_off(self, error: Callable[[], BaseException]) -> None:
        self.inject_size = -1  # `inject` leaves it to `post`
        super().close_off(error)

    def _inject_other(self, data: Any, tag: int | None) -> bool:
        """`inject` for data that is not one plain buffer: a list of buffers, or an object that is an error."""
        pieces = data if type(data) in (list, tuple) else [data]
        pins = [pin(piece) for piece in pieces]
        if sum(map(len, pins)) > self.inject_size:
            return False
        return self.inject(b"".join(map(ffi.buffer, pins)), tag)

    def _inject(self, data: bytes, tag: int | None) -> bool:
        """The provider's call. If the route is `direct`, `inject` makes it without this function."""
        if tag is None:
            rc = lib.fi_inject(self.fid, data, len(data), self.peer)
        else:
            rc = lib.fi_tinject(self.fid, data, len(data), self.peer, tag)
        if rc == 0:
            self.unfenced += 1
        elif rc != -_EAGAIN:
            self._inject_failed(rc, tag)
        return rc == 0

    def _inject_failed(self, code: int, tag: int | None) -> None:
        check(code, "fi_inject" if tag is None else "fi_tinject", peer=self.name)

    def _fence(self, data: bytes, tag: int | None) -> bool:
        """Send with a completion; False if enough injected messages are in flight.

        Injected messages have no completion, so one in 64 is sent like this. Messages leave in order, so its completion
        also covers the messages before it, and the number in flight stays bounded.
        """
        if self.untracked >= _UNTRACKED_MOST:
            return False
        transfer = self.post(data, tag)
        behind, self.unfenced = self.unfenced, 0
        self.covered += behind

        def left(_: Operation) -> None:
            self.covered -= behind

        transfer.notify = left
        return True

    def accessed(self) -> None:
        """An access of the peer's memory was posted."""

    @property
    def untracked(self) -> int:
        """How many messages were injected that no completion covers yet."""
        return self.covered + self.unfenced

    def own_flags(self, flags: int | None) -> int:
        """The flags for a call with a structure, to which libfabric does not apply the endpoint's default flags."""
        return self.handle.tx_flags if flags is None else flags

    def post(
        self, data: Any, tag: int | None = None, remote_data: int | None = None, flags: int | None = None
    ) -> Transfer:
        """Post a message, or queue it in order. ``data`` is a buffer, or a list of buffers for one message.

        Without ``flags`` the endpoint's default flags apply; with them, also with 0, they do not.

        Man pages: fi_msg (fi_send, fi_sendv, fi_senddata, fi_sendmsg), fi_tagged (fi_tsend ...).
        """
        handle = self.handle
        if flags is None and remote_data is None and not handle.regions.busy:
            transfer = self._post_here(data, tag)
            if transfer is not None:
                return transfer
        if remote_data is not None:
            self.check_data(remote_data)
        try:
            return self._post(data, tag, remote_data, flags)
        except FabricError as error:
            if not is_refused_memory(error):
                raise
        return self._post(copy_of(data), tag, remote_data, flags)

    def _post(self, data: Any, tag: int | None, remote_data: int | None, flags: int | None) -> Transfer:
        handle = self.handle
        to: tuple[int, ...] = (self.peer,) if tag is None else (self.peer, tag)
        if type(data) is list or type(data) is tuple:
            data, iov, count = gather(data, handle.info.tx_attr.iov_limit)
            if count > 1:
                size = sum(map(len, data))
                self.check_message(size, "fi_sendv", flags)
                if flags is not None or remote_data is not None:
                    return self._post_message(data, iov, count, size, tag, remote_data, flags)
                found, regions = acquire_regions(handle, data, _SEND)
                args = (handle.fid, iov, found, count, *to)
                return self.submit(*_call("sendv", tag), args, (data, iov), size, regions)
        pins = pin(data)
        size = len(pins)
        self.check_message(size, "fi_send", flags)
        if flags is not None:
            return self._post_message([pins], ffi.new("struct iovec *", (pins, size)), 1, size, tag, remote_data, flags)
        descriptor, registrations = acquire_region(handle, pins, _SEND) if handle.regions.busy else (ffi.NULL, ())
        if remote_data is None:
            return self.submit(
                *_call("send", tag), (handle.fid, pins, size, descriptor, *to), pins, size, registrations
            )
        args = (handle.fid, pins, size, descriptor, remote_data, *to)
        return self.submit(*_call("senddata", tag), args, pins, size, registrations)

    def _post_message(
        self, pins: Any, iov: Any, count: int, size: int, tag: int | None, remote_data: int | None, flags: int | None
    ) -> Transfer:
        """The form with a structure: several buffers, remote data and flags in one call."""
        flags = self.check_flags(self.own_flags(flags), size)
        message = ffi.new("struct fi_msg *" if tag is None else "struct fi_msg_tagged *")
        message.msg_iov = iov
        message.iov_count = count
        message.addr = self.peer
        found, registrations = acquire_regions(self.handle, pins, _SEND)
        message.desc = found if size else ffi.NULL  # verbs follows the descriptor of an empty buffer
        if tag is not None:
            message.tag = tag
        if remote_data is not None:
            message.data = remote_data
            flags |= _REMOTE_CQ_DATA
        what, function = _call("sendmsg", tag)
        args = (self.handle.fid, message, flags)
        keep = (pins, iov, message, found)
        return self.submit(what, function, args, keep, size, registrations, message=message)

    def post_rma(
        self, what: str, pins: Any, remote: RemoteRegion, remote_data: int | None, flags: int | None
    ) -> Transfer:
        """Post a read or write of a peer's memory, or queue it in order.

        Raises:
            NotSupportedError: the endpoint has no FI_RMA.

        Man page: fi_rma (fi_read, fi_readv, fi_readmsg, fi_write, fi_writev, fi_writedata, fi_writemsg).
        """
        handle = self.handle
        if not handle.reaches_memory:
            require(Caps.RMA, handle.info)
        if handle.tx_flags & _INJECT and flags is None:
            if what == "fi_read":
                flags = handle.tx_flags & ~_INJECT  # rxd crashes, although a read sends no data
            else:
                self.check_default(len(pins))
        handle.last_access = what, len(pins)
        try:
            transfer = self._post_rma(what, pins, remote, remote_data, flags)
        except FabricError as error:
            if what == "fi_read" or not is_refused_memory(error):
                raise
            copy = pin(joined(pins.pins if isinstance(pins, Pieces) else [pins]))
            transfer = self._post_rma(what, copy, remote, remote_data, flags)
        if Quirk.FAILED_COPY_IS_UNNAMED in handle.known:
            watch(self.source, transfer)
        return transfer

    def _post_rma(
        self, what: str, pins: Any, remote: RemoteRegion, remote_data: int | None, flags: int | None
    ) -> Transfer:
        pieces = isinstance(pins, Pieces)
        if flags is not None or (pieces and remote_data is not None):
            return self._post_rma_message(what, pins, remote, remote_data, flags)
        size = len(pins)
        if pieces:
            found, key, regions = self._acquire_pieces(what, pins.pins, remote)
            args = (self.handle.fid, pins.iov, found, len(pins.pins), self.peer, remote.address, key)
            return self.submit(f"{what}v", getattr(lib, f"{what}v"), args, pins, size, regions)
        descriptor, key, registrations = acquire_rma(self.handle, pins, _READ if what == "fi_read" else _WRITE, remote)
        local = (self.handle.fid, pins, size, descriptor)
        target = (self.peer, remote.address, key)
        if remote_data is None:
            return self.submit(what, getattr(lib, what), local + target, pins, size, registrations)
        return self.submit("fi_writedata", lib.fi_writedata, (*local, remote_data, *target), pins, size, registrations)

    def _post_rma_message(
        self, what: str, pins: Any, remote: RemoteRegion, remote_data: int | None, flags: int | None
    ) -> Transfer:
        size = len(pins)
        flags = self.check_flags(self.own_flags(flags), size)
        if not isinstance(pins, Pieces):
            pins = Pieces([pins], ffi.new("struct iovec *", (pins, size)))
        target = ffi.new("struct fi_rma_iov *")
        found, key, registrations = self._acquire_pieces(what, pins.pins, remote)
        found = found if size else ffi.NULL
        target.addr, target.len, target.key = remote.address, size, key
        message = ffi.new("struct fi_msg_rma *")
        message.msg_iov, message.desc, message.iov_count = pins.iov, found, len(pins.pins)
        message.rma_iov, message.rma_iov_count, message.addr = target, 1, self.peer
        if remote_data is not None:
            message.data = remote_data
            flags |= _REMOTE_CQ_DATA
        what = f"{what}msg"
        args = (self.handle.fid, message, flags)
        keep = (pins, target, found, message)
        return self.submit(what, getattr(lib, what), args, keep, size, registrations, message=message)

    def _acquire_pieces(
        self, what: str, pins: Sequence[Any], remote: RemoteRegion
    ) -> tuple[Any, int, list[Registration]]:
        access = _READ if what == "fi_read" else _WRITE
        key, found, registrations = acquire_rma_parts(self.handle, [(each, access) for each in pins], remote)
        return descriptors(found), key, registrations

    def check_message(self, size: int, call: str, flags: int | None = None) -> None:
        """Raise if the peer does not take a message of ``size`` bytes; ``flags`` are the call's own."""
        if flags is None:
            self.check_default(size)
        limit = self.handle.max_message
        if size > limit and limit < self.handle.max_size:
            raise too_long(size, limit, "the peer's receives take", call, self.name)
        self.check_size(size, call)

    def check_size(self, size: int, call: str) -> None:
        """Raise if the provider does not carry ``size`` bytes at once."""
        limit = self.handle.max_size
        if size > limit:
            error = too_long(size, limit, "the provider carries", call, self.name)
            error.cure = "Send it in smaller pieces"
            if Caps.RMA in self.handle.info.caps:
                error.cure += ", or expose it as a memory region and let the peer read it"
            raise error

    def check_flags(self, flags: int, size: int) -> int:
        """The flags to post with. FI_INJECT may be left out: an awaited operation already has what it asks for.

        Raises if the provider does not support ``flags``: it would ignore the flag, or act on it wrongly.
        """
        if flags & ~self.flags:
            raise ValueError(f"sends, reads and writes cannot have the flags {flags & ~self.flags:#x}")
        self._check_levels(flags, size)
        if flags & _FENCE:
            require(Caps.FENCE, self.handle.info)
        if flags & _COMMIT:
            require(Caps.RMA_PMEM, self.handle.info)
        return flags & ~_INJECT if self.handle.known & _HURT_BY_INJECT else flags

    def check_default(self, size: int) -> None:
        """Raise if the endpoint's default flags, used for a call without flags, do not fit ``size`` bytes."""
        self._check_levels(self.handle.tx_flags, size, " (a default flag of the endpoint)")

    def _check_levels(self, flags: int, size: int, where: str = "") -> None:
        if flags & _INJECT and size > self.handle.inject_size:
            most = self.handle.inject_size
            detail = f"There are {size} bytes; FI_INJECT{where} takes at most {most}"
            error = MessageTooLongError(constants.FI_EMSGSIZE, "FI_INJECT", peer=self.name, detail=detail)
            error.size, error.limit = size, most
            raise error
        if flags & _DELIVERY and not size and Quirk.EMPTY_DELIVERY_HANGS in self.handle.known:
            detail = "An empty message with FI_DELIVERY_COMPLETE would never complete over this provider: send a byte"
            raise NotSupportedError(constants.FI_EOPNOTSUPP, "FI_DELIVERY_COMPLETE", peer=self.name, detail=detail)

    def check_data(self, data: int) -> None:
        """Raise if ``data`` does not fit the provider's remote completion data."""
        bits = 8 * self.handle.info.domain_attr.cq_data_size
        if not bits:
            detail = "The provider carries no remote completion data"
            raise NotSupportedError(constants.FI_EOPNOTSUPP, "fi_senddata", detail=detail)
        if not hasattr(data, "__index__"):
            raise TypeError(f"remote_data must be an int or None, not {data!r}")
        if not 0 <= data < 1 << bits:
            raise ValueError(f"remote_data={data} does not fit: this provider carries {bits} bits, 0 to 2**{bits} - 1")


def too_long(size: int, limit: int, who: str, call: str, peer: object) -> MessageTooLongError:
    """The error for a message of ``size`` bytes if at most ``limit`` bytes are possible."""
    detail = f"The message has {size} bytes; {who} at most {limit} bytes"
    error = MessageTooLongError(constants.FI_EMSGSIZE, call, peer=peer, detail=detail)
    error.size, error.limit = size, limit
    return error


def _call(form: str, tag: int | None) -> tuple[str, Any]:
    """Name and function of one form of sending, plain or tagged."""
    name = f"fi_{form}" if tag is None else f"fi_t{form}"
    return name, getattr(lib, name)
