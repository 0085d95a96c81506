"""RequestQueue: the connection requests of a listener that have no answer yet."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from ..errors import FabricError
from ..observe import ended, span
from ..resource import Handle
from .handshake import check_param
from .preface import MAX_PARAM, Preface, redirection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Unpack

    from typing_extensions import Buffer

    from ..address import Address
    from ..cq.loops.drivers import Waiter
    from ..cq.source.source import Source
    from ..info import Info
    from ..transport.connected.endpoint import MessageEndpoint
    from ..transport.opening.keywords import EndpointKeywords

__all__ = ["ConnectionRequest", "ListenerStatistics", "RequestQueue"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """``pending`` requests wait to be accepted or rejected; the other fields count since the listener opened.

    ``overflowed`` requests were rejected because ``backlog`` others were waiting. ``cut_off`` counts connections that
    did not become a request: they sent an incomplete request, sent nothing within the time limit, or were replaced
    because too many clients were silent.
    """

    pending: int
    requests: int
    accepted: int
    rejected: int
    overflowed: int
    cut_off: int


class RequestQueue(Handle, ABC):
    """A listening native object, and the requests that were not taken yet."""

    __slots__ = (
        "backlog",
        "counts",
        "lost",
        "on_release",
        "param_limit",
        "pending",
        "screen",
        "source",
        "unanswered",
        "waiters",
    )

    def __init__(self, fid: Any, parent: Handle, source: Source, backlog: int) -> None:
        super().__init__("Listener", fid, parent)
        self.source = source
        self.backlog = backlog
        self.param_limit = MAX_PARAM  # bytes of private data of an answer
        self.pending: deque[ConnectionRequest] = deque()
        self.unanswered: dict[ConnectionRequest, None] = {}
        self.waiters: deque[Waiter] = deque()
        self.counts = {"requests": 0, "accepted": 0, "rejected": 0, "overflowed": 0, "cut_off": 0}
        self.screen: Callable[[ConnectionRequest], bool] | None = None
        self.lost: Callable[[], FabricError] | None = None  # makes the error, since no more requests can arrive
        self.on_release: Callable[[], None] | None = None

    def on_loop_end(self, driver: object) -> None:
        self.over = self.over or self.source.driver is driver

    @abstractmethod
    def address(self) -> Address:
        """The listening address."""

    def fabric_address(self) -> Address:
        """The listening address in the provider's own format."""
        return self.address()

    @abstractmethod
    def refuse(self, request: ConnectionRequest, data: bytes) -> None:
        """Send the rejection to the peer."""

    def arrived(self, request: ConnectionRequest) -> None:
        """Give the request to the task that waits longest, or keep it."""
        self.unanswered[request] = None
        self.counts["requests"] += 1
        if not self._wanted(request):
            _log.debug("%r: rejected by the accept= predicate", request)
            if request in self.unanswered:  # otherwise the predicate has already called reject(), with private data
                self.dismiss(request)
        elif not self._hand_out(request):
            if len(self.pending) >= self.backlog:
                self.counts["overflowed"] += 1
                if self.counts["overflowed"] == 1:  # once: a flood of requests must not flood the log
                    _log.warning(
                        "%s requests wait at the listener opened at %s; more are rejected", self.backlog, self.opened_at
                    )
                self.dismiss(request)
            else:
                self.pending.append(request)

    def cut_off(self) -> None:
        """A client was disconnected before it sent a request."""
        self.counts["cut_off"] += 1

    def requeue(self, request: ConnectionRequest) -> None:
        """The task that got the request was cancelled: pass it on, unless closing has answered it meanwhile."""
        if request in self.unanswered and not self._hand_out(request):
            self.pending.appendleft(request)

    def _wanted(self, request: ConnectionRequest) -> bool:
        try:
            return self.screen is None or (self.screen(request) and request in self.unanswered)
        except Exception as error:  # without an answer, the peer would wait for ever
            self.source.driver.report("aiofabric: a listener's accept= failed", error)
            return False

    def _hand_out(self, request: ConnectionRequest) -> bool:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(request)
                return True
        return False

    def fail_waiters(self, error: BaseException) -> int:
        """Raise the error in all tasks that wait for a request, because none can arrive; return their number."""
        count = 0
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(error)
                count += 1
        return count

    def answered(self, request: ConnectionRequest, how: str) -> None:
        """Count the answer; a request has only one."""
        del self.unanswered[request]
        self.counts[how] += 1

    def dismiss(self, request: ConnectionRequest, data: bytes = b"") -> None:
        """Reject the request."""
        self.answered(request, "rejected")
        self.refuse(request, data)

    def withdraw(self, request: ConnectionRequest) -> None:
        """Reject the request after an accept that failed before it called the provider. Otherwise, the peer would wait
        for ever. The request is counted as accepted, so no other call can answer it.
        """
        with suppress(FabricError):
            self.refuse(request, b"")

    def release(self) -> None:
        """Reject waiting requests, close the native object, wake waiting tasks."""
        self.pending.clear()
        try:
            for request in list(self.unanswered):
                with suppress(FabricError):  # the request has ended by itself
                    self.dismiss(request)
            ended.add("", **self.counts)
            self.release_native()
        finally:
            while self.waiters:
                waiter = self.waiters.popleft()
                if not waiter.done() and not self.source.driver.closed():
                    waiter.set_result(None)
            if self.on_release is not None:
                self.on_release()

    @abstractmethod
    def release_native(self) -> None:
        """Stop listening."""


