"""Promises: while messages come and go, no time is spent on connection events, and other callbacks get their turn."""

# Doubles: the reads of the event queue are counted.

import asyncio

import pytest

from aiofabric import aio
from aiofabric.cm.queue import EventQueue
from tests.aio.protocols import Echo, Recorder, where

pytestmark = pytest.mark.asyncio

TIMES = 600


class Asks(Recorder):
    """Sends the next request when the answer to the last one has come."""

    answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.all_came = asyncio.get_running_loop().create_future()
        self.transport.write(b"request")

    def data_received(self, data: bytes) -> None:
        self.answers += 1
        if self.answers < TIMES:
            self.transport.write(data)
        elif not self.all_came.done():
            self.all_came.set_result(None)


@pytest.mark.parametrize("provider", ["tcp"])
async def test_the_event_queue_is_not_read_for_each_message(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[EventQueue] = []
    drain = EventQueue.drain

    def drain_and_count(queue: EventQueue) -> int:
        reads.append(queue)
        return drain(queue)

    monkeypatch.setattr(EventQueue, "drain", drain_and_count)
    async with await aio.create_server(Echo, "127.0.0.1", 0, provider=provider) as server:
        _, asks = await aio.create_connection(Asks, *where(server), provider=provider)
        await asks.all_came
        counted = len(reads)
        asks.transport.close()
        await asks.lost
    assert counted < TIMES / 5


@pytest.mark.parametrize("provider", ["tcp", "shm"])
async def test_other_callbacks_get_their_turn(provider: str) -> None:
    turns = 0
    at_answers: list[int] = []
    loop = asyncio.get_running_loop()

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(at_answers) < TIMES:
            loop.call_soon(turn)

    class Counts(Asks):
        def data_received(self, data: bytes) -> None:
            at_answers.append(turns)
            super().data_received(data)

    async with await aio.create_server(Echo, "127.0.0.1", 0, provider=provider) as server:
        turn()  # the first request leaves while the connection is made
        _, asks = await aio.create_connection(Counts, *where(server), provider=provider)
        await asks.all_came
        asks.transport.close()
        await asks.lost
    assert at_answers[-1] - at_answers[0] > 3  # one every 0.2 ms, whatever the number of messages between them
