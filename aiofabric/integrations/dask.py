"""Dask over a fabric: schedulers, workers and clients at addresses ``fabric://host:port``.

    dask scheduler --protocol fabric://
    dask worker fabric://10.0.0.1:8786

``pip install '.[dask]'``; Dask then finds this backend by itself.

Large arrays are sent and received without a copy: from 1 MiB on, the receiver reads them out of the sender's memory
(RMA). The setting ``distributed.comm.fabric.provider`` of Dask's configuration chooses the provider; by default it is
the first that has the address. There is no TLS: a configuration that requires encryption is refused.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import weakref
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import anyio
import dask.config
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.registry import Backend
from distributed.comm.utils import ensure_concrete_host, from_frames, to_frames
from distributed.protocol.utils import host_array
from distributed.system import MEMORY_LIMIT
from distributed.utils import ensure_ip, ensure_memoryview, get_ip, get_ipv6, nbytes

from aiofabric.channel.rma import RmaChannel
from aiofabric.errors import FabricError
from aiofabric.remote_region import RemoteRegion
from aiofabric.streams import FabricAttribute, connect_stream, listen_stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aiofabric.address import Address
    from aiofabric.channel.rma import ExposedMemory
    from aiofabric.streams import FabricStream

__all__ = ["FabricBackend"]

PREFIX = "fabric://"
SMALL = 4096
"""Adjacent frames smaller than this many bytes are copied together, which costs less than sending each."""
READS = "aiofabric-reads"
"""In the handshake: this side can read the other side's memory."""
EXPOSED = 1 << 63
"""This bit in the size of a frame says: a description of the sender's memory comes in place of the frame."""
EXPOSED_LEAST = 1 << 20
"""Bytes of a frame that the receiver reads out of the sender's memory."""
NEVER_SPLIT = 1 << 60
"""Bytes from which Dask splits a frame. Its reader would copy the parts together: 400 MB went at 2.8 instead of 5.4
GB/s."""
MOST_FRAMES = 1 << 20
"""A peer that announces more frames in a message does not use Dask's protocol."""

_log = logging.getLogger(__name__)

_ENDED = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


def _uri(address: Address) -> str:
    return f"{PREFIX}{unparse_host_port(address.host or '', address.port)}"


def _refuse_encryption(options: dict[str, Any]) -> None:
    if options.get("require_encryption"):
        raise RuntimeError(
            "Dask's configuration requires encryption, and fabric:// has no encryption: use tls://, or set "
            "distributed.comm.require-encryption to false"
        )


def _abort_unclosed(stream: FabricStream, peer: str, loop: asyncio.AbstractEventLoop) -> None:
    """End the connection of a comm that Dask dropped, and say so as its own comms do; on any thread."""
    if not stream.ended:
        _log.warning("Dask dropped the connection to %s without closing it", peer)
    with suppress(RuntimeError):  # the loop has ended, and with it the stream
        loop.call_soon_threadsafe(stream.abort)


