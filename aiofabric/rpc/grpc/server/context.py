"""ServicerContext: what asynchronous handlers get."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from ..callbacks import check_callback
from ..grpcio import EOF, aio, code_number
from ..messages import serialized
from ..metadata import Metadatum, named, wire, wire_trailing
from ..names import peer_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rpc import ServerRpc

__all__ = ["ServicerContext"]


def check_details(details: object) -> None:
    """Raise TypeError unless a status text is `str`."""
    if not isinstance(details, str):
        raise TypeError(f"The details of a status must be str, not {details!r}")


class ServicerContext:
    """The context of one call, as grpc.aio's."""

    __slots__ = ("__weakref__", "_deserializer", "_rpc", "_serializer")

    def __init__(
        self,
        rpc: ServerRpc,
        deserializer: Callable[[bytes], Any] | None = None,
        serializer: Callable[[Any], bytes] | None = None,
    ) -> None:
        self._rpc = rpc
        self._deserializer = deserializer
        self._serializer = serializer

    # -- messages

    async def read(self) -> Any:
        """The next request; EOF after the last one."""
        rpc = self._rpc
        rpc.check()
        message = await rpc.receive()
        if message is EOF:
            rpc.check()
            return EOF
        return message if self._deserializer is None else self._deserializer(message)

    async def write(self, message: Any) -> None:
        """Send a response; wait while the client has no room."""
        rpc = self._rpc
        rpc.check()
        await rpc.transmit(serialized(message, self._serializer, True))

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Send metadata before the first response: once."""
        rpc = self._rpc
        rpc.check()
        if rpc.sent_headers:
            raise aio.UsageError("The initial metadata of this call was sent already")
        rpc.send_headers(wire(initial_metadata))

    # -- the status

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """End the call with an error now; raises AbortError, which the handler must let through."""
        rpc = self._rpc
        if rpc.aborted is not None:
            raise aio.UsageError("abort() was called already")
        check_details(details)
        rpc.aborted = error = aio.AbortError("Locally aborted.")
        if len(trailing_metadata) or not rpc.trailing:
            self.set_trailing_metadata(trailing_metadata)
        if details or not rpc.details:
            rpc.details = details
        self.set_code(code)
        if not rpc.code_number:  # OK is no error
            rpc.code_number = 2
        rpc.conclude()
        raise error

    async def abort_with_status(self, status: Any) -> NoReturn:
        """`abort` with a status, such as grpcio-status makes it."""
        await self.abort(status.code, status.details, status.trailing_metadata)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Set the metadata that goes with the status."""
        self._rpc.trailing = wire_trailing(trailing_metadata)
        self._rpc.trailing_given = tuple(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """The metadata that goes with the status, as it was set."""
        given = self._rpc.trailing_given
        return () if given is None else given

    def set_code(self, code: Any) -> None:
        """Set the status code; any but OK makes the call fail, without an exception."""
        self._rpc.code = code
        self._rpc.code_number = code_number(code)

    def code(self) -> Any:
        """The status code, as it was set; None before."""
        return self._rpc.code

    def set_details(self, details: str) -> None:
        """Set the status text."""
        check_details(details)
        self._rpc.details = details

    def details(self) -> str:
        """The status text."""
        return self._rpc.details or ""

    # -- compression: accepted, and without effect

    def set_compression(self, compression: Any) -> None:
        """Accept any compression before the initial metadata, for compatibility: nothing is compressed."""
        if self._rpc.sent_headers:
            raise RuntimeError("set_compression() must come before the initial metadata")

    def disable_next_message_compression(self) -> None:
        """Accepted, for compatibility: nothing is compressed."""

    # -- the client

    def invocation_metadata(self) -> tuple[Metadatum, ...]:
        """The metadata that the client sent."""
        return named(self._rpc.metadata)

    def peer(self) -> str:
        """The address of the client."""
        return peer_name(self._rpc.connection.transport.endpoint.peer_address)

    def peer_identities(self) -> None:
        """There is no authentication: None."""

    def peer_identity_key(self) -> None:
        """There is no authentication: None."""

    def auth_context(self) -> dict[str, Any]:
        """The properties of a connection without encryption and authentication, as gRPC names them."""
        return {"security_level": [b"TSI_SECURITY_NONE"], "transport_security_type": [b"insecure"]}

    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; None without one."""
        deadline = self._rpc.deadline
        return None if deadline is None else max(0.0, deadline - monotonic())

    # -- the end

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback`` with this object when the handler has ended."""
        check_callback(callback)
        rpc = self._rpc
        if rpc.callbacks is None:
            rpc.callbacks = []
        rpc.callbacks.append(partial(callback, self))

    def done(self) -> bool:
        """Whether the call has its status."""
        return self._rpc.decided or self._rpc.over

    def cancelled(self) -> bool:
        """Whether the client has cancelled, or the status is CANCELLED."""
        return self._rpc.gone or self._rpc.code_number == 1


aio.ServicerContext.register(ServicerContext)
