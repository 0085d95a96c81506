"""OOB listener: the kernel's TCP port where a virtual listener is found. Bounded, and patient only for so long.

Anybody can connect here. Who says nothing within a few seconds is cut off, who talks nonsense at once, and when too
many say nothing the longest silent one makes room. Nothing is opened on the fabric before the first frame is whole.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ...cm.workarounds.half_open_clients import PATIENCE, SILENT_MOST
from ...cm.workarounds.provider_sockets import are_free
from ...errors import from_errno
from .oob_socket import Frame, OobSocket, address_of, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...address import Address
    from ...cq.drivers import Driver

__all__ = ["OobListener"]

_QUEUE = 4096  # finished by the kernel and not accepted yet, as libfabric's own; the kernel has a limit of its own
_BURST = 16  # accepted in one go, then others get their chance
_RELIEF = 0.1  # seconds until the next try when descriptors have run out
_RESERVE = 4  # descriptors left for the provider: shm opens each peer's memory, and 1.17 crashes where it cannot


class OobListener:
    """A listening socket under the reactor; calls ``on_request(oob_socket, frame)`` with each first frame.

    ``on_cut`` is called for each that is cut off for saying nothing.
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
            OSError: the address is in use, or not this machine's.
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
        """Where it listens, with the port that was chosen."""
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
            except OSError:  # no descriptors left: the socket stays readable, so look away for a moment
                self._pause()
                return
            if not are_free(_RESERVE):  # it would connect, and then no message could pass
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
        self._silent[oob_socket] = self._driver.call_later(PATIENCE, lambda: self._dismiss(oob_socket))
        oob_socket.on_end = lambda: self._forget(oob_socket)
        oob_socket.on_frame = lambda frame: self._first(oob_socket, frame)

    def _first(self, oob_socket: OobSocket, frame: Frame) -> None:
        self._forget(oob_socket)
        oob_socket.on_end = oob_socket.on_frame = None
        try:
            self._on_request(oob_socket, frame)
        except Exception:  # whatever a client wrote: it ends this OOB socket and nothing else
            oob_socket.close()

    def _dismiss(self, oob_socket: OobSocket) -> None:
        self._forget(oob_socket)
        oob_socket.close()
        self._on_cut()

    def _forget(self, oob_socket: OobSocket) -> None:
        cancel = self._silent.pop(oob_socket, None)
        if cancel is not None:
            cancel()

    def close(self) -> None:
        """Stop listening; cut off who has not said anything yet. Quiet the second time."""
        if self.closed:
            return
        self.closed = True
        if self._resume is None:
            self._driver.remove_reader(self._socket.fileno())
        elif not self._driver.closed():
            self._resume()
        self._socket.close()
        for oob_socket in list(self._silent):
            self._forget(oob_socket)
            oob_socket.close()
