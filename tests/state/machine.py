"""The common part of both machines: a loop that is idle between rules, distinguishable messages, and a record of each.

A rule starts operations, cancels them, or waits for some; afterwards every finished one is compared with the record.
The promises say how a message may end. If its send returned, it arrives once and complete. If its send was cancelled,
it arrives once and complete, or not at all. Nothing else arrives.
"""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, ClassVar, TypeAlias

import anyio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

import aiofabric
from aiofabric import Access, RemoteRegion
from aiofabric.testing import live_resources

OUTSTANDING = 12  # messages that were not received yet, each way
ROOM = 65536
REGION = 8192
BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE
_HEAD = struct.Struct("!BIB")

Start: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]

SIDES = st.integers(0, 1)
SIZES = st.sampled_from((8, 64, 128, 129, 1000, 4097, 16385, ROOM))
ITERATIONS = st.integers(0, 6)  # iterations of the loop
PICKS = st.integers(0, OUTSTANDING)
SPANS = st.tuples(st.integers(0, REGION - 1), st.integers(1, REGION)).map(lambda s: slice(s[0], min(sum(s), REGION)))


class Books:
    """The messages of one direction."""

    def __init__(self, side: int) -> None:
        self.side = side
        self.written = 0
        self.certain: set[int] = set()  # their sends returned
        self.maybe: set[int] = set()  # their sends are under way, or were cancelled
        self.got: list[int] = []
        self.tags: list[int] = []

    @property
    def outstanding(self) -> int:
        return len((self.certain | self.maybe) - set(self.got))

    @property
    def owed(self) -> set[int]:
        return self.certain - set(self.got)

    def write(self, size: int, tag: int = 0) -> tuple[int, bytes]:
        number, self.written = self.written, self.written + 1
        self.maybe.add(number)
        self.tags.append(tag)
        return number, self.text(number, tag, size)

    def text(self, number: int, tag: int, size: int) -> bytes:
        head = _HEAD.pack(self.side, number, tag)
        return head + bytes([(number * 7 + 3) % 251]) * (size - len(head))

    def read(self, message: bytes) -> tuple[int, int]:
        """Number and tag of a message that arrived; it is whole, was sent, and comes for the first time."""
        side, number, tag = _HEAD.unpack_from(message)
        assert side == self.side, f"a message of side {side} arrived where those of side {self.side} belong"
        assert message == self.text(number, tag, len(message)), f"message {number} is not what was sent"
        assert number in self.certain | self.maybe, f"message {number} was never sent"
        assert number not in self.got, f"message {number} came twice"
        self.got.append(number)
        return number, tag


