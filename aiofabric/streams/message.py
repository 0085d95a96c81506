"""MessageStream: whole messages over a fabric, with anyio's manners.

Each message goes into the byte channel behind its length, four bytes little-endian. So credits, ends and large
messages are the channel's business, and small messages may share a frame: with packing, which both sides must
have agreed to, those of one loop iteration leave together when it ends.
"""

from __future__ import annotations

import errno
import struct
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ObjectStream

from aiofabric.channel.connect import HELLO
from aiofabric.channel.frames import MESSAGES, Hello, protocol_error
from aiofabric.errors import MessageTooLongError
from aiofabric.streams.base import ChannelStream, broken

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aiofabric.channel.endpoint import EndpointChannel

__all__ = ["MAX_MESSAGE_SIZE", "MessageStream", "message_hello"]

MAX_MESSAGE_SIZE = 64 << 20
"""Bytes of the longest message that a stream receives unless it is told otherwise."""

_LENGTH = struct.Struct("<I")
_PACKED = 8192
"""Bytes up to which a message is packed with others; a longer one gains nothing by waiting."""
_CHUNK = 1 << 20
_FULL = 14336
"""Bytes of a pack that is not held back any longer; together with one more message it is still copied."""


def message_hello(*, packing: bool, max_message_size: int) -> Hello:
    """How one side of a message stream introduces itself."""
    if not 0 < max_message_size < 1 << 32:
        raise ValueError("max_message_size is at least 1 byte and less than 4 GiB")
    return replace(HELLO, kind=MESSAGES, packing=packing, max_message_size=max_message_size)


class MessageStream(ChannelStream, ObjectStream[bytes]):
    """A stream of messages whose boundaries are kept.

    From :func:`connect_messages` or :func:`listen_messages`. With packing, a send or receive that need not wait
    takes a checkpoint only once in a while on asyncio; on trio every one is a checkpoint.
    """

    _channel: EndpointChannel

    def __init__(self, channel: EndpointChannel) -> None:
        super().__init__(channel)
        self._longest = channel.theirs.max_message_size
        packing = channel.ours.packing and channel.theirs.packing
        self._packed = min(_PACKED, self._longest) if packing else -1
        self._pack = bytearray()
        self._flush_is_due = False
        self._source, self._streak = channel.paced
        self._messages: deque[bytes] = deque()
        self._parts: list[bytes] = []  # of what has not arrived completely
        self._have = 0
        self._want = _LENGTH.size

    async def send(self, item: Buffer) -> None:
        """Send one message: any contiguous buffer, at most the peer's ``max_message_size``; empty ones too.

        Returns when the memory is the caller's again. A reader that is slow holds this up. Cancelled while it
        waits, it has either handed everything over, and then the message arrives, or it breaks the stream.

        Raises: MessageTooLongError (nothing was sent), BrokenResourceError, ClosedResourceError (also after
        :meth:`send_eof`), BusyResourceError.
        """
        view = item if type(item) is bytes else memoryview(item).cast("B")
        size = len(view)
        pack = self._pack
        if size > self._packed or not (pack or self._channel.flowing):  # what is begun goes out soon, and first
            await self._send_now(view, size)
            return
        pack += _LENGTH.pack(size)
        pack += view
        if len(pack) >= _FULL:
            self._flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._channel.call_soon(self._flush)
        source = self._source
        source.streak += 1
        if source.streak > self._streak:
            await self._channel.checkpoint()

    async def _send_now(self, view: bytes | memoryview, size: int) -> None:
        with self._sending:
            self._check_sendable()
            if size > self._longest:
                detail = f"The message has {size} bytes; the peer takes at most {self._longest}"
                raise MessageTooLongError(errno.EMSGSIZE, "send", peer=self._channel.peer_address, detail=detail)
            self._pack += _LENGTH.pack(size)
            try:
                if size <= _PACKED:
                    self._pack += view
                    pack, self._pack = self._pack, bytearray()
                    await self._channel.send(pack)
                else:
                    self._flush()
                    await self._channel.send(view)
            except ConnectionError as error:
                raise broken(error) from error

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._pack:
            pack, self._pack = memoryview(self._pack), bytearray()
            with suppress(ConnectionError, anyio.ClosedResourceError):  # the next call says so
                if not self._channel.try_send(pack):
                    self._channel.post(pack, _nobody_waits)

    async def receive(self) -> bytes:
        """Receive the next message. Cancelling loses nothing.

        Raises: EndOfStream, BrokenResourceError (also when the peer ended within a message),
        ClosedResourceError, BusyResourceError.
        """
        if self._messages:
            source = self._source
            source.streak += 1
            if source.streak <= self._streak:
                return self._messages.popleft()
        with self._receiving:
            if self._messages:
                await self._channel.checkpoint()
            while not self._messages:
                await self._receive_more()
            return self._messages.popleft()

    async def _receive_more(self) -> None:
        try:
            chunk = await self._channel.recv(_CHUNK)
        except ConnectionError as error:
            raise broken(error) from error
        if chunk:
            self._parts.append(chunk)
            self._have += len(chunk)
            if self._have >= self._want:
                self._cut()
        elif self._have:
            raise anyio.BrokenResourceError("the peer ended the stream within a message")
        else:
            raise anyio.EndOfStream

    def _cut(self) -> None:
        """Cut what has arrived into messages."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        start, end, size = 0, len(data), 0
        header, length, message = _LENGTH.size, _LENGTH.unpack_from, self._messages.append
        while (begin := start + header) <= end:
            (size,) = length(data, start)
            stop = begin + size
            if stop > end:
                break
            message(data[begin:stop])
            start = stop
            size = 0
        if size > self._channel.ours.max_message_size:
            self._channel.abort(protocol_error(f"The peer announced a message of {size} bytes"))
        self._parts = [data[start:]] if start < end else []
        self._have = end - start
        self._want = _LENGTH.size + size

    def abort(self) -> None:
        super().abort()
        self._pack = bytearray()  # or a send in this iteration would still find a pack to join

    async def aclose(self) -> None:
        await super().aclose()
        self._messages.clear()


def _nobody_waits(_: BaseException | None) -> None:
    pass
