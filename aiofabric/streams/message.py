"""MessageStream: whole messages over a fabric, with anyio's interface.

Each message goes into the byte channel behind its length, four bytes little-endian. So the channel handles credits,
ends and large messages. Small messages may share a frame if both sides have agreed to packing. The messages of one loop
iteration then leave together, when it ends or when a task waits for an answer.
"""

from __future__ import annotations

import errno
import struct
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, SupportsIndex

import anyio
from anyio.abc import ObjectStream

from aiofabric._core import cut_messages, join_messages, refuse_pointers
from aiofabric.channel.connect import HELLO
from aiofabric.channel.frames import MESSAGES, Hello, protocol_error
from aiofabric.errors import MessageTooLongError
from aiofabric.memory import bytes_of
from aiofabric.streams.base import ChannelStream, broken

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aiofabric.channel.endpoint import EndpointChannel

__all__ = ["MAX_MESSAGE_SIZE", "MessageStream", "message_hello"]

MAX_MESSAGE_SIZE = 64 << 20
"""Default for the bytes of the longest message that a stream receives."""

_LENGTH = struct.Struct("<I")
_PACKED = 8192
"""Bytes of the largest message that is packed with others; longer ones would only be delayed."""
_CHUNK = 1 << 20


def message_hello(*, packing: bool, max_message_size: int) -> Hello:
    """The hello of one side of a message stream."""
    if isinstance(max_message_size, bool) or not isinstance(max_message_size, SupportsIndex):
        raise TypeError(f"max_message_size must be a number of bytes, not {max_message_size!r}")
    if not 0 < max_message_size < 1 << 32:
        raise ValueError("max_message_size must be at least 1 byte and less than 4 GiB")
    return replace(HELLO, kind=MESSAGES, packing=packing, max_message_size=max_message_size)


class MessageStream(ChannelStream, ObjectStream[bytes]):
    """A stream of messages whose boundaries are kept.

    From :func:`connect_messages` or :func:`listen_messages`. With packing, a send or receive that does not wait takes a
    checkpoint only occasionally on asyncio; on trio each one is a checkpoint.
    """

    _channel: EndpointChannel

    def __init__(self, channel: EndpointChannel) -> None:
        super().__init__(channel)
        self._longest = channel.theirs.max_message_size
        packing = channel.ours.packing and channel.theirs.packing
        self._packed = min(_PACKED, self._longest) if packing else -1
        self._pack: list[bytes] = []  # messages that leave together at the end of the loop iteration
        self._source, self._strict = channel.pace
        self._messages: deque[bytes] = deque()
        self._parts: list[bytes | memoryview] = []  # of a message, or of its length, that has not arrived completely
        self._missing = 0  # bytes of that message that are missing

    async def send(self, item: Buffer) -> None:
        """Send one message: any contiguous buffer of at most the peer's ``max_message_size``, also an empty one.

        Returns when the caller may change the memory. A peer that reads slowly delays the return. If the call is
        cancelled while it waits, there are two cases: the provider has all data, and then the message arrives; or the
        stream is broken.

        Raises: MessageTooLongError (nothing was sent), BrokenResourceError, ClosedResourceError (also after
        :meth:`send_eof`), BusyResourceError.
        """
        pack = self._pack
        if pack and type(item) is bytes and len(item) <= self._packed:
            pack.append(item)
        elif not self._begin(item):
            await self._send_now(item)
            return
        if self._strict or self._source.must_yield:  # this also bounds the number of messages in a pack
            await self._channel.checkpoint()

    def _begin(self, item: Buffer) -> bool:
        """Pack ``item``; False if it must wait or is large."""
        refuse_pointers(item)
        whole = bytes(item) if type(item) is not bytes and memoryview(item).nbytes <= self._packed else item
        if type(whole) is not bytes or len(whole) > self._packed:
            return False
        if not self._pack:
            if not self._channel.flowing:
                return False
            self._channel.call_soon(self._flush)
        self._pack.append(whole)
        return True

    async def _send_now(self, item: Buffer) -> None:
        view = bytes_of(item)
        with self._sending:
            self._check_sendable()
            if len(view) > self._longest:
                detail = f"The message has {len(view)} bytes; the peer accepts at most {self._longest}"
                raise MessageTooLongError(errno.EMSGSIZE, "send", peer=self._channel.peer_address, detail=detail)
            self._flush()  # keeps the order: packed messages go first
            length = _LENGTH.pack(len(view))
            try:
                if len(view) <= _PACKED:
                    await self._channel.send(length + view)
                else:
                    self._put(length)
                    await self._channel.send(item)
            except ConnectionError as error:
                raise broken(error) from error

    def _flush(self) -> None:
        if self._pack:
            pack, self._pack = self._pack, []
            self._put(join_messages(pack))

    def _put(self, data: bytes) -> None:
        with suppress(ConnectionError, anyio.ClosedResourceError):  # the next call raises it
            if self._channel.try_send(data) < len(data):
                self._channel.post(memoryview(data), _nobody_waits)

    async def receive(self) -> bytes:
        """Receive the next message. Cancelling loses nothing.

        Raises: EndOfStream, BrokenResourceError (also when the peer ended within a message),
        ClosedResourceError, BusyResourceError.
        """
        if self._messages and not (self._strict or self._source.must_yield):
            return self._messages.popleft()
        with self._receiving:
            if self._messages:
                await self._channel.checkpoint()
            while not self._messages:
                if not self._channel.readable:
                    self._flush()  # the awaited message may be an answer to packed ones
                await self._receive_more()
            return self._messages.popleft()

    async def _receive_more(self) -> None:
        try:
            chunk = await self._channel.recv(_CHUNK)
        except ConnectionError as error:
            raise broken(error) from error
        if chunk:
            self._cut(chunk)
        elif self._parts:
            raise anyio.BrokenResourceError("the peer ended the stream within a message")
        else:
            raise anyio.EndOfStream

    def _cut(self, chunk: bytes) -> None:
        """Split arrived data into messages."""
        start, parts = self._missing, self._parts
        if start > len(chunk):
            parts.append(chunk)
            self._missing -= len(chunk)
            return
        if start:
            parts.append(memoryview(chunk)[:start])
            self._messages.append(b"".join(parts))
        elif parts:  # the beginning of a length
            chunk = b"".join((*parts, chunk))
        whole, start = cut_messages(chunk, start)
        self._messages.extend(whole)
        begin, end = start + _LENGTH.size, len(chunk)
        if begin > end:
            self._parts, self._missing = [chunk[start:]] if start < end else [], 0
            return
        (size,) = _LENGTH.unpack_from(chunk, start)
        if size > self._channel.ours.max_message_size:
            self._channel.abort(protocol_error(f"The peer announced a message of {size} bytes"))
        self._parts, self._missing = [memoryview(chunk)[begin:]], begin + size - end

    def abort(self) -> None:
        super().abort()
        self._pack = []  # otherwise a send in this iteration would still append to it
        self._messages.clear()

    async def aclose(self) -> None:
        await super().aclose()
        self._messages.clear()


def _nobody_waits(_: BaseException | None) -> None:
    pass
