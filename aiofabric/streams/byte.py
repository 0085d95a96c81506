"""FabricStream: a byte stream over a fabric, with anyio's interface."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteStream

from aiofabric._core import fast_stream_receive, fast_stream_receive_into, fast_stream_send
from aiofabric.memory import bytes_of
from aiofabric.streams.base import ChannelStream, broken

if TYPE_CHECKING:
    from typing_extensions import Buffer


class FabricStream(ChannelStream, ByteStream):
    """A half-closeable byte stream with flow control, from :func:`connect_stream` or :func:`listen_stream`.

    A send or receive that does not wait takes a checkpoint only occasionally on asyncio; on trio each one is a
    checkpoint.
    """

    @property
    def readable(self) -> bool:
        """Whether :meth:`receive` would return or raise at once: data, the end or an error has arrived."""
        return self._closed or self._channel.readable

    @property
    def ended(self) -> bool:
        """Whether :meth:`receive` would raise at once: the peer has ended or is lost, and all its data was taken."""
        return self._closed or self._channel.ended

    @fast_stream_receive
    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Receive at least one byte and at most ``max_bytes``.

        Cancelling loses nothing: data that has arrived stays for the next call.

        Raises: ValueError (``max_bytes`` below 1), EndOfStream, BrokenResourceError, ClosedResourceError,
        BusyResourceError; WrongThreadError, WrongLoopError, ForkedError.
        """
        return await self._receive(max_bytes)

    async def _receive(self, max_bytes: int) -> bytes:
        """`receive`, where C does not serve the call."""
        if index(max_bytes) < 1:
            raise ValueError("max_bytes must be a positive integer")
        self._channel.check_usable()
        with self._receiving:
            try:
                data = await self._channel.recv(max_bytes)
            except ConnectionError as error:
                raise broken(error) from error
        if not data:
            raise anyio.EndOfStream
        return data

    @fast_stream_receive_into
    async def receive_into(self, buffer: Buffer) -> int:
        """Receive into the caller's writable memory; return the number of bytes, at least one.

        The buffer is not accessed after the call has returned or raised. Cancelling loses nothing.

        Raises: like :meth:`receive`; ValueError (an empty buffer), BufferError (read-only or not contiguous).
        """
        return await self._receive_into(buffer)

    async def _receive_into(self, buffer: Buffer) -> int:
        """`receive_into`, where C does not serve the call."""
        view = memoryview(buffer)
        if view.readonly or not view.c_contiguous:
            raise BufferError("receiving needs writable, contiguous memory")
        if not view.nbytes:
            raise ValueError("the buffer is empty")
        bytes_of(buffer)  # refuses pointers: bytes of a peer in an array of objects would end this process
        self._channel.check_usable()
        with self._receiving:
            try:
                count = await self._channel.recv_into(buffer)
            except ConnectionError as error:
                raise broken(error) from error
        if not count:
            raise anyio.EndOfStream
        return count

    @fast_stream_send
    async def send(self, item: Buffer) -> None:
        """Send all of ``item``, any contiguous buffer; a large one is sent without a copy.

        Returns when the caller may change the memory: the data is on its way, but may not have arrived. With ``bytes``
        it returns as soon as the provider has the data; the object is kept until the data has left. A peer that reads
        slowly delays the return. If the call is cancelled while it waits, there are two cases: all data was sent, and
        then all of it arrives; or the stream is broken, and both ends get BrokenResourceError. It waits for at most
        0.1 s until the memory may be changed. Over shm, rxm and rxd, a peer that is stopped may still read it later.

        Raises: BrokenResourceError, ClosedResourceError (also after :meth:`send_eof`), BusyResourceError;
        WrongThreadError, WrongLoopError, ForkedError.
        """
        await self._send(item)

    async def _send(self, item: Buffer) -> None:
        """`send`, where C does not serve the call."""
        self._channel.check_usable()
        with self._sending:
            if self._closed or self._eof_sent:
                raise anyio.ClosedResourceError
            try:
                await self._channel.send(item)
            except ConnectionError as error:
                raise broken(error) from error
