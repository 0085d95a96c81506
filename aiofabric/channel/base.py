"""The one seam under the familiar shapes: ordered bytes both ways, each direction with an end of its own.

Streams, asyncio transports and every integration stand on :class:`ByteChannel` and know nothing below it. It
serves two kinds of callers without making either pay for the other:

* callbacks (an asyncio transport): :meth:`~ByteChannel.watch`, :meth:`~ByteChannel.try_recv`,
  :meth:`~ByteChannel.try_send`, :meth:`~ByteChannel.post`; plain calls made from the loop's thread, so that a
  connection needs no task;
* awaits (an anyio stream): :meth:`~ByteChannel.send`, :meth:`~ByteChannel.recv`,
  :meth:`~ByteChannel.recv_into`, built here from the plain calls.

A channel has one owner, which sees to it that there is one reader and one writer at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aiofabric.channel.signal import Signal

T = TypeVar("T")

Done = Callable[[BaseException | None], object]
"""Told once when a posted buffer is free again: ``None`` when all of it went out, else what stopped it."""

_NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """Counters of one stream since it was opened, and what waits now.

    ``send_queued`` bytes wait here for credits, ``receive_queued`` bytes for a reader. ``send_credits`` bytes may
    still be sent before the peer reads, ``receive_credits`` is the same of the peer.
    """

    bytes_sent: int
    frames_sent: int
    bytes_received: int
    frames_received: int
    send_queued: int
    receive_queued: int
    send_credits: int
    receive_credits: int


class ByteChannel(ABC):
    """A reliable, flow-controlled byte stream to one peer, not yet dressed as anybody's stream.

    Every method but the three coroutines returns at once. After :meth:`close` or :meth:`abort` they raise
    :exc:`anyio.ClosedResourceError`; a peer that went away without saying so shows as :exc:`ConnectionError`,
    on the receiving side only when everything that had arrived before was taken.
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
        """What lies below: the endpoint's `Info`."""

    @property
    @abstractmethod
    def readable(self) -> bool:
        """Whether bytes, the end or an error can be taken right now."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether only the end or an error can be taken any more."""

    @property
    @abstractmethod
    def unsent(self) -> int:
        """Bytes posted here that have not been handed to the provider yet."""

    @abstractmethod
    def watch(self, callback: Callable[[], object] | None) -> None:
        """Call ``callback`` whenever something new can be taken; ``None`` stops that.

        What had arrived before is not announced: look at :attr:`readable`. Not reading is what stops the
        peer: its credits run out.
        """

    @abstractmethod
    def try_recv(self, max_bytes: int) -> bytes | None:
        """Take at most ``max_bytes``; ``None`` if nothing has arrived, ``b""`` at the peer's orderly end."""

    @abstractmethod
    def try_recv_into(self, buffer: memoryview) -> int | None:
        """Like :meth:`try_recv`, into the caller's memory, which is free again on return; 0 at the end."""

    @abstractmethod
    def try_send(self, data: bytes | memoryview) -> int:
        """Send what can go out at once without keeping hold of what may change; return how many bytes that was.

        Zero means wait or :meth:`post`: no credit, no room, earlier posts still queued, or ``data`` is no
        ``bytes`` and large enough that sending it from where it lies beats copying it.
        """

    @abstractmethod
    def post(self, data: memoryview, done: Done) -> None:
        """Send all of ``data`` after everything posted before it, from where it lies.

        The memory belongs to the channel until ``done`` is called, which may be before this returns.
        """

    @abstractmethod
    def when_writable(self, callback: Callable[[], object] | None) -> None:
        """Call ``callback`` once, when a byte could go out or the channel ended; ``None`` forgets it."""

    @abstractmethod
    def shutdown_write(self) -> None:
        """Tell the peer, after everything posted, that no more bytes will come. Receiving goes on."""

    @abstractmethod
    def close(self, done: Callable[[], None]) -> None:
        """Close in good order: what was posted goes out, the peer learns of the end, then ``done`` is called.

        No time limit stands here; who wants one calls :meth:`abort` when it is over.
        """

    @abstractmethod
    def abort(self, error: ConnectionError | None = None) -> None:
        """Close now. The peer sees a broken connection unless the end had been told before.

        What is still waiting, and every later call, ends with ``error``, by default ClosedResourceError.
        """

    @abstractmethod
    def statistics(self) -> StreamStatistics:
        """Counters; see `StreamStatistics`."""

    async def recv(self, max_bytes: int) -> bytes:
        """Wait for bytes and take up to ``max_bytes``; ``b""`` at the peer's orderly end.

        Cancelling loses nothing: bytes leave the channel in the step that returns them.
        """
        return await self._receive(partial(self.try_recv, max_bytes))

    async def recv_into(self, buffer: Buffer) -> int:
        """Like :meth:`recv`, into the caller's writable, contiguous memory; 0 at the end."""
        with memoryview(buffer) as whole, whole.cast("B") as view:
            return await self._receive(partial(self.try_recv_into, view))

    async def _receive(self, take: Callable[[], T | None]) -> T:
        if self.breathless:
            await self.checkpoint()  # before anything is taken: a cancel can lose nothing then
        taken = take()
        if taken is None:
            taken = self.look_for(take)
        while taken is None:
            await self._wait_readable()
            taken = take()
        return taken

    async def send(self, data: Buffer) -> None:
        """Send all of ``data``; it is the caller's again when this returns.

        Cancelling either finds everything handed to the provider, and then all of it arrives, or aborts the
        channel: a stream with a hole in the middle is no stream.
        """
        whole = data if type(data) is bytes else memoryview(data).cast("B")
        sent = self.try_send(whole)
        if sent < len(whole):
            await self._send_rest(memoryview(whole)[sent:])
        elif self.breathless:
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
            elif self.breathless:
                await self.checkpoint()
        except BaseException:
            if self.unsent:
                self.abort(ConnectionAbortedError("a send was cancelled with part of its bytes unsent"))
            raise
        if outcome[0] is not None:
            raise outcome[0]

    async def wait_writable(self) -> None:
        """Wait until a byte could be sent at once; raise what sending would raise. Always a checkpoint."""
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

    def poll(self) -> None:  # noqa: B027  (a socket has nothing to look at)
        """Before waiting: look whether what is waited for has come, for as long as that pays."""

    def look_for(self, take: Callable[[], T | None]) -> T | None:
        """Look for something to arrive that ``take`` takes."""
        self.poll()
        return take()

    @property
    def breathless(self) -> bool:
        """Whether an await that need not wait owes the loop a checkpoint all the same; asked once by each."""
        return True

    async def checkpoint(self) -> None:
        """Let the loop go round, and a cancellation come in."""
        await checkpoint_if_cancelled()  # on asyncio, anyio's checkpoint may notice a cancel too late
        await checkpoint()
