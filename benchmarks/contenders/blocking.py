"""Blocking sockets: no event loop at all, a thread per connection in the server.

The methods are coroutines only in form: they never suspend, so one ``send(None)`` runs them to the end.
"""

import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ..connection import SLOW, Connection, Message, Serve


class Blocking(Connection):
    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.buffer = bytearray(64)

    async def send(self, message: Message) -> None:
        self.sock.sendall(message)

    async def recv(self, size: int) -> Message:
        if size > len(self.buffer):
            self.buffer = bytearray(size)
        if self.sock.recv_into(self.buffer, size, socket.MSG_WAITALL) < size:
            raise EOFError
        return memoryview(self.buffer)[:size]

    async def pause(self) -> None:
        time.sleep(SLOW)  # noqa: ASYNC251 (as blocking as the rest of it)

    async def aclose(self) -> None:
        self.sock.close()


def accept(listener: socket.socket, serve: Serve) -> None:
    def run(sock: socket.socket) -> None:
        with suppress(StopIteration):
            serve(Blocking(sock)).send(None)

    while True:
        threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()


@asynccontextmanager
async def listen(serve: Serve) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener, serve), daemon=True).start()
        yield listener.getsockname()[1]


async def connect(port: int) -> Connection:
    return Blocking(socket.create_connection(("127.0.0.1", port)))
