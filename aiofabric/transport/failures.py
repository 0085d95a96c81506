"""Failures: the exceptions of operations of an endpoint that failed, and of calls after its connection has ended."""

from __future__ import annotations

import errno
from abc import abstractmethod
from typing import TYPE_CHECKING

from anyio import ClosedResourceError

from .._ffi import constants
from ..cq.operation import State
from ..errors import (
    FabricConnectionEndedError,
    FabricConnectionResetError,
    FabricError,
    TruncatedMessageError,
    from_errno,
)
from ..features import Quirk
from .interfaces import RouteOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..address_vector import Peer
    from ..cq.queue import ErrorEntry
    from ..cq.submission import SubmissionQueue, Transfer
    from .interfaces import Undelivered
    from .route import Route

__all__ = ["Failures", "Refill", "removed"]


class Refill(Exception):
    """Ends a posted receive: its task looks for a message elsewhere, and posts a receive again."""


def removed(peer: Peer) -> BaseException:
    """The error of operations that name a removed peer."""
    return ClosedResourceError(f"the peer {peer.address} was removed")


# Errors of operations that were in flight when the connection ended, such as a partly filled receive or a partly sent
# message.
_ENDED = frozenset(
    (errno.EPIPE, constants.FI_ENOTCONN, constants.FI_ECONNRESET, constants.FI_ECONNABORTED, constants.FI_ESHUTDOWN)
)
# verbs reports these with FI_EIO, as ``prov_errno`` (enum ibv_wc_status).
_REM_ACCESS_ERR = 10
# After these the connection is lost, for this reason if it is known: IBV_WC_LOC_QP_OP_ERR; IBV_WC_REM_OP_ERR, when the
# peer's process ended meanwhile; IBV_WC_RETRY_EXC_ERR.
_LOSSES = {
    2: "The device of this host could not send. Check its link (ip link, rdma link)",
    11: "",
    12: "The peer's device did not answer. Check the links between the two",
}


def _refused_access(endpoint: Failures) -> str:
    """The access to memory for which the provider may have ended the connection, in words; empty if there was none."""
    if endpoint.last_access is not None:
        what, size = endpoint.last_access
        return (
            f"The last access to the peer's memory was {what} of {size} bytes. The peer's provider ends the "
            "connection if the key is not registered (any more), the range leaves the region, or the access was "
            "not granted"
        )
    if endpoint.regions.exposed:
        return (
            "This process has registered memory for remote access. If the peer accessed it with a wrong key, "
            "range or kind of access, the provider has ended the connection for that reason"
        )
    return ""


class Failures(RouteOwner):
    """An endpoint handle's errors."""

    __slots__ = ()

    end_received: bool
    ending: bool
    gone: Callable[[], BaseException] | None
    loss: str
    private: dict[Transfer, None]
    recalled: dict[Transfer, Callable[[], BaseException]]
    rx: SubmissionQueue
    tx: Route | None

    @property
    @abstractmethod
    def peer_name(self) -> object:
        """The peer of a connected endpoint."""

    @abstractmethod
    def lost_because(self, words: str) -> None:
        """The reason for the loss of the connection, or "". The first one that is not empty counts."""

    @abstractmethod
    def peer_ended(self) -> None:
        """The connection has ended."""

    @abstractmethod
    def send_no_more(self, error: Callable[[], BaseException]) -> None:
        """Refuse later sends, reads and writes with this error."""

    def lost_peer(self) -> BaseException:
        if self.ending:
            return self.closed_error()
        if self.end_received:
            return FabricConnectionEndedError(constants.FI_ECONNRESET, "connection", peer=self.peer_name)
        detail = self.loss or _refused_access(self)
        return FabricConnectionResetError(constants.FI_ECONNRESET, "connection", peer=self.peer_name, detail=detail)

    def closed_error(self) -> BaseException:
        return ClosedResourceError(f"this {self.what} was closed while the operation was in flight")

    def flushed(self, code: int) -> bool:
        """Whether an operation failed only because the connection ended, or because it was cancelled."""
        return code == constants.FI_ECANCELED or (self.tx is not None and code in _ENDED)

    def explain(self, transfer: Transfer, entry: ErrorEntry) -> BaseException:
        """The exception for a failed operation."""
        if Quirk.NO_END_EVENT in self.known and self.gone is None and not self.source.driver.closed():
            self.source.driver.call_soon(self.peer_ended)  # later: this runs during a read of the queue
        lost = Quirk.DEVICE_ANSWERS in self.known and entry.provider_errno in _LOSSES
        if lost:
            self.lost_because(_LOSSES[entry.provider_errno])
        if self.flushed(constants.FI_ECONNRESET if lost else entry.errno):
            if transfer.state in (State.CANCELLING, State.ABANDONED):
                return ClosedResourceError("cancelled")  # the caller has left, so no task gets this error
            if transfer in self.recalled:
                return self.recalled.pop(transfer)()
            if self.closed:
                return self.closed_error()
            if self.gone is None and self.tx is not None:
                self.send_no_more(self.lost_peer)
            return (self.gone or self.lost_peer)()
        return self.failure(transfer.what, entry, transfer.length, transfer.owner.name)

    def refill(self, undelivered: Undelivered) -> None:
        """A cancelled receive left a message behind: give it to the oldest posted receive that it fits.

        Without this, that receive would wait for a later message.
        """
        for transfer in self.rx.posted:
            if undelivered.fits_receive(transfer) and self.recall(transfer, Refill):
                return

    def recall(self, receive: Transfer, error: Callable[[], BaseException]) -> bool:
        """Cancel a posted receive that a task waits for, and end it with this error. False: that is impossible.

        If a message arrives before the provider has cancelled the receive, the task gets the message.
        """
        if receive.state is not State.POSTED or receive in self.recalled or self.source.driver.closed():
            return False
        if self.cancel(receive.slot.pointer) != -constants.FI_ENOSYS:
            self.recalled[receive] = error
            self.source.touch()
        elif receive in self.private:
            self.rx.dismiss(receive, error())
        else:  # memory of the caller, which the provider could still write to after the receive returned
            return False
        return True

    def failure(self, call: str, entry: ErrorEntry, limit: int, peer: object) -> FabricError:
        """The exception for an error entry."""
        stale = Quirk.STALE_PROVIDER_ERRNO in self.known
        refused = Quirk.DEVICE_ANSWERS in self.known and entry.provider_errno == _REM_ACCESS_ERR
        error = from_errno(
            constants.FI_EACCES if refused else entry.errno,
            call,
            provider_errno=0 if stale else entry.provider_errno,
            provider_text="" if stale else entry.text,
            peer=peer,
        )
        if isinstance(error, TruncatedMessageError):
            error.limit = limit
            error.size = limit + entry.overflow if entry.overflow else None  # rxm counts the overflow in len as well
        return error
