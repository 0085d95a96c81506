"""Peeks: examine a tagged message that has arrived, reserve it, or drop it (man page: fi_tagged, fi_trecvmsg).

The provider keeps a claim in the context that it was made with (rxm: rxm_tagged.c), or finds it by the context (tcp:
xnet_srx.c). So its slot stays in use until the message is received or discarded. A cancelled claim loses nothing: the
message is received here, and waits for the next receive that it fits.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any

from ..._ffi import constants, ffi, lib
from ...cq.operation import QUEUED
from ...cq.submission import Transfer
from ...errors import FabricError, NotSupportedError
from ...features import Quirk
from ...flags import Access
from ...memory import pin
from ..buffers import acquire_regions, contents
from ..failures import Refill, removed
from ..messages.inbox import truncated
from ..messages.undelivered import UndeliveredMessage
from .tagged import Envelope, TaggedReceives

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...address_vector import Peer
    from ...cq.operation import Operation
    from ...cq.slots import Slot
    from ...info import Info
    from ..messages.receive import Message

__all__ = ["Claim", "Peeks"]

_PEEK, _CLAIM, _DISCARD = constants.FI_PEEK, constants.FI_CLAIM, constants.FI_DISCARD
_NOTHING = bytearray(1)  # so that no provider gets a NULL buffer
Where = tuple[int, ...]


class Claim:
    """A message that no other receive gets. Made by `RdmEndpoint.claim_tagged`; receive it or discard it, once.

    A message that is neither received nor discarded stays with the provider until the endpoint is closed. Over rxd it
    is lost with this object.
    """

    __slots__ = ("_ep", "_slot", "_undelivered", "_where", "envelope")

    def __init__(
        self, ep: Peeks, where: Where, envelope: Envelope, slot: Slot | None, undelivered: UndeliveredMessage | None
    ) -> None:
        self.envelope = envelope
        """Length and tag; source and remote data if the provider reports them before the receive."""
        self._ep = ep
        self._where = where
        self._slot = slot
        self._undelivered = undelivered

    async def recv(self) -> Message:
        """Receive the message. If this is cancelled, the next receive that it fits gets it.

        Raises:
            FabricError: the buffer could not be registered, or the provider refused the receive; the claim stays valid.
        """
        buffer = bytearray(self.envelope.length)
        undelivered = self._undelivered
        if undelivered is not None:
            self._take()
            return undelivered.message
        got = await self._finish(pin(buffer, writable=True), _CLAIM)
        return self._ep._annotated(memoryview(buffer)[: got.length], got)

    async def recv_into(self, buffer: Any) -> Envelope:
        """Receive the message into ``buffer``, without a copy; otherwise like `recv`.

        Raises:
            TruncatedMessageError: it is longer than the buffer; it can still be received or discarded.
        """
        pins = pin(buffer, writable=True)
        if self.envelope.length > len(pins):
            raise truncated(self.envelope.length, len(pins))
        if self._undelivered is not None:
            message = await self.recv()
            ffi.memmove(pins, message, len(message))
            return self.envelope
        got = await self._finish(pins, _CLAIM)
        return self._ep._envelope(got, self._ep._source_of(got.source))

    async def discard(self) -> None:
        """Drop the message. It is also dropped if the call is cancelled.

        Over rxm the message is received first, into memory of its size: otherwise its send would never complete.
        """
        if self._undelivered is not None:
            self._take()
        else:
            handle = self._ep._handle
            if Quirk.DISCARD_STALLS_SENDER in handle.known:
                await self._finish(pin(bytearray(self.envelope.length), writable=True), _CLAIM, dropped=True)
            else:
                await self._finish(pin(_NOTHING), _CLAIM | _DISCARD, dropped=True)

    def _take(self) -> Slot | None:
        self._ep._check_receivable()
        if self._slot is None and self._undelivered is None:
            raise ValueError("this message was received or discarded already")
        slot, self._slot, self._undelivered = self._slot, None, None
        return slot

    async def _finish(self, pins: Any, flags: int, *, dropped: bool = False) -> Transfer:
        size = 0 if flags & _DISCARD else self.envelope.length
        slot = self._take()
        try:
            transfer = self._ep._receive_claimed(self._where, pins, flags, size, slot, dropped)
        except FabricError:
            self._slot = slot  # nothing was posted
            raise
        self._ep._release_number(self._where[0])  # the receive names it
        if not dropped:
            transfer.orphaned = partial(self._ep._keep, pins, True)
        return await self._ep._handle.rx.outcome(transfer)


class _Reserving(Transfer):
    """A claim: its context belongs to the message from now on, so its slot stays in use."""

    __slots__ = ()

    def finish(self, error: BaseException | None = None) -> None:
        if error is None and self.state is not QUEUED:
            self.owner.source.slots.reserve(self.slot)
        super().finish(error)


class _ClaimReceive(Transfer):
    """The receive or discard of a claimed message. The slot belongs to the message until the provider accepts this."""

    __slots__ = ("post_again",)
    post_again: Callable[[], object]

    def finish(self, error: BaseException | None = None) -> None:
        queued = self.state is QUEUED
        if queued:
            self.owner.source.slots.reserve(self.slot)
        super().finish(error)
        if queued and error is None:  # the caller was cancelled
            self.post_again()


class Peeks(TaggedReceives):
    """Examine messages before receiving them. Mixed into connectionless endpoints."""

    __slots__ = ()
    info: Info

    @abstractmethod
    def _keep_number(self, number: int) -> None:
        """Keep the number of a peer for a claim that names it."""

    @abstractmethod
    def _release_number(self, number: int) -> None:
        """The claim needs the number no longer."""

    async def peek_tagged(self, tag: int, *, ignore: int = 0, source: Peer | None = None) -> Envelope | None:
        """The envelope of the next matching message that has arrived and that no receive has taken; None if there is
        none.

        The envelope's source is the one that was asked for: some providers report it only when the message is received.

        Raises:
            NotSupportedError: the provider cannot peek.

        Man page: fi_tagged (fi_trecvmsg with FI_PEEK).
        """
        where = self._where(tag, ignore, source)
        undelivered = self._left(where)
        if undelivered is not None:
            return _told(undelivered)
        got = await self._answer(self._examine(where, pin(_NOTHING), _PEEK))
        return None if got is None else self._envelope(got, source)

    async def claim_tagged(self, tag: int, *, ignore: int = 0, source: Peer | None = None) -> Claim | None:
        """Reserve the message that `peek_tagged` would report: no other receive gets it. None if there is none.

        If this is cancelled, the next receive that it fits gets the message. Over rxd, whose own claims crash, the
        message is received here, into memory of its size.

        Man page: fi_tagged (fi_trecvmsg with FI_PEEK and FI_CLAIM).
        """
        where = self._where(tag, ignore, source)
        undelivered = self._left(where)
        if undelivered is not None:
            self._stash.remove(undelivered)
            return Claim(self, where, _told(undelivered), None, undelivered)
        if Quirk.CLAIMS_CRASH in self._handle.known:
            undelivered = await self._receive_at_once(where, source)
            return None if undelivered is None else Claim(self, where, _told(undelivered), None, undelivered)
        self._keep_number(where[0])  # the end of the claim releases it
        got: Transfer | None = None
        try:
            transfer = self._examine(where, pin(_NOTHING), _PEEK | _CLAIM, kind=_Reserving)
            transfer.orphaned = partial(self._claimed_for_nobody, where)
            got = await self._answer(transfer)
        finally:
            if got is None:
                self._release_number(where[0])
        return None if got is None else Claim(self, where, self._envelope(got, source), got.slot, None)

    async def discard_tagged(self, tag: int, *, ignore: int = 0, source: Peer | None = None) -> Envelope | None:
        """Drop the message that `peek_tagged` would report; return its envelope, None if there is none.

        Man page: fi_tagged (fi_trecvmsg with FI_CLAIM and FI_DISCARD).
        """
        claim = await self.claim_tagged(tag, ignore=ignore, source=source)
        if claim is None:
            return None
        await claim.discard()
        return claim.envelope

    def _left(self, where: Where) -> UndeliveredMessage | None:
        """A message that a cancelled receive left here."""
        return next((each for each in self._stash if each.fits(where)), None)

    def _examine(
        self,
        where: Where,
        pins: Any,
        flags: int,
        size: int = 0,
        *,
        kind: type[Transfer] | None = None,
        slot: Slot | None = None,
    ) -> Transfer:
        """fi_trecvmsg with flags, into ``size`` bytes."""
        handle = self._handle
        if Quirk.PEEK_RECEIVES in handle.known:
            detail = f"The provider {self.info.fabric_attr.prov_name} would take FI_PEEK for a receive"
            raise NotSupportedError(constants.FI_ENOSYS, "fi_trecvmsg", detail=detail)
        message, iov = ffi.new("struct fi_msg_tagged *"), ffi.new("struct iovec *", (pins, size))
        message.msg_iov, message.iov_count = iov, 1
        message.addr, message.tag, message.ignore = where
        found, registrations = acquire_regions(handle, [pins], Access.RECV) if size else (ffi.NULL, ())
        message.desc = found
        args, keep = (handle.fid, message, flags), (pins, iov, message, found)
        if slot is not None:
            handle.source.slots.reuse(slot)
        try:
            return handle.rx.submit(
                "fi_trecvmsg", lib.fi_trecvmsg, args, keep, size, registrations, kind=kind, slot=slot, message=message
            )
        except FabricError:
            if slot is not None:
                handle.source.slots.reserve(slot)  # the provider still has the message under this address
            raise

    async def _answer(self, transfer: Transfer) -> Transfer | None:
        try:
            return await self._handle.rx.outcome(transfer)
        except FabricError as error:
            if error.errno == constants.FI_ENOMSG:
                return None
            raise

    def _receive_claimed(
        self, where: Where, pins: Any, flags: int, size: int, slot: Slot | None, dropped: bool
    ) -> Transfer:
        """Receive or discard the claimed message that has ``slot``."""
        transfer = self._examine(where, pins, flags, size, kind=_ClaimReceive, slot=slot)
        assert isinstance(transfer, _ClaimReceive)
        transfer.post_again = partial(self._receive_for_nobody, where, flags, size, slot, dropped)
        return transfer

    async def _receive_at_once(self, where: Where, source: Peer | None) -> UndeliveredMessage | None:
        """Receive the message that a peek reports; None if there is none.

        Another task may have posted a receive for the message before the answer to the peek is here. So the receive is
        withdrawn at once: the provider ends it unless it has a message already. Then the message is looked for again.
        """
        handle = self._handle
        while True:
            peek = self._examine(where, pin(_NOTHING), _PEEK)
            handle.source.drain()  # rxd answers at once
            found = await self._answer(peek)
            if found is None:
                return None
            self._check_receivable()
            if source is not None and source.vector is None:
                raise removed(source)
            pins = pin(bytearray(found.length), writable=True)
            received = self._post_receive(handle, pins, (where[0], found.tag, 0))
            received.orphaned = partial(self._keep, pins, True)
            handle.recall(received, Refill)
            handle.rx.fail_waiting(Refill, partial(is_, received))
            try:
                await handle.rx.outcome(received)
            except Refill:
                await handle.rx.all_posted()
                self._check_receivable()
                continue
            finally:
                handle.recalled.pop(received, None)
            message = self._annotated(contents(pins, received.length), received)
            return UndeliveredMessage(message, received.source, received.tag)

    def _claimed_for_nobody(self, where: Where, transfer: Operation) -> None:
        """The task that claims was cancelled: receive the claimed message, and keep it for a later receive."""
        self._receive_for_nobody(where, _CLAIM, transfer.length, transfer.slot, False)

    def _receive_for_nobody(self, where: Where, flags: int, size: int, slot: Slot | None, dropped: bool) -> None:
        """No task waits for the claimed message: keep it for a later receive, or discard it. The memory is ours."""
        if not self._handle.thread_check.admits():
            return  # the endpoint is closed as well, and drops the message
        pins = pin(_NOTHING) if flags & _DISCARD else pin(bytearray(size), writable=True)
        with suppress(FabricError):  # refused: the provider keeps the message until the endpoint is closed
            received = self._receive_claimed(where, pins, flags, size, slot, dropped)
            if not dropped:
                received.notify = partial(self._left_behind, pins)

    def _left_behind(self, pins: Any, transfer: Operation) -> None:
        if transfer.error is None:
            self._keep(pins, True, transfer)


def _told(undelivered: UndeliveredMessage) -> Envelope:
    message = undelivered.message
    return Envelope(len(message), message.tag, message.source, message.remote_data)
