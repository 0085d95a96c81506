"""The TCP connection between the two sides of a check: one JSON object a line, and its end is the end of the check."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

__all__ = ["Control", "PeerError", "control_of", "plain_host"]


class PeerError(ConnectionError):
    """The other side failed, or has ended."""


@asynccontextmanager
async def control_of(connection: socket.socket, *, leads: bool) -> AsyncIterator[Control]:
    """Take over a connected socket."""
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)
    control = Control(reader, writer, leads=leads)
    watch = asyncio.create_task(control.watch())
    try:
        yield control
    finally:
        watch.cancel()
        writer.close()


def plain_host(host: str) -> str:
    """The IPv4 address that a socket for both families shows as an IPv6 address."""
    return host.removeprefix("::ffff:") if "." in host else host


class Control:
    """Messages to and from the other side; ``leads`` is true for the side that measures."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, leads: bool) -> None:
        self.leads = leads
        self.lost = asyncio.Event()
        self.failure = ""
        self.host = plain_host(writer.get_extra_info("sockname")[0])
        self._reader = reader
        self._writer = writer
        self._received: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def watch(self) -> None:
        """Read ahead, so that the end of the other side is noticed at once."""
        with suppress(OSError, ValueError):
            while line := await self._reader.readline():
                message = json.loads(line)
                if "failure" in message:
                    self.failure = message["failure"]
                    break
                self._received.put_nowait(message)
        self.lost.set()
        self._received.put_nowait(None)

    async def send(self, **message: Any) -> None:
        """Send one object."""
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any]:
        """The next object of the other side."""
        message = await self._received.get()
        if message is None:
            raise PeerError(self.reason())
        return message

    async def finish(self) -> None:
        """Tell the other side that the check is done, and wait until it has stopped to serve: it would see the end of
        the connection as an error.
        """
        await self.send(done=True)
        await self.receive()

    async def finished(self) -> None:
        """Confirm that this side serves no more."""
        await self.send(done=True)

    def reason(self) -> str:
        """Why the other side is gone."""
        return f"the other side failed: {self.failure}" if self.failure else "the other side has ended"
