"""open_stream: a client of Arrow's Dissociated IPC protocol."""

from __future__ import annotations

import secrets
from collections import deque
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import anyio.lowlevel
import pyarrow

from aiofabric import (
    FabricConnectionEndedError,
    FabricConnectionError,
    FabricError,
    NotSupportedError,
    TruncatedMessageError,
    connect,
)

from .connection import StreamHello, add_peer, any_type, check_options, must_ask, readable_region, tagged_endpoint
from .decoding import StreamDecoder, check_values
from .metadata import ArrowProtocolError, MessageKind
from .protocol import (
    ADDRESSES,
    MOST_FREED,
    PACKED,
    PREFIX,
    IncomingStream,
    body_tag,
    decode_addresses,
    encode_asked,
    encode_freed,
    encode_taken,
    record_size,
    split_tag,
)
from .uri import StreamUri, ticket_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from aiofabric import Domain, Envelope, MessageEndpoint, Peer, RdmEndpoint

    from .protocol import Announcement

__all__ = ["ArrowStream", "open_stream"]

RECV_COUNT: Final = 32
_CAUSE_TIMEOUT: Final = 0.5  # seconds in which the end of the connection may follow an error
_READS: Final = 16
"""Reads of one batch that are under way at once."""


def open_stream(
    uri: str,
    ticket: bytes | str | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    max_batch_bytes: int = 1 << 30,
    max_metadata_bytes: int = 1 << 18,
    read_ahead: int = 8,
    read_ahead_bytes: int = 64 << 20,
    validate: bool = False,
    **options: Any,
) -> ArrowStream:
    """The record batches of a stream: ``async for batch in open_stream(uri)``.

    Args:
        uri: from the server; see `StreamServer.uri`.
        ticket: which stream; by default the path of the URI.
        provider: by name, such as ``"tcp"`` or ``"shm"``.
        domain: open the connection on this domain.
        max_batch_bytes: bytes of the body of one message at most, also when a compressed one is expanded. A server
            that announces more breaks the protocol; no byte of such a body is received.
        max_metadata_bytes: bytes of the metadata of one message at most. At most 32 of them are kept.
        read_ahead: messages whose bodies are received together.
        read_ahead_bytes: bytes of these bodies; a larger one is received alone.
        validate: check all values of each batch (`pyarrow.RecordBatch.validate` with ``full=True``), which takes time.
            Without it only the lengths are checked: choose it if you do not trust the server.
        options: of the connection, such as ``heartbeat=``; see `EndpointOptions`.

    Nothing is connected before the first batch is asked for, or the block is entered.

    Raises: ValueError, TypeError: not the URI of a stream, or a wrong value.
    """
    parsed = StreamUri.parse(uri)
    if ticket is not None:
        parsed = parsed._replace(ticket=ticket_of(ticket))
    for name, value in (
        ("max_batch_bytes", max_batch_bytes),
        ("max_metadata_bytes", max_metadata_bytes),
        ("read_ahead", read_ahead),
        ("read_ahead_bytes", read_ahead_bytes),
    ):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be a number, not {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    check_options("open_stream", options)
    connecting = {
        "provider": provider,
        "domain": domain,
        "recv_size": max_metadata_bytes + PREFIX.size,
        "recv_count": RECV_COUNT,
        **options,
    }
    return ArrowStream(parsed, connecting, max_batch_bytes, (read_ahead, read_ahead_bytes), validate)


class ArrowStream:
    """A stream of record batches; made by `open_stream`.

    ``async for`` closes it after the last batch. Use it as ``async with`` if the loop may end before.

    The buffers of a batch are the memory into which the fabric wrote them, or into which the provider copied a tagged
    message. They belong to pyarrow, and the batch may be kept. Each batch is whole when it is returned.
    """

    def __init__(
        self, uri: StreamUri, connecting: dict[str, Any], max_body: int, ahead: tuple[int, int], validate: bool
    ) -> None:
        self._uri = uri
        self._connecting = connecting
        self._incoming = IncomingStream(max_body=max_body)
        self._decoder = StreamDecoder(max_body=max_body)
        self._ahead = ahead
        self._validate = validate
        self._stack = AsyncExitStack()
        self._guard = anyio.ResourceGuard("reading this stream")
        self._ready: deque[pyarrow.RecordBatch] = deque()
        self._opened = self._closed = False
        self._strict = False  # the provider cannot ignore bits of tags
        self._secret = secrets.randbits(64)
        self._virtual = False
        self._connection: MessageEndpoint
        self._tagged: RdmEndpoint
        self._peer: Peer

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema of the stream.

        Raises: RuntimeError: the stream has not begun: enter its block, or take a batch.
        """
        schema = self._decoder.schema
        if schema is None:
            raise RuntimeError("the schema is known when the block of this stream was entered, or a batch was taken")
        return schema

    async def __aenter__(self) -> Self:
        with self._guard:
            await self._open()
            while self._decoder.schema is None:
                await self._receive_some()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if exc is not None:
            self._abort()
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection. Batches that were taken stay valid."""
        self._closed = True
        self._ready.clear()
        await self._stack.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pyarrow.RecordBatch:
        """The next batch.

        A cancel while this waits for a message loses nothing. While bodies are received, a cancel ends the stream.

        Raises:
            ArrowProtocolError: the server broke the protocol, or announced more than this client accepts.
            FabricConnectionError: the connection has ended before the stream; the server's log has the reason.
            ClosedResourceError: this stream is closed.
            BusyResourceError: another task is in this call.
            Also: what `aiofabric.connect` raises.
        """
        with self._guard:
            if self._closed:
                if self._incoming.ended and not self._ready:
                    raise StopAsyncIteration
                raise anyio.ClosedResourceError("this stream is closed")
            if not self._opened:
                await self._open()
            while not self._ready:
                if self._incoming.ended:
                    await self.aclose()
                    raise StopAsyncIteration
                await self._receive_some()
            return self._ready.popleft()

    # -- opening

    async def _open(self) -> None:
        if self._opened:
            raise RuntimeError("this stream was opened before: call open_stream again")
        self._opened = True
        try:
            uri = self._uri
            self._connection = connection = await connect(uri.host, uri.port, **self._connecting)
        except BaseException:
            self._closed = True
            raise
        try:
            self._stack.push_async_callback(connection.aclose)
            await self._meet()
            self._secret ^= uri.handle or 0
            await self._while_connected([partial(self._tagged.send_tagged, uri.ticket, uri.want_data, to=self._peer)])
        except BaseException as error:
            await self._break(error)
            raise

    async def _meet(self) -> None:
        """Open an endpoint for tagged messages that reaches the server's; see `connection`."""
        async with AsyncExitStack() as stack:
            hello = await self._introduce(stack)
            theirs = StreamHello.unpack(bytes(await self._connection.recv()))
            if theirs.asks_again(hello):
                await stack.aclose()
                await self._introduce(stack, theirs)
            self._peer = await add_peer(self._tagged, theirs, self._connection)
            self._virtual = theirs.virtual
            self._stack.push_async_exit(stack.pop_all())

    async def _introduce(self, stack: AsyncExitStack, theirs: StreamHello | None = None) -> StreamHello:
        self._tagged = await stack.enter_async_context(tagged_endpoint(self._connection, theirs))
        hello = StreamHello.of(self._tagged, nonce=self._secret)
        await self._connection.send(hello.pack())
        return hello

    def _abort(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.abort()

    # -- receiving

    async def _receive_some(self) -> None:
        """Receive the next message, and those that have come meanwhile, with their bodies."""
        incoming = self._incoming
        try:
            while incoming.first() is None and not incoming.ended:
                incoming.received(await self._connection.recv())  # a cancel here loses nothing
        except Exception as error:
            await self._break(error)
            raise
        try:
            self._receive_waiting()
            if some := self._take_some():
                await self._receive_bodies(some)
        except BaseException as error:
            await self._break(error)
            raise

    async def _break(self, error: BaseException) -> None:
        if isinstance(error, FabricConnectionError):
            _explain(error)
        self._abort()
        with anyio.CancelScope(shield=True):
            await self.aclose()

    def _receive_waiting(self) -> None:
        """Take metadata that has arrived. If the connection has ended, the next `recv` reports it."""
        with suppress(FabricError):
            while (frame := self._connection.recv_nowait()) is not None:
                self._incoming.received(frame)

    def _take_some(self) -> list[Announcement]:
        most, most_bytes = self._ahead
        some: list[Announcement] = []
        size = 0
        while (first := self._incoming.first()) is not None and len(some) < most:
            size += first.layout.body_length
            if some and size > most_bytes:
                break
            some.append(self._incoming.take())
        return some

    async def _receive_bodies(self, messages: list[Announcement]) -> None:
        bodies: list[pyarrow.Buffer | None] = [None] * len(messages)
        freed: list[int] = []
        left = sum(message.layout.kind != MessageKind.SCHEMA for message in messages)

        async def receive(at: int, message: Announcement) -> None:
            nonlocal left
            bodies[at] = await self._receive_body(message, freed)
            left -= 1
            if not left:
                await self._confirm(freed)

        parts: list[Callable[[], Awaitable[None]]] = [
            partial(receive, at, message)
            for at, message in enumerate(messages)
            if message.layout.kind != MessageKind.SCHEMA
        ]
        if parts and must_ask(self._tagged):
            parts.append(self._ask)
        try:
            await self._while_connected(parts or [partial(self._confirm, freed)])
        except FabricError:
            if left:  # else all bodies are here: the next `recv` reports the end
                raise
        for message, body in zip(messages, bodies, strict=True):
            batch = self._decoder.decode(message.metadata, message.layout, body)
            if batch is not None:
                if self._validate:
                    check_values(batch)
                self._ready.append(batch)

    async def _while_connected(self, parts: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Do all of this at once. The end of the connection ends it: providers do not report that the peer of a
        tagged message has gone, so such a send, or receive, would wait for ever.
        """
        failures: list[Exception] = []
        left = len(parts)

        async def do(part: Callable[[], Awaitable[None]]) -> None:
            nonlocal left
            try:
                await part()
                left -= 1
            except Exception as error:
                failures.append(error)
            if not left or failures:
                tasks.cancel_scope.cancel()

        async def watch() -> None:
            try:
                while True:  # later metadata may come meanwhile; and the connection may end
                    self._incoming.received(await self._connection.recv())
            except Exception as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for part in parts:
                tasks.start_soon(do, part)
            tasks.start_soon(watch)
        if failures and (left or not isinstance(failures[0], FabricError)):
            raise await self._cause_of(failures[0])

    async def _cause_of(self, error: Exception) -> Exception:
        """The end of the connection, if it was the reason: a read from a server that was killed may fail before, and
        rxm calls that a missing permission.
        """
        if isinstance(error, FabricError) and not isinstance(error, FabricConnectionError | TruncatedMessageError):
            with anyio.move_on_after(_CAUSE_TIMEOUT):
                try:
                    while True:
                        await self._connection.recv()
                except FabricConnectionError as end:
                    end.__cause__ = error
                    return end
        return error

    async def _receive_body(self, message: Announcement, freed: list[int]) -> pyarrow.Buffer:
        layout = message.layout
        size, count = layout.body_length, len(layout.buffers)
        memory = pyarrow.allocate_buffer(max(size, record_size(count)))
        view = memoryview(memory).cast("B")
        envelope = await self._receive_tagged(view, message.sequence)
        _, body_type = split_tag(envelope.tag)
        if body_type == PACKED:
            if envelope.length != size:
                raise ArrowProtocolError(f"a body of {envelope.length} bytes; the metadata announced {size}")
        else:
            if self._uri.handle is None or self._uri.free_data is None:
                raise ArrowProtocolError("the server shows memory, and the URI has no remote_handle or no free_data")
            pairs = decode_addresses(view[: envelope.length], layout)
            reads = [
                (view[offset : offset + length], address)
                for (address, length), (offset, _) in zip(pairs, layout.buffers, strict=True)
                if length
            ]
            await self._read_all(reads)
            freed.extend(address for _, address in reads)
        return memory if memory.size == size else memory.slice(0, size)

    async def _receive_tagged(self, view: memoryview, sequence: int) -> Envelope:
        """The body of the message, of any type. If the provider cannot ignore bits of a tag: of the type that the
        URI makes likely.
        """
        if not self._strict:
            try:
                ignore = any_type(self._tagged)
                return await self._tagged.recv_tagged_into(view, sequence, ignore=ignore, source=self._peer)
            except NotSupportedError:
                self._strict = True
        likely = PACKED if self._uri.free_data is None else ADDRESSES
        return await self._tagged.recv_tagged_into(view, body_tag(sequence, likely), source=self._peer)

    async def _read_all(self, reads: Sequence[tuple[memoryview, int]]) -> None:
        """Several at a time: over shm of 2.x a server answers small reads when it polls, every 5 ms. Read one after the
        other, 500 columns took 1.8 s.
        """
        failures: list[Exception] = []
        left = iter(reads)

        async def read_some() -> None:
            try:
                for view, address in left:
                    await self._read(view, address)
            except Exception as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for _ in range(min(len(reads), _READS)):
                tasks.start_soon(read_some)
        if failures:
            raise failures[0]

    async def _read(self, view: memoryview, address: int) -> None:
        region = readable_region(self._secret, address, len(view), self._virtual)
        most = self._connection.info.ep_attr.max_msg_size
        for start in range(0, len(view), most):
            part = view[start : start + most]
            await self._connection.read_into(part, region[start : start + len(part)])

    async def _ask(self) -> None:
        """Ask for the bodies, when the tasks that were started with this one have posted their receives. On trio they
        run in any order, and each has a checkpoint before that.
        """
        for _ in range(2):
            await anyio.lowlevel.checkpoint()
        await self._connection.send(encode_asked(self._incoming.taken))

    async def _confirm(self, freed: list[int]) -> None:
        """Tell the server what was taken, and which memory is not read any more."""
        for start in range(0, len(freed), MOST_FREED):
            message = encode_freed(freed[start : start + MOST_FREED])
            await self._tagged.send_tagged(message, self._uri.free_data or 0, to=self._peer)
        await self._connection.send(encode_taken(self._incoming.taken))


def _explain(error: FabricConnectionError) -> None:
    """An orderly end of the connection is none of the stream, whose last batch was not sent."""
    ended = "The stream ended before its last batch"
    if isinstance(error, FabricConnectionEndedError):
        error.strerror = ended
        error.args = (error.errno, ended)
    else:
        error.detail = ended
    error.cure = (
        "The server's log has the reason. One may be metadata above the max_metadata_bytes= of open_stream, such as a "
        "large schema"
    )
