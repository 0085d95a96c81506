"""Listener: accepts the connection requests that arrive at a passive endpoint (fi_cm)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from anyio import ClosedResourceError

from ..arguments import check_type
from ..resource import Resource
from ..settings import EndpointSettings
from .requests import ConnectionRequest, ListenerStatistics, RequestQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..address import Address
    from ..info import Info
    from ..transport.connected.endpoint import MessageEndpoint
    from ..transport.opening.keywords import EndpointKeywords

__all__ = ["Listener"]


class Listener(Resource):
    """Accepts connections; an async iterator of `ConnectionRequest`. Entered from `aiofabric.listen`.

    Closing it leaves the accepted endpoints alive.
    """

    __slots__ = ("_accept", "info")
    _handle: RequestQueue

    def __init__(
        self,
        handle: RequestQueue,
        info: Info,
        accept: Callable[[ConnectionRequest, bytes, EndpointKeywords], Awaitable[MessageEndpoint]],
    ) -> None:
        check_type("handle", handle, RequestQueue)
        self.info = info
        self._accept = accept
        self._handle = handle

    @property
    def address(self) -> Address:
        """The listening address; if port 0 was asked for, ``address.port`` is the chosen one (fi_getname)."""
        self._handle.check_open()
        return self._handle.address()

    @property
    def fabric_address(self) -> Address:
        """The raw address of the listening endpoint, in the provider's own format, for ``connect(..., raw=True)``.

        If the provider has connections of its own, this equals ``address``. Otherwise `address` is a TCP port, and this
        is the address of a connectionless endpoint. That endpoint answers queries from the first access of this
        property on. If its provider signals no file descriptor (shm), it is polled from then on, 200 times a second.

        Raises:
            FabricError: (FI_EADDRINUSE) another listener of this loop already uses that address, because the two share
                an endpoint. A listener with a ``domain=`` of its own has an address of its own.
            ClosedResourceError: the listener is closed.
        """
        self._handle.check_open()
        return self._handle.fabric_address()

    @property
    def settings(self) -> EndpointSettings:
        """Options of the passive endpoint, and the provider's own backlog (fi_getopt, fi_control)."""
        return EndpointSettings(self._handle, self.info)

    async def accept_request(self) -> ConnectionRequest:
        """The next connection request. Cancelling loses none.

        Raises:
            ClosedResourceError: the listener is closed.
            FabricError: the provider cannot wait for requests (fi_trywait); or the device was removed (FI_ENODEV).
        """
        handle = self._handle
        handle.check_open()
        driver = handle.source.driver
        if driver.checkpoint_if_cancelled is not None:
            await driver.checkpoint_if_cancelled()
        if handle.pending:
            await handle.source.yield_to_loop()
            handle.check_open()
        request = handle.pending.popleft() if handle.pending else await self._next()
        request._accept = self._accept
        return request

    async def _next(self) -> ConnectionRequest:
        handle = self._handle
        if handle.lost is not None:
            raise handle.lost()
        waiter = handle.source.driver.create_waiter()
        handle.waiters.append(waiter)
        handle.source.touch()  # which finds out whether the event queue can be waited for
        try:
            request = await waiter
        except BaseException:
            if waiter.done():
                if isinstance(waiter.result(), ConnectionRequest):
                    handle.requeue(waiter.result())
            elif waiter in handle.waiters:
                handle.waiters.remove(waiter)
            raise
        if request is None:
            raise ClosedResourceError("this listener was closed")
        if isinstance(request, BaseException):
            raise request
        result: ConnectionRequest = request
        return result

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConnectionRequest:
        try:
            return await self.accept_request()
        except ClosedResourceError:
            raise StopAsyncIteration from None

    def statistics(self) -> ListenerStatistics:
        """Counters; see `ListenerStatistics`."""
        return ListenerStatistics(pending=len(self._handle.pending), **self._handle.counts)

    def __repr__(self) -> str:
        where = "closed" if self.closed else f"at {self.address}"
        return f"<Listener {where}>"
