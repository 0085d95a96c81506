"""OOB listener: the TCP port of a virtual listener, with limits on the number of clients and on their time.

Any client can connect to this port. A client that sends nothing within `TIMEOUT` seconds is disconnected. A client
that sends an invalid frame is disconnected at once. If too many clients are silent, the oldest of them is disconnected.
No fabric resource is opened before the first frame is complete.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ...cm.foreign_clients import ForeignClients
from ...cm.workarounds.half_open_clients import SILENT_MOST, TIMEOUT
from ...cm.workarounds.provider_sockets import are_free
from ...errors import from_errno
from .oob_socket import Frame, OobSocket, address_of, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...address import Address
    from ...cq.loops.drivers import Driver

__all__ = ["OobListener"]

_QUEUE = 4096  # established but not yet accepted, as in libfabric; the kernel may limit it further (somaxconn)
_BURST = 16  # accepted in one callback, so that other callbacks can run
_RELIEF = 0.1  # seconds until the next try after descriptors have run out
_RESERVE = 4  # descriptors kept for the provider: shm opens each peer's memory, and 1.17 crashes if it cannot


class OobListener:
    """A listening socket under the reactor; calls ``on_request(oob_socket, frame)`` with each first frame.

    ``on_cut`` is called for each client that is disconnected because it sent nothing.
    """

    def __init__(
        self,
        sock: socket.socket,
        driver: Driver,
        on_request: Callable[[OobSocket, Frame], object],
        on_cut: Callable[[], object],
    ) -> None:
        self._socket = sock
        self._driver = driver
        self._on_request = on_request
        self._on_cut = on_cut
        self._silent: dict[OobSocket, Callable[[], None]] = {}
        self._resume: Callable[[], None] | None = None
        self._foreign = ForeignClients()
        self.closed = False
        self._watch()

    @classmethod
    async def open(
        cls,
        node: str | None,
        service: str | int | None,
        driver: Driver,
        on_request: Callable[[OobSocket, Frame], object],
        on_cut: Callable[[], object],
    ) -> OobListener:
        """Listen at a host and port.

        Raises:
            OSError: the address is in use, or is not an address of this machine.
        """
        family, name = (await resolve(node, service, passive=True))[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(name)
            sock.listen(_QUEUE)
        except OSError as error:
            sock.close()
            raise from_errno(error.errno or 0, f"bind at {address_of(name)}") from error
        return cls(sock, driver, on_request, on_cut)

    @property
    def address(self) -> Address:
        """The listening address, with the port that was chosen."""
        address = address_of(self._socket.getsockname())
        assert address is not None
        return address

    def _watch(self) -> None:
        self._resume = None
        self._driver.add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(_BURST):
            if self.closed:
                return
            try:
                sock, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptors left: the socket stays readable, so stop reading for a moment
                self._pause()
                return
            if not are_free(_RESERVE):  # it would connect, but the provider could not open its memory
                sock.close()
                self._pause()
                return
            self._greet(OobSocket(sock, self._driver))

    def _pause(self) -> None:
        self._driver.remove_reader(self._socket.fileno())
        self._resume = self._driver.call_later(_RELIEF, self._watch)

    def _greet(self, oob_socket: OobSocket) -> None:
        if len(self._silent) >= SILENT_MOST:
            self._dismiss(next(iter(self._silent)))
        self._silent[oob_socket] = self._driver.call_later(TIMEOUT, lambda: self._dismiss(oob_socket))
        oob_socket.on_end = lambda: self._ended(oob_socket)
        oob_socket.on_frame = lambda frame: self._first(oob_socket, frame)

    def _first(self, oob_socket: OobSocket, frame: Frame) -> None:
        self._forget(oob_socket)
        oob_socket.on_end = oob_socket.on_frame = None
        try:
            self._on_request(oob_socket, frame)
        except Exception:  # an invalid request ends this OOB socket, and nothing else
            oob_socket.close()

    def _ended(self, oob_socket: OobSocket) -> None:
        self._forget(oob_socket)
        if oob_socket.foreign:
            self._foreign.refused(oob_socket.peer_address, oob_socket.foreign)

    def _dismiss(self, oob_socket: OobSocket) -> None:
        self._forget(oob_socket)
        oob_socket.close()
        self._on_cut()

    def _forget(self, oob_socket: OobSocket) -> None:
        cancel = self._silent.pop(oob_socket, None)
        if cancel is not None:
            cancel()

    def close(self) -> None:
        """Stop listening; disconnect clients that have not sent anything yet. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        if self._resume is None:
            self._driver.remove_reader(self._socket.fileno())
        else:
            self._resume()
        self._socket.close()
        for oob_socket in list(self._silent):
            self._forget(oob_socket)
            oob_socket.close()