class FabricComm(Comm):
    """One connection; each of Dask's messages is sent as the sizes of its frames, then the frames.

    A large frame stays where it is, if the provider has RMA: the receiver reads it into memory of its own.
    """

    def __init__(self, stream: FabricStream, deserialize: bool) -> None:
        self._stream = stream
        channel = stream.channel
        self._rma = channel if isinstance(channel, RmaChannel) and channel.has_rma else None
        self._local_addr = _uri(stream.extra(FabricAttribute.local_address))  # Dask reads these two names
        self._peer_addr = _uri(stream.extra(FabricAttribute.remote_address))
        self._closed = False
        self._unclosed = weakref.finalize(self, _abort_unclosed, stream, self._peer_addr, asyncio.get_running_loop())
        self._unclosed.atexit = False
        super().__init__(deserialize)

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    def handshake_info(self) -> dict[str, Any]:
        return super().handshake_info() | {READS: self._rma is not None}

    async def read(self, deserializers: Any = None) -> Any:
        with self._all_or_closed():
            (count,) = struct.unpack("<Q", await self._exactly(8))
            if count > MOST_FRAMES:
                raise CommClosedError(f"{self._peer_addr} announced a message of {count} frames")
            sizes = struct.unpack(f"<{count}Q", await self._exactly(8 * count))
            if (total := sum(size & ~EXPOSED for size in sizes)) > MEMORY_LIMIT:
                raise CommClosedError(f"{self._peer_addr} announced a message of {total} bytes")
            # each in memory of its own: it may be kept for long
            frames = [
                await (self._exposed_frame if size & EXPOSED else self._exactly)(size & ~EXPOSED) for size in sizes
            ]
        return await from_frames(
            frames, deserialize=self.deserialize, deserializers=deserializers, allow_offload=self.allow_offload
        )

    async def write(self, msg: Any, serializers: Any = None, on_error: str | None = "message") -> int:
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options},
            frame_split_size=NEVER_SPLIT,
        )
        if len(frames) > MOST_FRAMES:
            raise ValueError(f"a message of {len(frames)} frames; fabric:// sends at most {MOST_FRAMES}")
        sizes = [nbytes(frame) for frame in frames]
        with self._all_or_closed(), ExitStack() as regions:
            waiting: list[ExposedMemory] = []
            announced = sizes.copy()
            for at, size in enumerate(sizes):
                if size < EXPOSED_LEAST or (exposed := self._exposed(frames[at])) is None:
                    continue
                waiting.append(regions.enter_context(exposed))
                described = exposed.remote.pack()
                frames[at] = len(described).to_bytes(2, "little") + described
                announced[at] |= EXPOSED
            header = struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *announced)
            for small, parts in groupby([header, *frames], lambda part: nbytes(part) < SMALL):
                for part in (b"".join(parts),) if small else parts:
                    await self._stream.send(ensure_memoryview(part))
            for exposed in waiting:
                await exposed.was_read()
        return sum(sizes)

    async def close(self) -> None:
        self._closed = True
        self._unclosed.detach()
        await self._stream.aclose()

    def abort(self) -> None:
        self._closed = True
        self._unclosed.detach()
        self._stream.abort()

    def closed(self) -> bool:
        """Also true after the peer's end; then Dask does not call close any more, so the stream is aborted here."""
        if not self._closed and self._stream.ended:
            self.abort()
        return self._closed

    def _exposed(self, frame: Any) -> ExposedMemory | None:
        """Let the peer read a frame; None if the frame must be sent."""
        if self._rma is None or not self.remote_info.get(READS):
            return None
        with suppress(FabricError):  # the host limits the memory that a process may register (ulimit -l), for example
            return self._rma.expose(ensure_memoryview(frame))
        return None

    async def _exactly(self, size: int) -> memoryview:
        frame: memoryview = host_array(size)  # pages are touched only by received bytes, so a size alone costs nothing
        at = 0
        while at < size:
            at += await self._stream.receive_into(frame[at:])
        return frame

    async def _exposed_frame(self, size: int) -> memoryview:
        described = await self._exactly(int.from_bytes(await self._exactly(2), "little"))
        try:
            remote = RemoteRegion.unpack(described)
        except ValueError as error:
            raise CommClosedError(f"{self._peer_addr} described its memory in {len(described)} bytes") from error
        if remote.length != size or self._rma is None:
            raise CommClosedError(f"{self._peer_addr} exposes {remote.length} bytes, and announced {size}")
        frame: memoryview = host_array(size)
        await self._rma.read_exposed(frame, remote)
        return frame

    @contextmanager
    def _all_or_closed(self) -> Iterator[None]:
        """End the connection after a cancel or failure: a part of a message was transferred, so the start of the next
        message is unknown.
        """
        if self._closed:
            raise CommClosedError
        try:
            yield
        except BaseException as error:
            self.abort()
            if isinstance(error, _ENDED):
                error.__traceback__ = None  # the channel keeps the error, and its traceback refers to the frames
                raise CommClosedError(f"{self._peer_addr}: {str(error) or type(error).__name__}") from error
            raise


class FabricConnector(Connector):
    async def connect(self, address: str, deserialize: bool = True, **options: Any) -> Comm:
        _refuse_encryption(options)
        host, port = parse_host_port(address)
        return FabricComm(await connect_stream(host, port, provider=_provider()), deserialize)


class FabricListener(BaseListener):
    prefix = PREFIX  # read by workers

    def __init__(
        self,
        location: str,
        handle: Callable[[Comm], Awaitable[None]],
        deserialize: bool = True,
        *,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        _refuse_encryption(options)
        self._host, self._port = parse_host_port(location, default_port)
        self._handle = handle
        self._deserialize = deserialize
        self._allow_offload = allow_offload
        self._default_host = default_host
        self._listening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        started: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(started))
        try:
            self._address = await started
        except BaseException:
            self._listening.cancel()
            raise

    async def _listen(self, started: asyncio.Future[Address]) -> None:
        try:
            async with listen_stream(self._host or None, self._port, provider=_provider()) as listener:
                started.set_result(listener.address)
                await listener.serve(self._accepted)
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _accepted(self, stream: FabricStream) -> None:
        """Serve in a task of its own, because connections outlive the listener."""
        task = asyncio.create_task(self._serve(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, stream: FabricStream) -> None:
        comm = FabricComm(stream, self._deserialize)
        comm.allow_offload = self._allow_offload
        try:
            await self.on_connection(comm)
        except BaseException as error:  # no other code has a reference to the connection yet
            comm.abort()
            if not isinstance(error, CommClosedError):
                raise
            return
        await self._handle(comm)

    def stop(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    @property
    def listen_address(self) -> str:
        return _uri(self._address)

    @property
    def contact_address(self) -> str:
        host = ensure_concrete_host(self._address.host, default_host=self._default_host)
        return f"{PREFIX}{unparse_host_port(host, self._address.port)}"


class FabricBackend(Backend):
    """The backend that Dask finds under ``fabric`` among the entry points ``distributed.comm.backends``."""

    def get_connector(self) -> Connector:
        return FabricConnector()

    def get_listener(self, loc: str, handle_comm: Any, deserialize: bool, **options: Any) -> FabricListener:
        return FabricListener(loc, handle_comm, deserialize, **options)

    def get_address_host(self, loc: str) -> str:
        return self.get_address_host_port(loc)[0]

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        host, port = parse_host_port(loc)
        return host, port

    def resolve_address(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        return str(unparse_host_port(ensure_ip(host), port))

    def get_local_address_for(self, loc: str) -> str:
        host, _ = parse_host_port(loc)
        host = ensure_ip(host)
        return str(unparse_host_port(get_ipv6(host) if ":" in host else get_ip(host), None))


def _provider() -> str | None:
    name: str | None = dask.config.get("distributed.comm.fabric.provider", None)
    return name
