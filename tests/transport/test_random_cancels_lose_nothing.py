"""10,000 cancelled receives and 10,000 cancelled sends: every message arrives once, complete and in order."""

import random
from typing import Any

import anyio
import pytest

from aiofabric import MessageEndpoint
from tests.fixtures.providers import CARRIERS, Pair, over

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(120)]

provider = over(CARRIERS)

CANCELS = {"tcp": 10_000, "shm": 500}
OPTIONS = pytest.mark.parametrize("options", [{}, {"recv_size": None}], ids=["pooled", "direct"])


def numbered(number: int, size: int) -> bytes:
    return number.to_bytes(4, "big") * (size // 4)


async def receive(endpoint: MessageEndpoint, direct: bool) -> bytes:
    return await endpoint.recv(4096) if direct else await endpoint.recv()


def nothing_is_left(*endpoints: MessageEndpoint) -> None:
    for endpoint in endpoints:
        statistics = endpoint.statistics()
        assert (statistics.sends, statistics.queued, statistics.abandoned) == (0, 0, 0)
        assert statistics.receives == 0


async def let_others_run(chance: random.Random) -> None:
    """Let other tasks run for zero to a few iterations."""
    for _ in range(chance.randrange(4)):
        await anyio.lowlevel.checkpoint()


@OPTIONS
async def test_cancelled_receives(pair: Pair, provider: str, options: dict[str, Any]) -> None:
    count = CANCELS[provider]
    chance, direct = random.Random(7), "recv_size" in options
    got: list[bytes] = []
    cancelled = sent = 0
    async with pair(**options) as (active, passive):

        async def attempt(scope: anyio.CancelScope) -> None:
            with scope:
                got.append(await receive(passive, direct))

        while cancelled < count:
            scope = anyio.CancelScope()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, scope)
                await let_others_run(chance)
                if chance.random() < 0.5 and sent - len(got) < 4:
                    await active.send(numbered(sent, chance.choice((4, 64, 2048))))
                    sent += 1
                await let_others_run(chance)
                scope.cancel()
            cancelled += scope.cancelled_caught
        with anyio.fail_after(10):
            while len(got) < sent:
                got.append(await receive(passive, direct))
        assert [int.from_bytes(message[:4], "big") for message in got] == list(range(sent))
        assert all(message == message[:4] * (len(message) // 4) for message in got)
        await active.send(b"still here")
        assert await receive(passive, direct) == b"still here"
        nothing_is_left(active, passive)


@OPTIONS
async def test_cancelled_sends(pair: Pair, provider: str, options: dict[str, Any]) -> None:
    """A cancelled send was sent completely or not at all; a send that returned was sent, in order."""
    count = CANCELS[provider]
    chance, direct = random.Random(11), "recv_size" in options
    returned: list[int] = []
    got: list[int] = []
    cancelled = number = 0
    async with pair(**options) as (active, passive):

        async def reader() -> None:
            while True:
                message = await receive(passive, direct)
                assert message == message[:4] * (len(message) // 4)
                if message == b"stop":
                    return
                got.append(int.from_bytes(message[:4], "big"))

        async def attempt(scope: anyio.CancelScope, number: int, size: int) -> None:
            with scope:
                await active.send(numbered(number, size))
                returned.append(number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader)
            while cancelled < count:
                scopes = [anyio.CancelScope() for _ in range(8)]
                async with anyio.create_task_group() as sends:
                    for scope in scopes:
                        number += 1
                        sends.start_soon(attempt, scope, number, chance.choice((64, 256, 4096)))
                        if chance.random() < 0.4:
                            await let_others_run(chance)
                        if chance.random() < 0.9:
                            scope.cancel()
                cancelled += sum(scope.cancelled_caught or scope.cancel_called for scope in scopes)
            await active.send(b"stop")
        assert len(got) == len(set(got)), "no message twice"
        assert set(returned) <= set(got), "what was sent arrived"
        with anyio.fail_after(10):
            while active.statistics().sends:
                await anyio.lowlevel.checkpoint()
        nothing_is_left(active, passive)
