"""The interface that every contender in Python implements, and the requests that are then made of it.

A contender is a module in ``contenders/`` with two functions:

``listen(serve, **options)``
    an async context manager whose value is the address; it awaits ``serve(connection)`` for each
    connection that comes in.
``connect(address, **options)``
    a coroutine that returns a `Connection`.

A `Connection` needs ``send``, ``recv`` and ``aclose``. The workloads are written here once with these methods. A
contender overrides a part if its users would write it differently (callbacks, a window of posted receives, remote
memory), but never to skip work. The server must have the complete message before it sends an echo. A flood ends when
the server reports that it has every message.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, ClassVar

import anyio

Message = bytes | bytearray | memoryview

HELLO = struct.Struct("!8sQQQ")  # work, message size, width, count
READY = b"r"
DONE = b"d"
SLOW = 0.001  # seconds that the slow server takes for an answer


class Connection(ABC):
    """One connection, in the client or in the server."""

    gone: ClassVar[tuple[type[BaseException], ...]] = (EOFError, ConnectionError)
    """The exceptions of ``recv`` after the peer has closed."""

    @abstractmethod
    async def send(self, message: Message) -> None:
        """Give one message to the transport, and wait while it has no room."""

    @abstractmethod
    async def recv(self, size: int) -> Message:
        """Return the next message, which is ``size`` bytes long."""

    @abstractmethod
    async def aclose(self) -> None: ...

    def memory(self, size: int, slot: int = 0) -> memoryview:
        """Memory as C has it: private pages that were written to, the same in each run."""
        if (size, slot) not in self._memory:
            pages = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
            pages.write(b"\1" * size)
            self._memory[size, slot] = memoryview(pages)
        return self._memory[size, slot]

    @cached_property
    def _memory(self) -> dict[tuple[int, int], memoryview]:
        return {}

    # The client's part

    async def begin(self, work: str, size: int, width: int, count: int) -> None:
        """Tell the server what comes next; return when it is ready. Not part of what is timed."""
        await self.send(HELLO.pack(work.encode(), size, width, count))
        await self.recv(len(READY))

    async def ping(self, message: bytes, width: int, count: int) -> None:
        """Make ``count`` round trips with ``width`` requests in flight."""
        size = len(message)
        for _ in range(width):
            await self.send(message)
        for _ in range(count - width):
            await self.recv(size)
            await self.send(message)
        for _ in range(width):
            await self.recv(size)

    async def flood(self, message: bytes, width: int, count: int) -> None:
        """Send ``count`` messages one way and wait until the server has them all."""
        for _ in range(count):
            await self.send(message)
        await self.recv(len(DONE))

    # The server's part

    async def serve(self) -> None:
        """Execute the client's requests until it closes."""
        works = {b"ping": self.echo, b"slow": self.echo_slowly, b"flood": self.sink}
        with suppress(*self.gone):
            while True:
                work, size, width, count = HELLO.unpack(await self.recv(HELLO.size))
                await self.send(READY)
                await works[work.rstrip(b"\0")](size, width, count)

    async def echo(self, size: int, width: int, count: int) -> None:
        for _ in range(count):
            await self.send(await self.recv(size))

    async def echo_slowly(self, size: int, width: int, count: int) -> None:
        for _ in range(count):
            message = await self.recv(size)
            await self.pause()
            await self.send(message)

    async def pause(self) -> None:
        await anyio.sleep(SLOW)

    async def sink(self, size: int, width: int, count: int) -> None:
        for _ in range(count):
            await self.recv(size)
        await self.send(DONE)


class CallConnection(Connection):
    """A connection of a contender with calls."""

    @abstractmethod
    async def items(self, message: bytes, width: int, count: int) -> None:
        """Receive a stream of ``count`` messages."""

    @abstractmethod
    async def up(self, message: bytes, width: int, count: int) -> None:
        """Make ``count`` calls with a large request and a small reply."""

    @abstractmethod
    async def down(self, message: bytes, width: int, count: int) -> None:
        """Make ``count`` calls with a small request and a large reply."""

    @abstractmethod
    async def beside(self, message: bytes, seconds: float) -> list[float]:
        """How many seconds calls take beside a stream of large messages."""


Serve = Callable[[Connection], Coroutine[Any, Any, None]]
