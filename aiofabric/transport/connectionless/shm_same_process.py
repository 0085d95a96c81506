"""Endpoints of one process over shared memory: the provider makes them read each other's memory directly.

shm finds a peer of its own process in a list and uses the peer's own mapping (smr_map_to_region), which fi_close
unmaps. After that, every access to the closed endpoint crashes the process:

- a send to it (1.17);
- the removal of its address (2.x, smr_unmap_from_endpoint);
- reading a message of it that was not received yet (1.17 smr_progress_iov, 2.5 smr_progress_cmd);
- a fi_close that gives such messages back (2.5 smr_discard).

Endpoints of two processes have separate mappings and are not affected. But the other process copies a message of more
than 4 KiB out of this one's memory, also after the endpoint that sent it was closed. Without the buffer, it would get
what the memory has been used for since.

So an endpoint that has exchanged addresses with others of its process lingers when it is closed. Other endpoints no
longer send to it, and its unread messages are dropped, so it refers to no other endpoint. Its native endpoint stays
open, with the messages that it sent and their pinned buffers, until the endpoints that have its address have read these
messages or are closed. Its address
stays with them longer, because messages that wait to be received name their sender. It also stays open until other
processes have read its messages, or have ended. All this is checked whenever an endpoint of the process opens or
closes, and some times after a close while its loop runs.

2.5 has another defect: an endpoint can read messages of a peer only after the name of that peer has arrived. Only the
endpoint that sends first sends its name, and so it reads the reply from address 0. So both endpoints send their names
as soon as one of them gets the address of the other.

All this is done with functions of libfabric, so it is no workaround of the table `aiofabric.workarounds`.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import partial
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any

from ..._ffi import constants, ffi, lib
from ...address import Address
from ...cq.submission import Transfer
from ...errors import FabricError, UnreachableError
from ...features import Quirk
from ...workarounds import is_on
from ..handle import EndpointHandle
from ..messages.overflow import release_pages
from ..peer_access import operations_of, operations_of_process
from ..route import Route
from ..workarounds import shm_stale_numbers
from ..workarounds.shm_names import is_own, native_form, path_of, remove
from ..workarounds.shm_unanswered_sends import is_gone
from .shm_absent_peer import AbsentNumbers

if TYPE_CHECKING:
    from ...address_vector import AddressVector, Peer
    from ...cq.queue import CompletionQueue

__all__ = [
    "INLINE",
    "LingeringHandle",
    "SameProcessRoute",
    "check_room",
    "closed",
    "enter",
    "is_closed",
    "reads_ours",
    "sweep",
]

_log = logging.getLogger(__name__)

_QUIET_MOST = 4  # closed endpoints whose address is kept although nothing of them is in use; each takes 6 MB
_MOST = 64  # closed endpoints in all: an endpoint can know 256 peers in its life (SMR_MAX_PEERS)
INLINE = 128  # bytes of a message that 2.5 copies into the receiver's queue; its own limit is 160
_INJECTED_MOST = 256  # longer injected messages that an endpoint of this process has not received yet
_UNREAD_MOST = 4096  # messages that one close drops
_DELAYS = (0.02, 0.2, 2.0, 20.0)  # seconds after a close until it is checked whether other processes have read

_lock = RLock()
_here: dict[Address, LingeringHandle] = {}  # open endpoints
_gone: dict[LingeringHandle, _Remains] = {}  # closed endpoints that linger, the oldest first


class LingeringHandle(EndpointHandle):
    """A connectionless endpoint whose native half may have to stay after it is closed."""

    __slots__ = ("address", "by_peer", "entered", "lingered", "linked", "queue", "vector")
    address: Address
    queue: CompletionQueue

    def __init__(self, vector: AddressVector, *args: Any, **options: Any) -> None:
        # First what `close` needs: there may be no memory for the rest.
        self.vector = vector
        self.entered = False  # True: other endpoints of this process may get its address
        self.lingered = False
        self.linked: set[LingeringHandle] = set()  # endpoints that have its address, or whose address it has
        self.by_peer: dict[Peer, Route] = {}
        super().__init__(*args, **options)

    def _disappear(self) -> None:
        """From now on, no endpoint of this process may send here."""
        error = partial(closed, self.address)
        for other in tuple(self.linked):
            aliases = [each for each in other.children if isinstance(each, LingeringHandle)]
            for peer, route in [pair for each in (other, *aliases) for pair in each.by_peer.items()]:
                if peer.address == self.address:
                    route.close_off(error)
                    if other.thread == self.thread and not other.source.driver.closed():  # other loops do it themselves
                        route.fail_waiting(error)

    def _leave(self) -> None:
        if not self.entered:
            super()._leave()
            return
        self.thread_check.thread = 0
        self._disappear()
        self.lingered = leave(self)
        if self.lingered:
            self.source.close()
            self._finish()
        super()._leave()
        sweep()
        _sweep_later(self, _DELAYS)


class _Remains:
    """The parts of a closed endpoint that the provider may still access."""

    def __init__(self, handle: LingeringHandle, elsewhere: dict[Address, set[int]]) -> None:
        self.handle = handle
        self.elsewhere = elsewhere  # messages that other processes have not read
        self.pending: dict[int, Any] = dict(handle.source.operations)  # by slot address
        self.pins = [(op.pins, op.registrations) for op in self.pending.values() if isinstance(op, Transfer)]
        for op in self.pending.values():
            if isinstance(op, Transfer):
                op.registrations = ()

    def empty(self) -> None:
        """Cancel all operations, and drop messages that were not received, so that other endpoints may close."""
        for op in self.pending.values():
            self.handle.cancel(op.slot.pointer)
        self.read()
        if self.handle.overflow is None:
            return
        source = constants.FI_ADDR_UNSPEC
        iov, fid = ffi.new("struct iovec[1]", [self.handle.overflow]), self.handle.fid
        self._receive_all(lambda slot: lib.fi_recvv(fid, iov, ffi.NULL, 1, source, slot))
        self._receive_all(lambda slot: lib.fi_trecvv(fid, iov, ffi.NULL, 1, source, 0, 2**64 - 1, slot))

    def _receive_all(self, post: Any) -> None:
        slot = self.handle.source.slots.acquire()
        self.handle.source.slots.quarantine(slot)  # the last receive may stay posted
        for _ in range(_UNREAD_MOST):
            if post(slot.pointer):
                return
            found = self.read()
            if slot.address not in found:
                self.handle.cancel(slot.pointer)
                self.read()
                return
            release_pages(found[slot.address])

    def read(self) -> dict[int, int]:
        """Read completions; return the lengths by slot address."""
        found: dict[int, int] = {}
        while True:
            entries = self.handle.queue.read()
            if entries is None:
                error = self.handle.queue.read_error()
                if error is not None:
                    found[error.context] = error.length
            elif entries:
                found |= {entry[0]: entry[2] for entry in entries}
            else:
                break
        for address in found:
            self.pending.pop(address, None)
        return found

    @property
    def sending(self) -> bool:
        """Whether a peer may still read a message that this endpoint sent."""
        return any(isinstance(op, Transfer) and not op.owner.receives for op in self.pending.values())

    def unread_elsewhere(self) -> bool:
        """Whether another process may still read a message that this endpoint sent."""
        if not self.elsewhere or self.handle.thread != get_ident():
            return bool(self.elsewhere)
        self.read()
        for peer, slots in list(self.elsewhere.items()):
            slots &= self.pending.keys()
            if is_gone(peer):
                for slot in slots:
                    del self.pending[slot]
                slots.clear()
            if not slots:
                del self.elsewhere[peer]
        return bool(self.elsewhere)

    def knowing(self) -> list[LingeringHandle]:
        """The open endpoints that have its address, or whose address it has."""
        return [other for other in self.handle.linked if other.address in _here]

    def quiet(self) -> bool:
        """Whether only address vectors still refer to it. True only in the thread of all endpoints that know it."""
        here = get_ident()
        if self.handle.thread != here or any(other.thread != here for other in self.knowing()):
            return False
        for other in self.knowing():
            if other.source.draining:
                return False
            other.source.drain()
        self.read()
        return not self.sending

    def go(self) -> None:
        """Close the native half."""
        handle = self.handle
        for other in self.knowing():
            handle.vector.lose(other.address)  # first: only then does 2.x free the entry at the other endpoint
            other.vector.lose(handle.address)
        for other in handle.linked:
            other.linked.discard(handle)
        del _gone[handle]
        handle.lingers = False
        try:
            handle._leave()
        except FabricError as error:
            _log.warning("%s opened at %s: %s", handle.what, handle.opened_at, error)
        for _, registrations in self.pins:
            for each in registrations:
                each.end_use()
        self.pins.clear()


def check_room() -> None:
    """Raise if too many endpoints linger: a further endpoint might have to linger, too."""
    with _lock:
        sweep()
        if len(_gone) >= _MOST:
            raise FabricError(
                constants.FI_ENOSPC,
                "fi_endpoint",
                detail=f"{len(_gone)} closed endpoints of this process are still open internally, because other "
                "endpoints have not received their last messages: receive these messages, or close those endpoints",
            )


def enter(handle: LingeringHandle, address: Address, queue: CompletionQueue) -> None:
    """Register an enabled endpoint, before another endpoint can have its address."""
    with _lock:
        handle.address, handle.queue = address, queue
        _here[address] = handle
        handle.entered = True
        handle.vector.watch = _Watch(handle)
        if Quirk.ABSENT_PEERS_MISLEAD in handle.known:
            handle.vector.absent = AbsentNumbers(handle.vector, address)
        for needed in (handle.vector._handle, queue._handle):
            handle.need(needed)


def is_closed(address: Address) -> bool:
    """Whether this is the name of a closed endpoint of this process."""
    return address not in _here and is_own(address)


def closed(address: Address) -> UnreachableError:
    """The error for sending to a closed endpoint, or adding its address."""
    detail = "The endpoint was closed in this process, and sending to it would crash the provider"
    return UnreachableError(constants.FI_EHOSTUNREACH, "send", peer=address, detail=detail)


class _Watch:
    """Checks the addresses that are added to one endpoint's address vector."""

    def __init__(self, handle: LingeringHandle) -> None:
        self.handle = handle

    def admit(self, address: Address) -> None:
        if is_closed(address):
            raise closed(address)

    def removed(self) -> None:
        if Quirk.NUMBERS_OUTLIVE_PEERS in self.handle.known and is_on("stale_numbers"):
            users = [user for user in self.handle.vector.users if isinstance(user, LingeringHandle)]
            shm_stale_numbers.clear(path_of(user.address) for user in users if user.entered)

    def native_form(self, address: Address) -> Address:
        return native_form(address, is_open=address in _here)

    def inserted(self, address: Address, native: int) -> bool:
        handle = self.handle
        with _lock:
            other = _here.get(address)
            if other is None:
                return False
            if other is not handle and other not in handle.linked:
                handle.linked.add(other)
                other.linked.add(handle)
                if Quirk.ANSWER_CRASHES in handle.known:
                    _introduce(other, other.vector.prepare(handle.address), handle, native)
            return True


