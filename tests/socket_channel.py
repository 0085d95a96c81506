"""A byte channel over a kernel socket, for tests only: it tests the adapters without a fabric."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

import anyio
import sniffio
import trio

from aiofabric.channel.base import ByteChannel, Done, StreamStatistics

if TYPE_CHECKING:
    from collections.abc import Callable


class SocketChannel(ByteChannel):
    def __init__(self, loop: Any, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = loop
        self._sock = sock
        self._watcher: Callable[[], object] | None = None
        self._on_writable: Callable[[], object] | None = None
        self._posted: deque[tuple[memoryview, Done]] = deque()
        self._readable = False
        self._write_ended = False
        self._closed = False
        self._broken: OSError | None = None
        self._ended: Exception = anyio.ClosedResourceError()
        self._on_closed: list[Callable[[], None]] = []
        self._names = (self._name(sock.getsockname), self._name(sock.getpeername))

    @staticmethod
    def _name(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except OSError:
            return None

    @property
    def local_address(self) -> Any:
        return self._names[0]

    @property
    def peer_address(self) -> Any:
        return self._names[1]

    @property
    def info(self) -> Any:
        return None

    @property
    def readable(self) -> bool:
        return self._readable

    @property
    def ended(self) -> bool:
        try:
            return self._closed or not self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    @property
    def unsent(self) -> int:
        return sum(len(view) for view, _ in self._posted)

    def statistics(self) -> StreamStatistics:
        return StreamStatistics(0, 0, 0, 0, self.unsent, 0, 0, 0)

    # -- receiving: one read for each time the loop says so, as asyncio's own transports do ------------------

    def watch(self, callback: Callable[[], object] | None) -> None:
        if self._closed:
            return
        if callback is None and self._watcher is not None:
            self._loop.remove_reader(self._sock)
        elif callback is not None:
            self._loop.add_reader(self._sock, self._read_ready)
        self._watcher = callback

    def _read_ready(self) -> None:
        self._readable = True
        if self._watcher is not None:
            self._watcher()

    def try_recv(self, max_bytes: int) -> bytes | None:
        self._check_open()
        self._readable = False
        try:
            return self._sock.recv(max_bytes)
        except (BlockingIOError, InterruptedError):
            return None

    def try_recv_into(self, buffer: memoryview) -> int | None:
        self._check_open()
        self._readable = False
        try:
            return self._sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    # -- sending --------------------------------------------------------------------------------------------

    def try_send(self, data: bytes | memoryview) -> int:
        self._check_open()
        if self._broken is not None:
            raise self._broken
        if self._posted or not data:
            return 0
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as exc:
            self._broken = exc
            raise

    def post(self, data: memoryview, done: Done) -> None:
        self._check_open()
        self._posted.append((data, done))
        self._loop.add_writer(self._sock, self._write_ready)

    def when_writable(self, callback: Callable[[], object] | None) -> None:
        self._on_writable = callback
        if callback is not None and self._closed:
            callback()
        elif callback is not None:
            self._loop.add_writer(self._sock, self._write_ready)

    def _write_ready(self) -> None:
        while self._posted:
            view, done = self._posted[0]
            try:
                if self._broken is not None:
                    raise self._broken
                sent = self._sock.send(view)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as exc:
                self._broken = exc
                self._posted.popleft()
                done(exc)
                continue
            if sent < len(view):
                self._posted[0] = (view[sent:], done)
                return
            self._posted.popleft()
            done(None)
        if self._closed:
            return
        self._loop.remove_writer(self._sock)
        if self._write_ended:
            self._shut()
        if self._on_closed:
            self.abort()
        callback, self._on_writable = self._on_writable, None
        if callback is not None:
            callback()

    # -- the end --------------------------------------------------------------------------------------------

    def shutdown_write(self) -> None:
        self._check_open()
        self._write_ended = True
        if not self._posted:
            self._shut()

    def _shut(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as exc:
            self._broken = exc

    def close(self, done: Callable[[], None]) -> None:
        self._on_closed.append(done)
        if self._closed or not self._posted:
            self.abort()

    def abort(self, error: ConnectionError | None = None) -> None:
        if not self._closed:
            self._ended = error or anyio.ClosedResourceError()
            watcher, on_writable = self._watcher, self._on_writable
            self._closed = self._readable = True
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            while self._posted:
                self._posted.popleft()[1](self._ended)
            for callback in (watcher, on_writable):
                if callback is not None:
                    callback()
        while self._on_closed:
            self._on_closed.pop()()

    def _check_open(self) -> None:
        if self._closed:
            raise self._ended


class TrioPoller:
    """The four methods of an asyncio loop that a socket channel needs, on trio."""

    def __init__(self) -> None:
        self._scopes: dict[tuple[socket.socket, str], trio.CancelScope] = {}

    def _add(self, sock: socket.socket, kind: str, callback: Callable[[], object]) -> None:
        async def watch() -> None:
            wait = trio.lowlevel.wait_readable if kind == "read" else trio.lowlevel.wait_writable
            with scope:
                while self._scopes.get((sock, kind)) is scope:  # removed before it ran: the socket is closed
                    await wait(sock)
                    callback()

        if (sock, kind) not in self._scopes:
            scope = self._scopes[sock, kind] = trio.CancelScope()
            trio.lowlevel.spawn_system_task(watch)

    def _remove(self, sock: socket.socket, kind: str) -> None:
        scope = self._scopes.pop((sock, kind), None)
        if scope is not None:
            scope.cancel()

    def add_reader(self, sock: socket.socket, callback: Callable[[], object]) -> None:
        self._add(sock, "read", callback)

    def remove_reader(self, sock: socket.socket) -> None:
        self._remove(sock, "read")

    def add_writer(self, sock: socket.socket, callback: Callable[[], object]) -> None:
        self._add(sock, "write", callback)

    def remove_writer(self, sock: socket.socket) -> None:
        self._remove(sock, "write")


def socket_channels() -> tuple[SocketChannel, SocketChannel]:
    """Both ends of a connection, on the loop that runs now."""
    poller: Any = TrioPoller() if sniffio.current_async_library() == "trio" else asyncio.get_running_loop()
    first, second = socket.socketpair()
    return SocketChannel(poller, first), SocketChannel(poller, second)
