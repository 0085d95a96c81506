"""The control channel: a TCP connection beside the fabric, on which the two sides coordinate.

Its messages are fi_pingpong's, of fixed length and without framing:

    address   length (4 bytes, network order), format (4 bytes, host order), the raw address
    ready     before each size, the client sends "q", and the server "a", each with its NUL
    count     after each size, the client sends its number of answers, as text in 10 bytes; the server sends "cnt ok"

Nothing else is sent. The channel ends when both sides are done. It also ends when a side dies, so a lost peer is
noticed here even if the fabric does not report it (FI_EP_RDM, FI_EP_DGRAM).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiofabric.address import Address
from aiofabric.flags import AddressFormat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

__all__ = ["PORT", "SAME_KIND", "TIMEOUT", "Control", "ControlError", "control_channel"]

PORT = 47592
TIMEOUT = 5.0  # seconds to wait for the other side's first message, and until it is ready
SAME_KIND = "does it have the same -e?"
_SIZE, _FORMAT = struct.Struct("!I"), struct.Struct("=I")
_LONGEST_NAME = 1024
_READY, _ANSWER, _COUNTED, _COUNT_SIZE = b"q\0", b"a\0", b"cnt ok\0", 10

_log = logging.getLogger("aiofabric.cli.pingpong")


class ControlError(ConnectionError):
    """The other side went away, or violated the protocol."""


@asynccontextmanager
async def control_channel(server: str | None, *, source_port: int, port: int, ipv6: bool) -> AsyncIterator[Control]:
    """Open the channel: connect to ``server``, or wait for one client."""
    family, here = (socket.AF_INET6, "::") if ipv6 else (socket.AF_INET, "0.0.0.0")
    if server is None:
        client = await _one_client(family, here, source_port or PORT)
        reader, writer = await asyncio.open_connection(sock=client)
    else:
        bound = (here, source_port) if source_port else None
        _log.debug("connecting to %s, port %d", server, port)
        try:
            reader, writer = await asyncio.open_connection(server, port, family=family, local_addr=bound)
        except OSError as error:
            # The texts of the name server and of the kernel do not name the host.
            raise ControlError(f"no server at {server}, port {port}: {error.strerror or error}") from error
    _log.debug("control channel: connected to %s", writer.get_extra_info("peername"))
    control = Control(reader, writer, is_client=server is not None)
    watch = asyncio.create_task(control.watch(), name="pingpong control channel")
    try:
        yield control
    finally:
        watch.cancel()
        writer.close()


async def _one_client(family: int, here: str, port: int) -> socket.socket:
    try:
        listening = socket.create_server((here, port), family=family)
    except OSError as error:
        raise ControlError(
            f"cannot listen at port {port}: {os.strerror(error.errno or 0)}; -B chooses another"
        ) from error
    with listening:
        listening.setblocking(False)
        print(f"listening at {here}, port {port}", file=sys.stderr, flush=True)
        connection, _ = await asyncio.get_running_loop().sock_accept(listening)
    return connection


class Control:
    """The control messages of both sides.

    ``lost`` is set when the other side has closed the channel, ``spoke`` when it has sent something. ``unread`` is the
    number of received bytes that were not taken yet. A server calls ``meanwhile`` while it waits for a message.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        self.is_client = is_client
        self.lost = asyncio.Event()
        self.spoke = asyncio.Event()
        self.unread = 0
        self.meanwhile: Callable[[Coroutine[Any, Any, bytes]], Awaitable[bytes]] | None = None
        self._stream = reader
        self._received = asyncio.StreamReader()
        self._writer = writer

    async def watch(self) -> None:
        """Read ahead, so that the end is noticed when it comes, not at the next expected message."""
        try:
            while data := await self._stream.read(4096):
                self._received.feed_data(data)
                self.unread += len(data)
                self.spoke.set()
        except OSError:
            pass  # a reset counts as an end
        self._received.feed_eof()
        self.lost.set()

    async def send_name(self, address: Address) -> None:
        """Send the address of this side's endpoint."""
        await self._say(_SIZE.pack(len(address.raw)) + _FORMAT.pack(address.format) + address.raw)
        _log.debug("sent the address of this side, %s", address)

    async def receive_name(self) -> Address:
        """Receive the address of the other side's endpoint; it is the first message."""
        try:
            async with asyncio.timeout(TIMEOUT):
                start = await self._read(_SIZE.size)
        except TimeoutError:
            raise ControlError(
                f"the other side has sent nothing for {TIMEOUT:.0f} s: check that it runs pingpong"
            ) from None
        (size,) = _SIZE.unpack(start)
        if size > _LONGEST_NAME:
            raise ControlError(f"the other side sent {start!r} instead of an address: check that it runs pingpong")
        (kind,) = _FORMAT.unpack(await self._read(_FORMAT.size))
        address = Address(AddressFormat(kind), await self._read(size))
        _log.debug("the other side is at %s", address)
        return address

    async def ready(self) -> None:
        """Return when both sides are ready to begin."""
        if self.is_client:
            await self._say(_READY)
            try:
                async with asyncio.timeout(TIMEOUT):
                    await self._expect(_ANSWER)
            except TimeoutError:
                raise ControlError(f"the other side is not ready after {TIMEOUT:.0f} s: {SAME_KIND}") from None
        else:
            await self._expect(_READY)
            await self._say(_ANSWER)
        _log.debug("both sides are ready")

    async def exchange_count(self, answers: int) -> int:
        """Return the client's number of answers, on both sides."""
        if self.is_client:
            await self._say(str(answers).encode().ljust(_COUNT_SIZE, b"\0"))
            await self._expect(_COUNTED)
            return answers
        text = (await self._read(_COUNT_SIZE)).rstrip(b"\0")
        if not text.isdigit():
            raise ControlError(f"the other side sent {text!r} as a count: check that it runs pingpong")
        await self._say(_COUNTED)
        return int(text)

    async def finish(self) -> None:
        """Tell the other side that this one is done, and wait for its end: it may still need this side's endpoint."""
        self._writer.write_eof()
        await self.lost.wait()

    async def _say(self, word: bytes) -> None:
        self._writer.write(word)
        await self._writer.drain()

    async def _read(self, size: int) -> bytes:
        reading = self._received.readexactly(size)
        try:
            data = await (reading if self.meanwhile is None or self.is_client else self.meanwhile(reading))
        except asyncio.IncompleteReadError:
            raise ControlError("the other side went away") from None
        self.unread -= size
        return data

    async def _expect(self, word: bytes) -> None:
        if (received := await self._read(len(word))) != word:
            raise ControlError(f"the other side sent {received!r} instead of {word!r}: check that it runs pingpong")
