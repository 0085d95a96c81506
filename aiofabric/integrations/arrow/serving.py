"""ServedStream: one client of a server, and the stream that it has asked for."""

from __future__ import annotations

import inspect
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing, suppress
from errno import EMSGSIZE
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import anyio
import anyio.to_thread
import pyarrow

from .connection import StreamHello, add_peer, must_ask, tagged_endpoint
from .encoding import StreamEncoder
from .exposed import ExposedBuffers, can_expose, is_virtual
from .metadata import ArrowProtocolError, MessageKind
from .protocol import (
    ADDRESSES,
    MOST_FREED,
    PACKED,
    OutgoingStream,
    body_tag,
    decode_freed,
    decode_progress,
    encode_addresses,
)
from .uri import MOST_TICKET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiofabric import MessageEndpoint, Peer, RdmEndpoint

    from .encoding import EncodedMessage

__all__ = ["Batches", "FindStream", "ServedStream", "ServingOptions", "new_tags"]

Batches: TypeAlias = (
    pyarrow.Table
    | pyarrow.RecordBatch
    | pyarrow.RecordBatchReader
    | Iterable[pyarrow.RecordBatch]
    | AsyncIterable[pyarrow.RecordBatch]
)
"""The batches that a server streams."""
FindStream: TypeAlias = "Callable[[bytes], Batches | Awaitable[Batches]]"

_HELLO_TIMEOUT: Final = 10.0  # seconds
_CLOSE_TIMEOUT: Final = 2.0  # seconds in which a client ends its reads

_log = logging.getLogger("aiofabric.integrations.arrow")


class ServingOptions(NamedTuple):
    """Options that all clients of a server have in common."""

    want_data: int
    free_data: int
    handle: int
    window: int
    max_shown_bytes: int
    max_chunksize: int | None
    compression: str | None
    expose: bool
    failure_timeout: float


class _StreamFailedError(Exception):
    """The source of a stream has failed; the log has the reason already."""