class ConnectionRequest:
    """A request for a connection. It must be accepted or rejected exactly once. A request that is dropped without an
    answer keeps its socket open.

    Attributes:
        param: the private data that came with the request, at most 256 bytes.
        address: the peer's address.
    """

    def __init__(
        self,
        listener: RequestQueue,
        info: Info,
        param: bytes,
        address: Address | None,
        descriptor: int | None = None,
        fid: Any = None,
    ) -> None:
        self._listener = listener
        self._descriptor = descriptor  # of the connection's TCP socket, if known
        self._fid = fid  # libfabric's request, until it is answered or ends with an endpoint that could not be opened
        self.info = info
        self.param, self.preface = Preface.split(param)
        self.address = address
        self._accept: Callable[[ConnectionRequest, bytes, EndpointKeywords], Awaitable[MessageEndpoint]] | None = None

    async def accept(self, *, param: Buffer = b"", **options: Unpack[EndpointKeywords]) -> MessageEndpoint:
        """Accept with private data; return the connected `MessageEndpoint`.

        Cancelling closes the connection. ``options`` override the listener's (``recv_size``, ``recv_count``...).

        Raises:
            FabricConnectionAbortedError: the peer went away meanwhile.
            ValueError: more private data than the provider carries (tcp: 256 bytes, verbs: 55); the request can still
                be answered.
            ValueError, TypeError: an unknown option or a wrong value. The request is then rejected, as always if the
                endpoint cannot be opened.
            RuntimeError: the request was answered already.
            ClosedResourceError: the listener is closed, which rejected the request.

        Man page: fi_cm (fi_accept).
        """
        data = check_param(param, self._listener.param_limit)
        self._check_unanswered()
        self._listener.answered(self, "accepted")
        assert self._accept is not None
        with span("accept", peer=self.address, provider=self.info.fabric_attr.prov_name):
            return await self._accept(self, data, options)

    def reject(self, *, param: Buffer = b"") -> None:
        """Reject the request, with private data that the peer gets as ``FabricConnectionRejectedError.param``.

        Raises:
            ValueError: more private data than the provider carries (tcp: 256 bytes, verbs: 55).
            RuntimeError: the request was answered already.
            ClosedResourceError: the listener is closed, which rejected the request.

        Man page: fi_cm (fi_reject).
        """
        data = check_param(param, self._listener.param_limit)
        self._check_unanswered()
        self._listener.dismiss(self, data)

    def redirect(self, port: int) -> None:
        """Reject the request; the peer's `connect` then connects to this port of the same host, on its own.

        So several processes can serve at one port: one listens there, and sends each client on to the next. A peer
        without aiofabric is rejected. A `connect` follows four redirections at most.

        Raises:
            ValueError, TypeError: not a port number between 1 and 65535; the request can still be answered.
            RuntimeError: the request was answered already.
            ClosedResourceError: the listener is closed, which rejected the request.
        """
        if isinstance(port, bool) or not isinstance(port, SupportsIndex):
            raise TypeError(f"port must be a number, not {port!r}")
        if not 0 < index(port) < 1 << 16:
            raise ValueError(f"a port must be 1 to 65535, not {port}")
        self.reject(param=redirection(index(port)))

    @property
    def answered(self) -> bool:
        """Whether the request was accepted or rejected."""
        return self not in self._listener.unanswered

    def _check_unanswered(self) -> None:
        self._listener.check_open()  # a forked child that rejects would end the parent's connection
        if self.answered:
            raise RuntimeError("this connection request was answered already")

    def __repr__(self) -> str:
        return f"<ConnectionRequest from {self.address} with {len(self.param)} bytes of private data>"
