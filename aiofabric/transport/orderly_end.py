"""OrderlyEnd: how an endpoint handle tells its peer of the end of a connection (see connected/closing.py)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from anyio import ClosedResourceError

from ..errors import FabricError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cq.source import Source
    from .route import Route

__all__ = ["OrderlyEnd"]


class OrderlyEnd:
    """Sends the end of the connection to the peer, and handles the end that the peer sends."""

    __slots__ = ()

    closed: bool
    end_mark: int
    gone: Callable[[], BaseException] | None
    native_open: bool
    on_end: Callable[[], object] | None
    source: Source
    tx: Route | None

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

    async def tell_end(self) -> bool:
        """Announce the end to the peer, behind all earlier sends. Returns whether the peer will answer by ending,
        too."""
        assert self.tx is not None
        if self.end_mark:
            self.post_end()
            return True
        await self.tx.drained()
        return False