class Machine(RuleBasedStateMachine):
    """Two endpoints, ``ends``, and what is under way at each."""

    provider: ClassVar[str]
    timeout: ClassVar[float] = 20.0  # seconds for what has to end, however busy the machine is

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.ends: list[Any] = []

    async def open(self) -> None:
        """Fill ``ends``."""
        raise NotImplementedError

    def to(self, side: int) -> dict[str, Any]:
        """How an endpoint names the other one."""
        return {}

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def limited() -> Any:
            with anyio.fail_after(self.timeout):
                return await work

        return self.runner.run(limited())

    @initialize()
    def begin(self) -> None:
        self.run(self._begin())

    async def _begin(self) -> None:
        self.stack = AsyncExitStack()
        await self.open()
        self.books = [Books(0), Books(1)]
        self.sending: list[dict[asyncio.Task[Any], int]] = [{}, {}]
        self.receiving: list[dict[asyncio.Task[Any], Any]] = [{}, {}]
        self.memory = [bytearray(REGION), bytearray(REGION)]
        self.expected = [bytearray(REGION), bytearray(REGION)]
        self.remote: list[RemoteRegion] = []
        for end, memory in zip(self.ends, self.memory, strict=True):
            self.remote.append(self.stack.enter_context(end.domain.register(memory, access=BOTH)).remote)

    # -- starting and ending operations

    def start_send(self, side: int, number: int, send: Start) -> None:
        async def begin() -> None:
            self.sending[side][asyncio.create_task(send())] = number
            await anyio.lowlevel.checkpoint()

        self.run(begin())

    def start_receive(self, side: int, what: Any, receive: Start) -> None:
        async def begin() -> None:
            self.receiving[side][asyncio.create_task(receive())] = what
            await anyio.lowlevel.checkpoint()

        self.run(begin())

    def cancel(self, tasks: dict[asyncio.Task[Any], Any], pick: int) -> None:
        """Cancel one; it ends, whatever the provider says."""
        if tasks:
            task = list(tasks)[pick % len(tasks)]
            task.cancel()
            self.run(_ended(task))
            self.collect()

    def cancel_amid(self, side: int, what: Any, receive: Start, number: int, send: Start, iterations: int) -> None:
        """A message is on its way to a receive that is cancelled: it goes to that one, or to the next that it fits."""

        async def cross() -> asyncio.Task[Any]:
            task = asyncio.create_task(receive())
            self.receiving[side][task] = what
            await anyio.lowlevel.checkpoint()
            self.sending[1 - side][asyncio.create_task(send())] = number
            for _ in range(iterations):
                await anyio.lowlevel.checkpoint()
            task.cancel()
            return task

        self.run(_ended(self.run(cross())))
        self.collect()

    def received(self, side: int, what: Any, message: bytes) -> None:
        """Compare what a receive got with what it was for."""
        self.books[1 - side].read(message)

    def refused(self, error: BaseException) -> None:
        """An operation failed, and nothing was closed."""
        raise error

    @invariant()
    def collect(self) -> None:
        """Look at what has ended."""
        self.run(anyio.lowlevel.checkpoint())
        for side in (0, 1):
            self.settle_sends(side)
            for task in [task for task in self.receiving[side] if task.done()]:
                what = self.receiving[side].pop(task)
                if task.cancelled():
                    continue
                if error := task.exception():
                    self.refused(error)
                else:
                    self.received(side, what, task.result())

    def settle_sends(self, side: int) -> None:
        """Note which messages must arrive from now on, because their sends have returned."""
        for task in [task for task in self.sending[side] if task.done()]:
            number = self.sending[side].pop(task)
            if task.cancelled():
                continue
            if error := task.exception():
                self.refused(error)
            self.books[side].maybe.discard(number)
            self.books[side].certain.add(number)

    # -- remote memory

    def write(self, side: int, span: slice, cancel: bool) -> None:
        there, old = self.expected[1 - side], bytes(self.expected[1 - side][span])
        new = bytes([(old[0] + 1) % 256]) * len(old)

        async def work() -> bytes:
            end, remote = self.ends[side], self.remote[1 - side][span]
            task = asyncio.create_task(end.write(new, remote, **self.to(side)))
            await anyio.lowlevel.checkpoint()
            if cancel:
                task.cancel()
            await _ended(task)
            if not task.cancelled():
                task.result()
            found: bytes = await end.read(remote, **self.to(side))  # ordered behind the write
            while task.cancelled() and end.statistics().abandoned and found == old:
                found = await end.read(remote, **self.to(side))
            return b"=" + found if task.cancelled() else b"!" + found

        answer = self.run(work())
        kind, found = answer[:1], answer[1:]
        assert found == new or (kind == b"=" and found == old), "a write that came in part, or not at all"
        there[span] = found

    def read(self, side: int, span: slice) -> None:
        found = self.run(self.ends[side].read(self.remote[1 - side][span], **self.to(side)))
        assert found == self.expected[1 - side][span]

    # -- the end

    def close_both(self, first: int) -> None:
        """Close one and then the other: no task still waits, and no object is left open."""
        tasks = [*self.sending[0], *self.sending[1], *self.receiving[0], *self.receiving[1]]

        async def close() -> None:
            self.ends[first].close()
            own = [*self.sending[first], *self.receiving[first]]
            for task in own:
                await _ended(task)
            self.ends[1 - first].close()
            for task in tasks:
                await _ended(task)
            await self.stack.aclose()

        self.run(close())
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            assert error is None or isinstance(error, anyio.ClosedResourceError | aiofabric.FabricConnectionError), (
                error
            )
        for side in (0, 1):
            self.sending[side].clear()
            for task, what in self.receiving[side].items():
                if not task.cancelled() and task.exception() is None:
                    self.received(side, what, task.result())
            self.receiving[side].clear()

    def teardown(self) -> None:
        try:
            if self.ends:
                self.close_both(0)
        finally:
            self.runner.close()
        assert live_resources() == []


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