class ServedStream:
    """Owns ``connection`` while `run` runs."""

    def __init__(self, connection: MessageEndpoint, find: FindStream, options: ServingOptions) -> None:
        self._connection = connection
        self._find = find
        self._options = options
        self._outgoing = OutgoingStream(window=options.window)
        self._changed = anyio.Event()  # the client has taken messages, or has freed memory
        self._exposed: ExposedBuffers | None = None
        self._bodies: deque[tuple[int, Any, int]] = deque()  # that the client must ask for: counts, bodies, tags
        self._tagged: RdmEndpoint
        self._peer: Peer

    async def run(self) -> None:
        """Until the client leaves. A client that breaks the protocol, and a failure of the stream, end only this."""
        connection = self._connection
        try:
            theirs = await self._hello()
            async with tagged_endpoint(connection, theirs) as self._tagged:
                try:
                    await self._answer(theirs)
                    await self._until_it_leaves()
                finally:
                    # First the connection, whose end the client is told. It is not told the end of this endpoint.
                    await self._close()
        except _StreamFailedError:
            pass
        except ArrowProtocolError as error:
            _log.warning("the client at %s broke the protocol: %s", connection.peer_address, error)
        except (OSError, TimeoutError, anyio.ClosedResourceError) as error:
            if isinstance(error, OSError) and error.errno == EMSGSIZE:
                _log.warning(
                    "the client at %s takes no metadata of this size, unless it asks for it: "
                    "open_stream(max_metadata_bytes=...): %s", connection.peer_address, error,
                )  # fmt: skip
            else:
                _log.info("the stream for the client at %s ended: %s", connection.peer_address, error)
        except Exception:
            self._log_failure()
        finally:
            await self._close()
            connection.abort()

    async def _answer(self, theirs: StreamHello) -> None:
        connection = self._connection
        secret = self._options.handle ^ theirs.nonce
        if self._options.expose and can_expose(connection.info):
            self._exposed = ExposedBuffers(connection, secret)
        hello = StreamHello.of(self._tagged, virtual=is_virtual(connection.info))
        await connection.send(hello.pack())
        if hello.asks_again(theirs):
            theirs = await self._hello()
        self._peer = await add_peer(self._tagged, theirs, connection)

    async def _hello(self) -> StreamHello:
        with anyio.fail_after(_HELLO_TIMEOUT):
            return StreamHello.unpack(bytes(await self._connection.recv()))

    async def _close(self) -> None:
        # The client ends its reads before the memory is closed: a late read would break its connection, and over rxm
        # those of its whole process.
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True), suppress(OSError):
            await self._connection.aclose()
        if self._exposed is not None:
            self._exposed.close()

    def _log_failure(self) -> None:
        _log.exception("the stream for the client at %s failed", self._connection.peer_address)

    async def _until_it_leaves(self) -> None:
        failures: list[BaseException] = []

        async def part(function: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
            try:
                await function()
            except Exception as error:
                failures.append(error)
                scope.cancel()

        async with anyio.create_task_group() as tasks:
            scope = tasks.cancel_scope
            tasks.start_soon(part, self._stream, scope)
            tasks.start_soon(part, self._frees, scope)
            tasks.start_soon(part, self._send_bodies, scope)
            await part(self._takes, scope)
            scope.cancel()  # the client has left
        if failures:
            raise failures[0]

    # -- from the client

    async def _takes(self) -> None:
        async for message in self._connection:
            count, is_asked = decode_progress(message)
            if is_asked:
                self._outgoing.was_asked(count)
            else:
                self._outgoing.was_taken(count)
            self._wake()

    async def _frees(self) -> None:
        while self._exposed is not None:
            message = await self._tagged.recv_tagged(
                self._options.free_data, source=self._peer, max_bytes=8 * MOST_FREED
            )
            self._exposed.release(self._outgoing.freed(decode_freed(message)))
            self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    # -- to the client

    async def _stream(self) -> None:
        ticket = await self._tagged.recv_tagged(self._options.want_data, source=self._peer, max_bytes=MOST_TICKET)
        async with aclosing(self._messages(bytes(ticket))) as messages:
            while (message := await self._next(messages)) is not None:
                await self._send(message)
        await self._connection.send(self._outgoing.end())

    async def _messages(self, ticket: bytes) -> AsyncGenerator[EncodedMessage]:
        """All messages of the stream. Errors in here are of `find` or of the batches, and not of the client."""
        found: Any = self._find(ticket)
        if inspect.isawaitable(found):
            found = await found
        encoder: StreamEncoder | None = None
        schema = getattr(found, "schema", None)
        if isinstance(schema, pyarrow.Schema):
            encoder = StreamEncoder(schema, self._options.compression)
        async with aclosing(_each(found, self._options.max_chunksize)) as batches:
            async for batch in batches:
                if not isinstance(batch, pyarrow.RecordBatch):
                    raise TypeError(f"a stream consists of record batches, not of {type(batch).__name__}")
                encoder = encoder or StreamEncoder(batch.schema, self._options.compression)
                for message in encoder.encode(batch):
                    yield message
        if encoder is None:
            raise ValueError("a stream without a batch needs a schema: return a Table or a RecordBatchReader")
        for message in encoder.schema():
            yield message

    async def _next(self, messages: AsyncGenerator[EncodedMessage]) -> EncodedMessage | None:
        """The next message; None after the last one. If the source fails, the client first gets what was sent."""
        try:
            return await anext(messages, None)
        except Exception:
            self._log_failure()  # now: the client may leave while this waits for it
            await self._until_taken()
            raise _StreamFailedError from None

    async def _until_taken(self) -> None:
        """Wait until the client has taken what was sent, or has taken nothing for a while."""
        outgoing = self._outgoing
        while (taken := outgoing.taken) < outgoing.sent:
            with anyio.move_on_after(self._options.failure_timeout) as scope:
                while outgoing.taken == taken:
                    await self._changed.wait()
            if scope.cancelled_caught:
                return

    async def _send(self, message: EncodedMessage) -> None:
        outgoing, size = self._outgoing, message.layout.body_length
        while not outgoing.has_room or outgoing.shown_bytes + size > max(size, self._options.max_shown_bytes):
            await self._changed.wait()
        sequence, frame = outgoing.metadata(message.metadata)
        await self._connection.send(b"".join(frame))
        if message.layout.kind == MessageKind.SCHEMA:
            return
        body: Any
        if self._exposed is not None:
            exposed = self._exposed
            body = encode_addresses([exposed.expose(buffer, outgoing) for buffer in message.buffers()])
            tag = body_tag(sequence, ADDRESSES)
        else:
            most = self._tagged.info.tx_attr.iov_limit
            body = message.pieces if 0 < len(message.pieces) <= most else b"".join(map(memoryview, message.pieces))
            tag = body_tag(sequence, PACKED)
            if must_ask(self._tagged):
                self._bodies.append((outgoing.sent, body, tag))
                self._wake()
                return
        await self._tagged.send_tagged(body, tag, to=self._peer)

    async def _send_bodies(self) -> None:
        """Send those that the client has asked for. ``window`` bounds how many there are."""
        while True:
            while not self._bodies or self._outgoing.asked < self._bodies[0][0]:
                await self._changed.wait()
            _, body, tag = self._bodies.popleft()
            await self._tagged.send_tagged(body, tag, to=self._peer)


async def _each(found: Any, max_chunksize: int | None) -> AsyncGenerator[Any]:
    """The record batches of what a server streams. Those of a reader are read in a thread: it may read files."""
    if isinstance(found, pyarrow.RecordBatchReader):
        while (batch := await anyio.to_thread.run_sync(_next_of, found)) is not None:
            yield batch
    elif isinstance(found, pyarrow.Table):
        for batch in found.to_batches(max_chunksize=max_chunksize):
            yield batch
    elif isinstance(found, pyarrow.RecordBatch):
        yield found
    elif isinstance(found, AsyncGenerator):
        async with aclosing(found):
            async for batch in found:
                yield batch
    elif isinstance(found, AsyncIterable):
        async for batch in found:
            yield batch
    elif isinstance(found, Iterable):
        for batch in found:
            yield batch
    else:
        raise TypeError(f"a stream is a table, a reader or an iterable of record batches, not {type(found).__name__}")


def _next_of(reader: pyarrow.RecordBatchReader) -> pyarrow.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


def new_tags() -> tuple[int, int, int]:
    """Two tags of a server, and the handle from which the keys of its memory follow. Providers may use high bits."""
    want = secrets.randbits(62)
    return want, want ^ 1, secrets.randbits(64)
