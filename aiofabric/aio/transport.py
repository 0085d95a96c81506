"""An asyncio transport over a byte channel, made of plain calls: a connection needs no task.

Data is passed to the protocol from the reactor's progress pass, with one copy: from the pool into the buffer of a
BufferedProtocol, or into the ``bytes`` for ``data_received``. A paused transport takes no data, so the peer's credits
run out.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio.constants import _SendfileMode
from asyncio.transports import _FlowControlMixin
from typing import TYPE_CHECKING, Any, Protocol

from aiofabric._core import READ_SIZE, refuse_pointers
from aiofabric.channel.base import ByteChannel
from aiofabric.memory import bytes_of

if TYPE_CHECKING:
    from collections.abc import Mapping


LINGER = 5.0
"""Seconds that a closed transport waits for the peer to confirm the end."""


class Owner(Protocol):
    """The methods of a server that its transports call."""

    def _attach(self, transport: FabricTransport) -> None: ...
    def _detach(self, transport: FabricTransport) -> None: ...


class FabricTransport(_FlowControlMixin):
    """A bidirectional asyncio transport; made by :func:`create_connection` and :func:`create_server`.

    ``write`` sends as much as the peer's credits allow at once. Large ``bytes`` are sent without a copy; mutable data
    is copied, since asyncio allows the caller to change it. The watermarks count the bytes that wait for credits.

    asyncio's flow-control mixin provides the watermarks: ``loop.sendfile`` recognises transports by it.
    """

    _start_tls_compatible = True
    _sendfile_compatible = _SendfileMode.FALLBACK

    if TYPE_CHECKING:  # attributes of the mixin that typeshed lacks
        _loop: asyncio.AbstractEventLoop

        def _maybe_pause_protocol(self) -> None: ...
        def _maybe_resume_protocol(self) -> None: ...

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: ByteChannel,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        *,
        extra: Mapping[str, Any],
        server: Owner | None = None,
    ) -> None:
        if not isinstance(channel, ByteChannel):
            raise TypeError(
                f"a {type(self).__name__} is made by create_connection() or a server, not of {channel!r:.100}"
            )
        super().__init__(dict(extra), loop)
        self._channel = channel
        self._server = server
        self._queued = 0
        self._eof = False
        self._closing = False
        self._lost = False
        self._released = False
        self._paused = False
        self._listening = False
        self._linger: asyncio.TimerHandle | None = None
        self.set_protocol(protocol)
        if server is not None:
            server._attach(self)
        loop.call_soon(self._begin, waiter)

    def _begin(self, waiter: asyncio.Future[None] | None) -> None:
        try:
            self._protocol.connection_made(self)
        finally:
            if self.is_reading():
                self._listen()
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def __repr__(self) -> str:
        state = "closed" if self._released else "closing" if self._closing else "open"
        return (
            f"<{type(self).__name__} {state} {self._channel.local_address} -> {self._channel.peer_address}"
            f" queued={self._queued}>"
        )

    def __del__(self) -> None:
        if not getattr(self, "_released", True):  # absent if the constructor failed
            warnings.warn(f"unclosed transport {self!r}", ResourceWarning, stacklevel=2, source=self)

    # -- the protocol ---------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol: Any = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)
        if self._listening:
            self._feed()

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # -- receiving ------------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return not self._closing and not self._paused

    def pause_reading(self) -> None:
        self._channel.check_usable()
        if self.is_reading():
            self._paused = True
            self._stop_listening()

    def resume_reading(self) -> None:
        self._channel.check_usable()
        if self._closing or not self._paused:
            return
        self._paused = False
        self._listen()

    def _listen(self) -> None:
        self._listening = True
        self._channel.watch(self._readable)
        self._feed()
        if self._channel.readable:
            self._loop.call_soon(self._readable)

    def _feed(self) -> None:
        """Let new data go to the protocol without this object, in the pass that read it."""
        protocol = self._protocol
        if self._buffered:
            self._channel.feed_to(None, protocol.get_buffer, protocol.buffer_updated, self._failed)
        else:
            self._channel.feed_to(getattr(protocol, "data_received", None), None, None, self._failed)

    def _stop_listening(self) -> None:
        self._listening = False
        self._channel.watch(None)
        self._channel.feed_to(None, None, None, None)

    def _readable(self) -> None:
        """Data waits that arrived while no protocol took it, or the end has come."""
        while self._channel.readable and self.is_reading():
            try:
                more = self._fill_buffer() if self._buffered else self._hand_over()
            except BaseException as exc:
                self._failed(exc)
            else:
                if not more:
                    return

    def _poll(self) -> None:
        """A task of this loop is about to wait for data: it may come while the queue is polled."""
        if self._listening:
            self._channel.check_usable()
            self._channel.poll()

    def _failed(self, exc: BaseException) -> None:
        if isinstance(exc, (SystemExit, KeyboardInterrupt)):
            raise exc
        if isinstance(exc, OSError):
            self._force_close(exc)
        else:
            self._fatal_error(exc, "Fatal error: the protocol failed to take arrived data.")

    def _hand_over(self) -> bool:
        data = self._channel.try_recv(READ_SIZE)
        if data:
            self._protocol.data_received(data)
        elif data is not None:
            self._ended()
        return bool(data)

    def _fill_buffer(self) -> bool:
        with bytes_of(self._protocol.get_buffer(-1)) as buffer:
            if not buffer:
                raise RuntimeError("get_buffer() returned an empty buffer")
            count = self._channel.try_recv_into(buffer)
        if count:
            self._protocol.buffer_updated(count)
        elif count is not None:
            self._ended()
        return bool(count)

    def _ended(self) -> None:
        self._stop_listening()
        if not self._protocol.eof_received():
            self.close()

    # -- sending --------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._lost:
            return
        refuse_pointers(data)
        data = bytes(data)  # bytes are not copied
        sent = 0
        if not self._queued:
            try:
                sent = self._channel.try_send(data)
            except OSError as exc:
                self._force_close(exc)
                return
        if sent < len(data):
            self._post(memoryview(data)[sent:])

    def _post(self, rest: memoryview) -> None:
        self._channel.check_usable()
        size = len(rest)
        self._queued += size
        self._channel.post(rest, lambda error: self._sent(size, error))
        self._maybe_pause_protocol()

    def _sent(self, size: int, error: BaseException | None) -> None:
        self._queued -= size
        if self._lost:
            return
        if error is not None:
            self._force_close(error)
            return
        self._maybe_resume_protocol()
        if self._closing and not self._queued:
            self._finish()

    def get_write_buffer_size(self) -> int:
        return self._queued

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._channel.check_usable()
        if not self._closing and not self._eof:
            self._eof = True
            self._channel.shutdown_write()

    # -- the end --------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._channel.check_caller()
        self._closing = True
        self._stop_listening()
        if not self._queued:
            self._finish()

    def abort(self) -> None:
        if not self._released:
            self._channel.check_caller()
        self._force_close(None)

    def _finish(self) -> None:
        """All data is sent: tell the peer, and wait for its confirmation, at most LINGER seconds."""
        self._lost = True
        self._linger = self._loop.call_later(LINGER, self._channel.abort)
        self._channel.close(self._finished)

    def _finished(self) -> None:
        self._loop.call_soon(self._release, None)

    def _force_close(self, exc: BaseException | None) -> None:
        """Close at once. asyncio's TLS layer also calls this name, to abort the transport below it."""
        ending = self._lost
        self._closing = self._lost = True
        self._stop_listening()
        self._channel.abort()
        if not ending:
            self._loop.call_soon(self._release, exc)

    def _fatal_error(self, exc: BaseException, message: str) -> None:
        self._loop.call_exception_handler(
            {"message": message, "exception": exc, "transport": self, "protocol": self._protocol}
        )
        self._force_close(exc)

    def _release(self, exc: Any) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self._released = True
        try:
            self._protocol.connection_lost(exc)
        finally:
            if self._server is not None:
                self._server._detach(self)
