"""Address query: ask the multiplexer at a raw fabric address, through the fabric, for its OOB listener's host and port.

Some programs know only the raw address of a peer. The TCP port of its OOB listener cannot be derived from it. The query
is one small message with the sender's own raw address. The reply has a host and a port. Everything after it works as
with a known host and port. This includes the OOB socket, whose end shows that the peer has ended.

Any process can send queries. A query costs the listener one peer address for `_TIMEOUT` seconds. If too many queries
arrive, the oldest reply is given up. Messages that are not queries are dropped.
"""

from __future__ import annotations

import errno
import secrets
import socket
import struct
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio import ClosedResourceError

from ..._ffi import constants
from ...errors import FabricConnectionAbortedError, FabricError
from .protocol import KIND, QUERY, QUERY_REPLY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...address import Address
    from ...address_vector import Peer
    from ...cm.requests import RequestQueue
    from ...cq.loops.drivers import Waiter
    from ...cq.source.source import Source
    from ..connectionless.endpoint import RdmEndpoint
    from ..connectionless.handle import ConnectionlessHandle
    from .receive_pools import SharedBuffer

__all__ = ["AT_ONCE", "QUERY_SIZE", "AddressQueries"]

QUERY_SIZE = 1280
"""Bytes of the longest query: UCX has addresses of 1,024 bytes."""
_VERSION = 1
_HEAD = struct.Struct("!B8s")  # version, and the number of the query
_PORT = struct.Struct("!H")
AT_ONCE = 16  # queries that may arrive together; others wait at the provider
_TIMEOUT = 5.0  # seconds that a reply may take to reach the sender of the query
_ANSWERS_MOST = 64
_AGAIN = 1.0  # seconds until a query is sent again


class QuerySender(Protocol):
    """The parts of the multiplexer that queries need."""

    host: int
    source: Source

    @property
    def endpoint(self) -> RdmEndpoint: ...
    @property
    def handle(self) -> ConnectionlessHandle: ...
    def acquire_peer(self, raw: bytes, /) -> Peer: ...
    def check_memory(self, address: Address, whose: str, /) -> None: ...
    def release_peer(self, peer: Peer, /) -> None: ...


class AddressQueries:
    """The queries and replies of one multiplexer."""

    def __init__(self, multiplexer: QuerySender) -> None:
        self._multiplexer = multiplexer
        self._listener: RequestQueue | None = None
        self._waiters: dict[bytes, Waiter] = {}
        self._answered: dict[Peer, Callable[[], None]] = {}  # peer -> cancels the timer that removes it

    @property
    def busy(self) -> bool:
        """Whether a message may arrive that a provider without a descriptor does not signal."""
        return self._listener is not None or bool(self._waiters)

    # -- answering

    def answer_for(self, listener: RequestQueue) -> None:
        """Reply to queries with this listener's OOB listener from now on.

        Raises:
            FabricError: (FI_EADDRINUSE) another listener has this multiplexer's address.
        """
        if self._listener is None:
            self._listener = listener
            self._multiplexer.source.interest += 1
            self._multiplexer.source.wake()
        elif self._listener is not listener:
            detail = (
                f"The listener opened at {self._listener.opened_at} already uses this address: listeners of one "
                "loop share an endpoint. Give each listener a domain= of its own"
            )
            raise FabricError(constants.FI_EADDRINUSE, "fabric_address", detail=detail)

    def retire(self, listener: RequestQueue) -> None:
        """The listener is closing."""
        if self._listener is listener:
            self._listener = None
            self._multiplexer.source.interest -= 1
            for peer in list(self._answered):
                self._forget(peer)

    def arrived(self, buffer: SharedBuffer, tag: int) -> None:
        """A query or a reply has arrived."""
        body = bytes(buffer.view)
        buffer.pool.recycle(buffer)
        if len(body) <= _HEAD.size:
            return
        version, number = _HEAD.unpack_from(body)
        if version != _VERSION:
            return
        if tag & KIND == QUERY_REPLY & KIND:
            waiter = self._waiters.get(number)
            if waiter is not None and not waiter.done():
                waiter.set_result(body[_HEAD.size :])
        elif self._listener is not None:
            with suppress(ValueError, FabricError):  # an invalid address
                self._answer(number, body[_HEAD.size :], self._listener.address())

    def _answer(self, number: bytes, raw: bytes, listener: Address) -> None:
        multiplexer = self._multiplexer
        if len(self._answered) >= _ANSWERS_MOST:
            self._forget(next(iter(self._answered)))
        peer = multiplexer.acquire_peer(raw)
        if peer in self._answered:
            self._forget(peer)
        self._answered[peer] = multiplexer.source.driver.call_later(_TIMEOUT, lambda: self._forget(peer))
        host = listener.host or ""
        # the client uses the address of this host by which it knows it; otherwise the host's name
        if ip_address(host).is_unspecified:
            host = "" if multiplexer.endpoint.local_address.host else socket.gethostname()
        body = _HEAD.pack(_VERSION, number) + _PORT.pack(listener.port or 0) + host.encode()
        route = multiplexer.handle.route_to(peer)
        if not route.inject(body, QUERY_REPLY):
            route.post(body, QUERY_REPLY)

    def _forget(self, peer: Peer) -> None:
        cancel = self._answered.pop(peer, None)
        if cancel is not None:
            cancel()
            self._multiplexer.handle.route_to(peer).fail_waiting(self._multiplexer.handle.closed_error)
            self._multiplexer.release_peer(peer)

    # -- asking

    async def ask(self, address: Address) -> tuple[str, int]:
        """Host and port of the OOB listener at a raw address. There is no time limit: the caller sets one.

        Raises:
            ValueError: the address is not one of this multiplexer's provider.
            FabricError: the provider cannot reach it.
        """
        multiplexer = self._multiplexer
        address = multiplexer.endpoint.vector.fit(address)
        peer = multiplexer.acquire_peer(address.raw)
        number = secrets.token_bytes(8)
        waiter = self._waiters[number] = multiplexer.source.driver.create_waiter()
        multiplexer.source.interest += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_asking, peer, number, waiter)
                answer = await waiter
                tasks.cancel_scope.cancel()
        finally:
            multiplexer.source.interest -= 1
            del self._waiters[number]
            multiplexer.release_peer(peer)
        if isinstance(answer, BaseException):
            raise answer
        return _place(answer, address)

    async def _keep_asking(self, peer: Peer, number: bytes, waiter: Waiter) -> None:
        question = _HEAD.pack(_VERSION, number) + self._multiplexer.endpoint.local_address.raw
        try:
            while not waiter.done():
                self._multiplexer.check_memory(peer.address, "the peer's")
                await self._multiplexer.endpoint.send_tagged(question, QUERY, to=peer)
                await anyio.sleep(_AGAIN)
        except FabricError as error:
            if not waiter.done():
                waiter.set_result(error)

    def end(self) -> None:
        """The multiplexer is closed."""
        for waiter in self._waiters.values():
            if not waiter.done() and not self._multiplexer.source.driver.closed():
                waiter.set_result(ClosedResourceError("the endpoint was closed while it was connecting"))


def _place(answer: bytes, address: Address) -> tuple[str, int]:
    try:
        port = _PORT.unpack_from(answer)[0]
        host = answer[_PORT.size :].decode() or address.host
    except (struct.error, UnicodeDecodeError):
        host = port = None
    if not host or not port:
        detail = "The endpoint that replies there has no listener"
        raise FabricConnectionAbortedError(errno.EPROTO, "connect", peer=address, detail=detail)
    return host, port
