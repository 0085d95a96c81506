"""Acceptor: the accept loop of servers. A request that cannot be accepted ends no other connection."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Self, TypeVar

import anyio
from anyio import ClosedResourceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .listener import Listener
    from .requests import ConnectionRequest

__all__ = ["Acceptor"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PAUSE: Final = 0.1
"""Seconds without further requests after a failure. With 2.x each request that waits has a socket: at the limit of
descriptors none can be accepted before some were rejected. With a pause of one second that took half a minute.
"""


class Acceptor:
    """The requests of a listener, one after the other. After a failure of `accept`, the next one is taken later.

    The first failure is logged, and the next one after a request was accepted. A client that has left, or that has
    another protocol, causes no pause.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._resumes = 0.0  # when the next request may be taken
        self._fails = False  # since the last one that was accepted

    async def next_request(self) -> ConnectionRequest:
        """The next request; see `Listener.accept_request`."""
        await self._pause()
        return await self._listener.accept_request()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConnectionRequest:
        try:
            return await self.next_request()
        except ClosedResourceError:
            raise StopAsyncIteration from None

    async def accept(self, request: ConnectionRequest, accepting: Callable[[], Awaitable[T]]) -> T | None:
        """The result of ``accepting``, which accepts the request; None if it fails."""
        await self._pause()  # the loop may have waited for this request when an earlier one failed
        try:
            accepted = await accepting()
        except ConnectionError as error:
            _log.info("no connection with %s: %s", request.address, error)
        except OSError as error:
            self._failed(request, error)
        else:
            self._fails = False
            return accepted
        return None

    async def _pause(self) -> None:
        if (pause := self._resumes - anyio.current_time()) > 0:
            await anyio.sleep(pause)

    def _failed(self, request: ConnectionRequest, error: OSError) -> None:
        if not self._fails:
            _log.warning("a connection with %s could not be accepted: %s. More are tried", request.address, error)
        self._fails = True
        self._resumes = anyio.current_time() + _PAUSE
