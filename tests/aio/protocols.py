"""Protocols that record what happens to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiofabric import aio


def where(server: aio.Server, which: int = 0) -> tuple[str, int]:
    """Host and port of a server."""
    name = server.sockets[which].getsockname()
    assert name is not None
    return name


class Recorder(asyncio.Protocol):
    """Keeps what arrives; ``ended`` and ``lost`` are futures for the two ends of a connection."""

    keep_open = False

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.received = bytearray()
        self.made: asyncio.Future[asyncio.Transport] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[Exception | None] = loop.create_future()
        self.writing_paused = 0
        self.writing_resumed = asyncio.Event()
        self._arrived = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport
        self.made.set_result(transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._arrived.set()

    def eof_received(self) -> bool:
        self.ended.set_result(None)
        return self.keep_open

    def pause_writing(self) -> None:
        self.writing_paused += 1
        self.writing_resumed.clear()

    def resume_writing(self) -> None:
        self.writing_resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    async def until(self, size: int) -> bytes:
        """The first ``size`` bytes that arrived, once they have; they are taken off."""
        while len(self.received) < size:
            self._arrived.clear()
            await self._arrived.wait()
        taken = bytes(self.received[:size])
        del self.received[:size]
        return taken


class HalfOpen(Recorder):
    """Goes on after the peer's end."""

    keep_open = True


class Echo(Recorder):
    """Sends back what it gets."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Buffered(asyncio.BufferedProtocol, Recorder):  # type: ignore[misc]  # eof_received returns a bool in both
    """Receives into one buffer of its own."""

    def __init__(self, size: int = 100) -> None:
        super().__init__()
        self.buffer = bytearray(size)
        self.filled: list[int] = []

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)  # asyncio's TLS slices it, and a slice of a bytearray is a copy

    def buffer_updated(self, nbytes: int) -> None:
        self.filled.append(nbytes)
        self.data_received(bytes(self.buffer[:nbytes]))