def _introduce(one: LingeringHandle, to: int, other: LingeringHandle, back: int) -> None:
    """Make both endpoints exchange their names before either sends. ``other`` belongs to this thread."""
    one.queue.progress()  # makes room for a name
    for each, peer in ((one, to), (other, back)):
        # The first send to an unknown peer sends the name and returns -FI_EAGAIN. An empty write has no other effect.
        lib.fi_inject_write(each.fid, ffi.NULL, 0, peer, 0, 0)
    other.queue.progress()
    one.queue.progress()


def reads_ours(handle: LingeringHandle, address: Address) -> bool:
    """Whether this is an endpoint of this process that reads injected messages from the sender's memory."""
    return Quirk.ANSWER_CRASHES in handle.known and _here.get(address, handle) is not handle


class SameProcessRoute(Route):
    """The route to an endpoint of this process: also a long injected message gets a completion, when it was read."""

    __slots__ = ()
    direct = False

    def _inject(self, data: bytes, tag: int | None) -> bool:
        if len(data) <= INLINE:
            return super()._inject(data, tag)
        if len(self.posted) >= _INJECTED_MOST:
            return False
        self.post(data, tag)
        return True


def leave(handle: LingeringHandle) -> bool:
    """An endpoint closes, and no endpoint sends to it any more: return whether it must linger."""
    with _lock:
        del _here[handle.address]
        handle.entered = False
        elsewhere = _sent_elsewhere(handle)
        if not handle.linked and not elsewhere:
            return False
        remains = _gone[handle] = _Remains(handle, elsewhere)
        handle.lingers = True
        remains.empty()
        return True


