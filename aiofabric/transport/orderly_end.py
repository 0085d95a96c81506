"""OrderlyEnd: how an endpoint handle tells its peer of the end of a connection, and sends no more afterwards.

See also connected/closing.py.
"""

from __future__ import annotations

import errno
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING

from anyio import ClosedResourceError

from ..errors import FabricBrokenPipeError, FabricError
from .interfaces import RouteOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .route import Route

__all__ = ["OrderlyEnd"]


class OrderlyEnd(RouteOwner):
    """Sends the end of the connection to the peer, and handles the end that the peer sends."""

    __slots__ = ()

    end_mark: int
    gone: Callable[[], BaseException] | None
    on_end: Callable[[], object] | None
    tx: Route | None

    @property
    @abstractmethod
    def peer_name(self) -> object:
        """The peer of a connected endpoint."""

    @property
    @abstractmethod
    def routes(self) -> Iterable[Route]:
        """All routes of the endpoint."""

    @property
    def live(self) -> bool:
        """Whether a message may still be sent to the peer; also true while the program closes the connection."""
        return self.native_open and self.gone is None and not self.closed

    def peer_ended(self) -> None:
        if self.on_end is not None and self.gone is None and not self.closed:
            self.on_end()

    def post_end(self) -> None:
        """Post the end mark, behind all earlier sends."""
        assert self.tx is not None
        with suppress(FabricError, ClosedResourceError):  # a failed send means that the connection is ending anyway
            self.tx.post(b"", None, self.end_mark)

    def end_at_once(self) -> None:
        """The endpoint closes without waiting: send the end mark, unless earlier sends are still queued."""
        if self.end_mark and self.tx is not None and not self.tx.waiting and not self.source.driver.closed():
            self.post_end()

    async def send_end(self) -> bool:
        """Announce the end to the peer, behind all earlier sends. Returns whether the peer will also end the connection
        in response."""
        assert self.tx is not None
        if self.end_mark:
            self.post_end()
            return True
        await self.tx.drained()
        return False

    def shutdown(self) -> None:
        """Tell the peer that no more data comes: by the end mark, or by fi_shutdown if the peer has no end mark."""
        if self.tx is not None:
            self.tx.keep_socket(-1)
        if self.end_mark:
            self.post_end()
            self.send_no_more(self._shut_down)
        else:
            self.shut_down_native()

    @abstractmethod
    def shut_down_native(self) -> None:
        """Tell the provider that no more data comes."""

    def send_no_more(self, error: Callable[[], BaseException]) -> None:
        """Refuse later sends, reads and writes, also those of aliases. The end of the connection is not known yet."""
        aliases = (each for each in self.children if isinstance(each, OrderlyEnd))
        for handle in (self, *aliases):
            for route in handle.routes:
                if route.shut is None:
                    route.close_off(error)

    def _shut_down(self) -> BaseException:
        return FabricBrokenPipeError(errno.EPIPE, "fi_send", peer=self.peer_name, detail="shutdown() was called")
