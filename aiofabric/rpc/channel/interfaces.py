"""PendingCall: what a channel does with its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..protocol.calls import Status
    from ..protocol.metadata import Metadata
    from .subchannel import ChannelConnection

__all__ = ["PendingCall"]


class PendingCall(Protocol):
    """A call that may wait for a connection; see `ChannelCall`."""

    method: str
    metadata: Metadata
    wait_for_ready: bool | None
    over: bool
    attached: bool
    plain: bool

    def attempt(self, connection: ChannelConnection) -> None: ...
    def fail(self, details: str) -> None: ...
    def end_here(self, status: Status) -> None: ...
    def cancel(self, code: int = ..., details: str = ...) -> bool: ...