def sweep() -> None:
    """Close the lingering endpoints that are not needed any more."""
    with _lock:
        for remains in list(_gone.values()):
            if remains.handle not in _gone or remains.unread_elsewhere():
                continue
            if not remains.knowing() or (remains.quiet() and not _is_known(remains)):
                remains.go()
        quiet = [remains for remains in _gone.values() if not remains.elsewhere and remains.quiet()]
        for remains in quiet[:-_QUIET_MOST]:
            remains.go()
        for handle in _gone:
            with suppress(OSError):
                remove(handle.address)


def _sent_elsewhere(handle: LingeringHandle) -> dict[Address, set[int]]:
    """The messages that other processes have not read yet: their slots, by address of the receiver. Without those for
    processes that have ended.
    """
    found: dict[Address, set[int]] = {}
    for queue in handle.submission_queues:
        peer = queue.name if isinstance(queue, Route) else None
        if queue.posted and isinstance(peer, Address) and not is_own(peer) and not is_gone(peer):
            found.setdefault(peer, set()).update(transfer.slot.address for transfer in queue.posted)
    return found


def _sweep_later(handle: LingeringHandle, delays: tuple[float, ...]) -> None:
    """Look again while other processes have messages of this endpoint to read: they open and close none here."""
    driver = handle.source.driver

    def check() -> None:
        sweep()
        _sweep_later(handle, delays[1:] or delays)

    if handle in _gone and _gone[handle].elsewhere and not driver.closed():
        driver.call_later(delays[0], check)


def _is_known(remains: _Remains) -> bool:
    return any(other.vector.knows(remains.handle.address) for other in remains.knowing())


def _operations() -> list[Any]:
    """Of the open endpoints of this process, and of closed ones that linger."""
    with _lock:
        for remains in _gone.values():
            if remains.handle.thread == get_ident():
                remains.read()
        of_closed = [operation for remains in _gone.values() for operation in remains.pending.values()]
        return of_closed + [operation for handle in _here.values() for operation in operations_of(handle.source)]


def _forget() -> None:
    """Runs in a forked child, which must not touch the provider."""
    global _lock
    _lock = RLock()
    _here.clear()
    _gone.clear()


os.register_at_fork(after_in_child=_forget)
operations_of_process.append(_operations)
