"""Acceptor: the accept loop of servers. A request that cannot be accepted ends no other connection."""

from __future__ import annotations

import errno
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

_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_PAUSE: Final = 0.1  # seconds without further requests after a failure
_SHORTAGE_PAUSE: Final = 1.0  # as asyncio: the descriptors or the memory of other connections must become free


class Acceptor:
    """The requests of a listener, one after the other. After a failure of `accept`, the next one is taken later.

    A failure is logged once for each pause. A client that has left, or that has another protocol, causes no pause.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._resumes = 0.0  # when the next request may be taken

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
            return await accepting()
        except ConnectionError as error:
            _log.info("no connection with %s: %s", request.address, error)
        except OSError as error:
            self._failed(request, error)
        return None

    async def _pause(self) -> None:
        if (pause := self._resumes - anyio.current_time()) > 0:
            await anyio.sleep(pause)

    def _failed(self, request: ConnectionRequest, error: OSError) -> None:
        pause = _SHORTAGE_PAUSE if error.errno in _SHORTAGES else _PAUSE
        now = anyio.current_time()
        if now >= self._resumes:
            _log.warning(
                "a connection with %s could not be accepted: %s. More are accepted in %s s",
                request.address,
                error,
                pause,
            )
        self._resumes = max(self._resumes, now + pause)
