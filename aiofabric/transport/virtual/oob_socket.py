"""OobSocket: the TCP connection beside a virtual one. It carries the handshake, and its end shows the peer's end.

A provider with only connectionless endpoints (shm, rxm, EFA, Slingshot) does not report that a peer has ended. The
kernel does: when a process exits or is killed, the kernel closes its sockets at once.

A frame has a header of five bytes (mark, kind, length) and a body of at most `MAX_FRAME` bytes. A peer that sends
anything else is disconnected.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ..._ffi import constants
from ...address import Address
from ...cm.workarounds.keepalive import notice_silence
from ...errors import FabricError, from_errno, unresolved

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...cq.loops.drivers import Driver

__all__ = ["MAX_FRAME", "Frame", "OobSocket", "address_of", "dial", "resolve"]

MAX_FRAME = 2048
_MARK = 0xAF1B
_HEADER = struct.Struct("!HBH")
_ROOM = 4096
_ESTABLISHED = 1  # tcpi_state
_READS = 8  # in a row, so that a peer that floods the OOB socket does not hold the loop


class Frame(NamedTuple):
    """One message on an OOB socket."""

    kind: int
    body: bytes


class OobSocket:
    """A connected, non-blocking socket under the reactor. ``on_frame`` and ``on_end`` are called from the loop.

    ``on_end`` is called once, when the peer or the network ends the OOB socket, or the peer sends an invalid frame; not
    after `close`.
    """

    def __init__(self, sock: socket.socket, driver: Driver) -> None:
        sock.setblocking(False)
        with suppress(OSError):  # not TCP: a test's socketpair
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: socket.socket | None = sock
        self.local_address = address_of(sock.getsockname())
        self.peer_address: Address | None = None
        with suppress(OSError):  # the peer is already gone: the first read reports it
            self.peer_address = address_of(sock.getpeername())
        self._driver = driver
        self._received = bytearray()
        self.foreign = b""  # what the peer sent, if that is no frame
        self.on_frame: Callable[[Frame], object] | None = None
        self.on_end: Callable[[], object] | None = None
        driver.add_reader(sock.fileno(), self._readable)

    @property
    def closed(self) -> bool:
        """Whether the socket is closed, so that it can neither send nor receive."""
        return self._socket is None

    @property
    def peer_is_there(self) -> bool:
        """Whether the peer has not closed its side. The kernel knows it before anything is read; 0.4 us."""
        if self._socket is None:
            return False
        try:
            return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED
        except OSError:  # not TCP: a test's socketpair
            return True

    def keep_alive(self, seconds: float) -> None:
        """Make the kernel notice that the peer's host is gone; see `keepalive`."""
        if self._socket is not None:
            notice_silence(self._socket, seconds)

    def send(self, kind: int, body: bytes = b"") -> bool:
        """Send a frame at once. False: the OOB socket is closed, or the peer has not read for a long time.

        Frames are few and small, so a full socket buffer means that the other end does not read.
        """
        if self._socket is None:
            return False
        frame = _HEADER.pack(_MARK, kind, len(body)) + body
        try:
            return self._socket.send(frame) == len(frame)
        except OSError:
            return False

    def _readable(self) -> None:
        # Read again after data: if the peer has reset the connection, uvloop calls this once and never again, and the
        # first read returns what had arrived before the reset.
        for _ in range(_READS):
            if self._socket is None:
                return
            try:
                data = self._socket.recv(_ROOM)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._end()
                return
            self._received += data
            self.hand_out()
            if len(self._received) > _ROOM:  # no handler is set yet, and a peer never sends that much before
                self._end()
        self._driver.call_soon(self._readable)

    def poll(self) -> None:
        """Read data that the loop has not read yet, to learn whether the peer has already left."""
        self._readable()

    def hand_out(self) -> None:
        """Pass arrived frames to ``on_frame``; call this after setting it. Without ``on_frame``, frames wait."""
        while self.on_frame is not None and (frame := self._cut()) is not None:
            self.on_frame(frame)

    def _cut(self) -> Frame | None:
        received = self._received
        if len(received) < _HEADER.size:
            return None
        mark, kind, length = _HEADER.unpack_from(received)
        if mark != _MARK or length > MAX_FRAME:
            self.foreign = bytes(received)
            received.clear()
            self._end()
            return None
        end = _HEADER.size + length
        if len(received) < end:
            return None
        frame = Frame(kind, bytes(received[_HEADER.size : end]))
        del received[:end]
        return frame

    def _end(self) -> None:
        if self._socket is None:
            return
        self._shut()
        if self.on_end is not None:
            self.on_end()

    def close(self) -> None:
        """End the OOB socket; the other side sees it at once. A second call does nothing."""
        self.on_frame = self.on_end = None
        self._shut()

    def _shut(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            self._driver.remove_reader(sock.fileno())
            sock.close()


def address_of(name: tuple[object, ...]) -> Address | None:
    """A socket's name as an `Address`; None for sockets without one."""
    return Address.from_ip(str(name[0]), int(str(name[1]))) if len(name) >= 2 else None


async def resolve(
    node: str | None, service: str | int | None, *, passive: bool = False
) -> list[tuple[int, tuple[str, int]]]:
    """Socket families and names for a host and port."""
    from anyio import getaddrinfo

    flags = socket.AI_PASSIVE if passive else 0
    try:
        found = await getaddrinfo(node, service or 0, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        raise unresolved(error, node, service) from None
    return [(int(family), sockaddr) for family, _, _, _, sockaddr in found]


async def dial(node: str | None, service: str | int | None) -> socket.socket:
    """Connect to the first address of the host that answers. Cancelling closes the socket.

    Raises:
        FabricConnectionRefusedError, UnreachableError, FabricTimeoutError: the network reported it.
    """
    from anyio import wait_writable

    failure: FabricError | None = None
    for family, name in await resolve(node, service):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            code = sock.connect_ex(name)
            if code in (constants.FI_EINPROGRESS, constants.FI_EAGAIN):
                await wait_writable(sock)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except BaseException:
            sock.close()
            raise
        if code == 0:
            return sock
        sock.close()
        failure = from_errno(code, "connect", peer=address_of(name))
    raise failure or FabricError(constants.FI_EADDRNOTAVAIL, "connect", peer=f"{node}:{service}")
