"""One connected pair: messages in order, remote memory, cancels and closes."""

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

import anyio
from hypothesis import strategies as st
from hypothesis.stateful import rule

import aiofabric
from aiofabric import MessageEndpoint, library_version
from tests.state.machine import ITERATIONS, OUTSTANDING, PICKS, ROOM, SIDES, SIZES, SPANS, Machine


class Connected(Machine):
    """The two sides of a connection, with pooled receives."""

    options: ClassVar[dict[str, Any]] = {}
    rma: ClassVar[bool] = True

    async def open(self) -> None:
        accepted: list[MessageEndpoint] = []

        async def accept(listener: aiofabric.Listener) -> None:
            accepted.append(await (await listener.accept_request()).accept(**self.options))

        async with (
            aiofabric.listen("127.0.0.1", 0, provider=self.provider) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(accept, listener)
            active = await aiofabric.connect(listener.address, provider=self.provider, **self.options)
        self.ends = [active, accepted[0]]
        self.ordered = [True, True]

    @rule(side=SIDES, sizes=st.lists(SIZES, min_size=1, max_size=4))
    def send(self, side: int, sizes: list[int]) -> None:
        for size in sizes[: OUTSTANDING - self.books[side].outstanding]:
            number, data = self.books[side].write(size)
            self.start_send(side, number, lambda data=data: self.ends[side].send(data))  # type: ignore[misc]

    @rule(side=SIDES, count=st.integers(1, 3))
    def receive(self, side: int, count: int) -> None:
        for _ in range(min(count, OUTSTANDING - len(self.receiving[side]))):
            self.start_receive(side, None, lambda: self.next(side))

    def next(self, side: int) -> Coroutine[Any, Any, bytes]:
        room = () if self.options.get("recv_size", ROOM) else (ROOM,)
        message: Coroutine[Any, Any, bytes] = self.ends[side].recv(*room)
        return message

    @rule(side=SIDES, size=SIZES, iterations=ITERATIONS)
    def cancel_as_it_comes(self, side: int, size: int, iterations: int) -> None:
        books = self.books[1 - side]
        if books.outstanding < OUTSTANDING and len(self.receiving[side]) < OUTSTANDING:
            self.ordered[1 - side] &= not self.receiving[side]
            number, data = books.write(size)
            send = lambda: self.ends[1 - side].send(data)  # noqa: E731
            self.cancel_amid(side, None, lambda: self.next(side), number, send, iterations)

    @rule(side=SIDES, pick=PICKS)
    def cancel_send(self, side: int, pick: int) -> None:
        self.cancel(self.sending[side], pick)

    @rule(side=SIDES, pick=PICKS)
    def cancel_receive(self, side: int, pick: int) -> None:
        if len(self.receiving[side]) > 1:  # a returned message goes to the task that waits longest
            self.ordered[1 - side] = False
        self.cancel(self.receiving[side], pick)

    def usable(self) -> bool:
        """Whether the peer's memory can be reached now."""
        return self.rma

    def held_up(self, side: int) -> bool:
        """Whether the peer's sends may have arrived and not end: 1.17's shm ends them in the order of posting.

        Both sides share an endpoint here, and something that ``side`` sent is unread (smr_progress_resp).
        """
        return self.provider == "shm" and library_version() < (1, 18) and self.books[side].outstanding > 0

    @rule(side=SIDES, span=SPANS, cancel=st.booleans())
    def write_memory(self, side: int, span: slice, cancel: bool) -> None:
        if self.usable():
            self.write(side, span, cancel)

    @rule(side=SIDES, span=SPANS)
    def read_memory(self, side: int, span: slice) -> None:
        if self.usable():
            self.read(side, span)

    def received(self, side: int, what: Any, message: bytes) -> None:
        super().received(side, what, message)
        got = self.books[1 - side].got
        assert not self.ordered[1 - side] or got == sorted(got), "a message overtook another"

    @rule(side=SIDES)
    def drain(self, side: int) -> None:
        """Everything whose send has returned can be received."""
        books = self.books[1 - side]
        for _ in range(4 * OUTSTANDING):
            self.collect()
            if not books.owed and (not self.sending[1 - side] or self.held_up(side)):
                return
            if not self.receiving[side]:
                self.receive(side, 1)
            first = next(iter(self.receiving[side]), None)
            if first is not None:
                self.run(_any_of([*self.receiving[side], *self.sending[1 - side]]))
        assert not books.owed, "messages whose sends returned did not arrive"

    @rule(first=SIDES)
    def close_and_connect_again(self, first: int) -> None:
        self.close_both(first)
        self.run(self._begin())


async def _any_of(tasks: list[Any]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


class Direct(Connected):
    """With receives into the caller's memory. A message without a receive holds up what comes behind it, RMA too."""

    options: ClassVar[dict[str, Any]] = {"recv_size": None}

    def usable(self) -> bool:
        return not any(books.outstanding for books in self.books)
