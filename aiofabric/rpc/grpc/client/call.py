"""Call: the part of the call objects that all four kinds have."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...._core import CallObject
from ...protocol.status import StatusCode
from ..callbacks import check_callback
from ..grpcio import CODES, aio, grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....cq.loops.bursts import Burst
    from .rpc import ClientRpc

__all__ = ["Call", "StreamingCall"]


class Call(CallObject):
    """A call object. It has a `ClientRpc`, which does not know it."""

    __slots__ = ()

    _rpc: ClientRpc
    _deserializer: Callable[[bytes], Any] | None

    def cancel(self) -> bool:
        """End the call here at once, and tell the server; False if it has ended. Raises WrongThreadError in another
        thread."""
        rpc = self._rpc
        if rpc.channel is not None:
            rpc.channel.check_thread()
        return rpc.cancel_locally()

    def cancelled(self) -> bool:
        """Whether the call ended with the status CANCELLED."""
        final = self._rpc.final
        return final is not None and final.code == StatusCode.CANCELLED

    def done(self) -> bool:
        """Whether the call has ended, and all its messages were read."""
        return self._rpc.final is not None

    def time_remaining(self) -> float | None:
        """Seconds until the deadline; None without one."""
        deadline = self._rpc.deadline
        return None if deadline is None else max(0.0, deadline - monotonic())

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback`` with this object when the call has ended."""
        check_callback(callback)
        self._rpc.when_done(partial(callback, self))

    async def initial_metadata(self) -> Any:
        """Wait for the metadata that the server sends first."""
        return aio.Metadata(*await self._rpc.headers())

    async def trailing_metadata(self) -> Any:
        """Wait for the metadata that goes with the status."""
        return aio.Metadata(*(await self._rpc.end()).metadata)

    async def code(self) -> Any:
        """Wait for the status code."""
        return CODES.get((await self._rpc.end()).code, grpc.StatusCode.UNKNOWN)

    async def details(self) -> str:
        """Wait for the status text."""
        return (await self._rpc.end()).details

    async def debug_error_string(self) -> str:
        """Wait for the end. gRPC's C core gives a text of its own here; this is the empty string."""
        await self._rpc.end()
        return ""

    async def wait_for_connection(self) -> None:
        """Wait until the call has a connection; raises the error of a call that has ended with one."""
        rpc = self._rpc
        await rpc.connected()
        if rpc.final is not None:
            rpc.check()

    def __repr__(self) -> str:
        name, final = type(self).__name__, self._rpc.final
        if final is None:
            return f"<{name} object>"
        status = f"\tstatus = {CODES.get(final.code)}\n\tdetails = {final.details!r}"
        return f"<{name} of RPC that terminated with:\n{status}\n>"


class StreamingCall(Call):
    """A call with many requests or many responses."""

    __slots__ = ("_burst", "_half_closed", "_iterates", "_serializer", "_style")

    _burst: Burst
    _half_closed: bool
    """No more requests follow."""
    _iterates: bool
    """The requests come from an iterator."""
    _serializer: Callable[[Any], bytes] | None
    _style: str
    """How responses are read: `iterator` or `read`; empty before the first one."""
