"""ByteChannel: the one interface below streams and transports: ordered bytes both ways, each direction with its own
end.

Streams, asyncio transports and all integrations use :class:`ByteChannel`, and nothing below it. It serves two kinds of
callers. Neither kind pays for the other:

* callbacks (an asyncio transport): :meth:`~ByteChannel.watch`, :meth:`~ByteChannel.try_recv`,
  :meth:`~ByteChannel.try_send`, :meth:`~ByteChannel.post`; plain calls from the loop's thread, so that a connection
  needs no task;
* awaits (an anyio stream): :meth:`~ByteChannel.send`, :meth:`~ByteChannel.recv`,
  :meth:`~ByteChannel.recv_into`, built here from the plain calls.

A channel has one owner. The owner must allow only one reader and one writer at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from aiofabric.memory import bytes_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aiofabric.channel.signal import Signal

T = TypeVar("T")

Done = Callable[[BaseException | None], object]
"""Called once when a posted buffer is free again: with ``None`` if all of it was sent, otherwise with the error."""

_NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """Counters of one stream since it was opened, and its queues now.

    ``send_queued`` bytes wait here for credits, ``receive_queued`` bytes wait for a reader. ``send_credits`` bytes can
    be sent before the peer reads again; ``receive_credits`` is the same for the peer.
    """

    bytes_sent: int
    frames_sent: int
    bytes_received: int
    frames_received: int
    send_queued: int
    receive_queued: int
    send_credits: int
    receive_credits: int


def _cancelled() -> ConnectionError:
    return ConnectionAbortedError("a send was cancelled with part of its bytes unsent")


class ByteChannel(ABC):
    """A reliable, flow-controlled byte stream to one peer, without the interface of a stream class.

    All methods except the three coroutines return at once. After :meth:`close` or :meth:`abort` they raise
    :exc:`anyio.ClosedResourceError`. A peer that ended without an orderly end causes :exc:`ConnectionError`; on the
    receiving side only after all data that had arrived was taken.
    """

    @property
    @abstractmethod
    def local_address(self) -> Any:
        """The fabric address (or socket name) of this end."""

    @property
    @abstractmethod
    def peer_address(self) -> Any:
        """The fabric address (or socket name) of the other end."""

    @property
    @abstractmethod
    def info(self) -> Any:
        """The `Info` of the endpoint below."""

    @property
    @abstractmethod
    def readable(self) -> bool:
        """Whether bytes, the end or an error can be taken right now."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether nothing but the end or an error can be taken any more."""

    @property
    @abstractmethod
    def unsent(self) -> int:
        """Bytes posted here that have not been handed to the provider yet."""

    def check_usable(self) -> None:  # noqa: B027  (a channel may have no such rules)
        """Raise if this thread or process may not use the channel, or if its event loop has ended."""

    def check_caller(self) -> None:  # noqa: B027
        """Raise if this thread or process may not even close the channel."""

    @abstractmethod
    def watch(self, callback: Callable[[], object] | None) -> None:
        """Call ``callback`` whenever new data or the end can be taken; ``None`` stops that.

        It is not called for data that had arrived before: check :attr:`readable`. A program that does not read stops
        the peer, whose credits run out.
        """

    def feed_to(  # noqa: B027  (a channel may leave all data to the watcher)
        self,
        data_received: Callable[[bytes], object] | None,
        get_buffer: Callable[[int], Buffer] | None,
        buffer_updated: Callable[[int], object] | None,
        failed: Callable[[BaseException], object] | None,
        /,
    ) -> None:
        """Pass new data to an asyncio protocol before the watcher, with the first function or with the next two.

        ``failed`` gets an exception of those calls. ``None`` for all stops that.
        """

    @abstractmethod
    def try_recv(self, max_bytes: int) -> bytes | None:
        """Take at most ``max_bytes``; ``None`` if no data has arrived, ``b""`` at the peer's orderly end."""

    @abstractmethod
    def try_recv_into(self, buffer: memoryview) -> int | None:
        """Like :meth:`try_recv`, into the caller's memory, which is free on return; 0 at the end."""

    @abstractmethod
    def try_send(self, data: bytes | memoryview) -> int:
        """Send as much as can leave at once, without a reference to memory that may change; return the number of bytes.

        Zero means wait or :meth:`post`. The reasons: no credit, no room, earlier posts still queued, or ``data`` is not
        ``bytes`` and so large that sending it without a copy is faster.
        """

    @abstractmethod
    def post(self, data: memoryview, done: Done) -> None:
        """Send all of ``data`` after all earlier posts, without a copy.

        The channel uses the memory until ``done`` is called, which may be before this returns.
        """

    @abstractmethod
    def when_writable(self, callback: Callable[[], object] | None) -> None:
        """Call ``callback`` once, when a byte can be sent or the channel has ended; ``None`` cancels it."""

    @abstractmethod
    def shutdown_write(self) -> None:
        """Tell the peer, after all posted data, that no more data comes. Receiving continues."""

    @abstractmethod
    def close(self, done: Callable[[], None]) -> None:
        """Close in order: send all posted data, tell the peer of the end, then call ``done``.

        There is no time limit; to set one, call :meth:`abort` when it expires.
        """

    @abstractmethod
    def abort(self, error: ConnectionError | None = None) -> None:
        """Close now. The peer sees a broken connection, unless it was told of the end before.

        Waiting calls, and all later calls, end with ``error``, by default ClosedResourceError.
        """

    def dropped(self, owner: object) -> None:  # noqa: B027  # a channel without descriptors has nothing to close
        """The program has dropped ``owner``, a stream over this channel, without closing it: warn, and abort from the
        loop. The garbage collector calls this.
        """

    @abstractmethod
    def statistics(self) -> StreamStatistics:
        """Counters; see `StreamStatistics`."""

    async def recv(self, max_bytes: int) -> bytes:
        """Wait for data and take up to ``max_bytes``; ``b""`` at the peer's orderly end.

        Cancelling loses nothing: data leaves the channel in the step that returns it.
        """
        return await self.recv_by(partial(self.try_recv, max_bytes))

    async def recv_into(self, buffer: Buffer) -> int:
        """Like :meth:`recv`, into the caller's writable, contiguous memory; 0 at the end."""
        with bytes_of(buffer) as view:
            return await self.recv_by(partial(self.try_recv_into, view))

    async def recv_by(self, take: Callable[[], T | None]) -> T:
        """Wait until ``take`` returns something; it is called when data or the end may have come."""
        if self.must_yield:
            await self.checkpoint()  # before data is taken, so that a cancel loses nothing
        taken = take()
        if taken is None:
            self.poll()
            taken = take()
        while taken is None:
            await self._wait_readable()
            taken = take()
        return taken

    async def send(self, data: Buffer) -> None:
        """Send all of ``data``; the caller may change it when this returns.

        If this is cancelled, there are two cases: the provider has sent all data, and then all of it arrives; or the
        channel is aborted, because a stream must not have a gap.
        """
        content = data if type(data) is bytes else bytes_of(data)
        sent = self.try_send(content)
        if sent < len(content):
            await self._send_rest(memoryview(content)[sent:])
        elif self.must_yield:
            await self.checkpoint()

    async def _send_rest(self, rest: memoryview) -> None:
        signal, outcome = self._signal(), list[BaseException | None]()

        def done(error: BaseException | None) -> None:
            outcome.append(error)
            signal.set()

        self.post(rest, done)
        if not outcome:
            self.poll()
        try:
            if not outcome:
                await signal.wait()
            elif self.must_yield:
                await self.checkpoint()
        except (GeneratorExit, KeyboardInterrupt, SystemExit):  # nothing may wait now
            if not outcome:
                self.abort(_cancelled())
            raise
        except BaseException:
            if not outcome:
                await self._end_cancelled_send(_cancelled())
            raise
        if outcome[0] is not None:
            raise outcome[0]

    async def _end_cancelled_send(self, error: ConnectionError) -> None:
        """The provider may still read the memory of a cancelled send: wait for that, but not long. Abort with ``error``
        unless all data was sent.
        """
        if self.unsent:
            self.abort(error)

    async def wait_writable(self) -> None:
        """Wait until a byte can be sent at once; raise the error that sending would raise. Always a checkpoint."""
        await self.checkpoint()
        signal = self._signal()
        self.when_writable(signal.set)
        try:
            await signal.wait()
        finally:
            self.when_writable(None)
        self.try_send(_NOTHING)

    async def _wait_readable(self) -> None:
        signal = self._signal()
        self.watch(signal.set)
        try:
            await signal.wait()
        finally:
            self.watch(None)

    def _signal(self) -> Signal:
        return anyio.Event()

    def poll(self) -> None:  # noqa: B027  (a channel over a socket has no queue to poll)
        """Before waiting: poll for new data, as long as the polls find data."""

    @property
    def must_yield(self) -> bool:
        """Whether an await that returns at once must still run a checkpoint; each await calls this once."""
        return True

    async def checkpoint(self) -> None:
        """Let one iteration of the loop run, and check for a cancellation."""
        await checkpoint_if_cancelled()  # on asyncio, anyio's checkpoint may notice a cancel too late
        await checkpoint()
