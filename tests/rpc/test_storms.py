"""Peers that are killed, stopped or hostile, cancels at random points: every call ends, and nothing stays."""

# Doubles: timers are recorded instead of started.

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import rpc
from aiofabric.rpc.protocol.frames import HEADER, Kind, frame
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import CONNECTED, OWN_HOST, over
from tests.fixtures.stopping import stop
from tests.fixtures.waiting import until
from tests.rpc.services import HANDLERS, Tally, serve, served, target
from tests.rpc.test_channel import channel_to

pytestmark = [pytest.mark.anyio, pytest.mark.long]

provider = over(CONNECTED)

Start = Callable[..., Child]


async def at_rest(channel: rpc.Channel, server: rpc.Server) -> None:
    """No call, task, credit or reservation is left on either side."""
    await until(lambda: not channel.core.calls and not len(server.core.tasks))
    await until(lambda: channel.core.budget.used == server.core.budget.used == 0)
    assert channel.core.budget.waiting == server.core.budget.waiting == 0
    for core in (transport.connection for transport in server.core.transports):
        assert not core.calls
        assert core.running == 0


async def client_that_is_killed(parent: Parent, provider: str, port: int) -> None:
    async def one(channel: rpc.Channel) -> None:
        await channel.unary("/test/slow", b"60000")

    async with channel_to(port, provider=provider) as channel, anyio.create_task_group() as group:
        for _ in range(64):
            group.start_soon(one, channel)
        await channel.unary("/test/echo", b"")
        parent.tell("ready")
        await anyio.sleep_forever()


async def test_a_killed_client_leaves_nothing_on_the_server(provider: str, child: Start) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        for _ in range(3):
            client = child(client_that_is_killed, provider, listener.address.port)
            await client.areceive()
            await until(lambda: len(server.core.tasks) == 64)
            client.kill()
            await until(lambda: not len(server.core.tasks))
            await until(lambda: not server.core.transports)
        assert server.core.budget.used == 0


async def test_calls_to_a_stopped_server_end_at_their_deadlines(provider: str, child: Start) -> None:
    codes: Counter[object] = Counter()

    async def one(channel: rpc.Channel) -> None:
        try:
            await channel.unary("/test/echo", b"x", timeout=0.3)
        except rpc.RpcError as error:
            codes[error.code] += 1

    process = child(serve, provider)
    async with channel_to(await process.areceive(), provider=provider) as channel:
        await channel.unary("/test/echo", b"")
        stop(process.pid)
        async with anyio.create_task_group() as group:
            for _ in range(64):
                group.start_soon(one, channel)
        process.send_signal(signal.SIGCONT)
        assert codes == {rpc.StatusCode.DEADLINE_EXCEEDED: 64}
        assert await channel.unary("/test/echo", b"again", timeout=20) == b"again"
        process.tell("tally")
        assert (await process.areceive())[2:] == (0, 0)
        assert channel.core.budget.used == 0


async def client_that_is_stopped(parent: Parent, provider: str, port: int) -> tuple[int, int]:
    """64 calls in flight, half of them streams, until the parent has stopped this process for a while."""
    stopped = anyio.Event()
    answers = [0, 0]

    async def calls(channel: rpc.Channel, number: int) -> None:
        sent = 0
        while not stopped.is_set():
            message = number.to_bytes(4, "little") + sent.to_bytes(4, "little") + bytes(500)
            assert await channel.unary("/test/echo", message) == message
            sent += 1
        answers[0] += sent

    async def streams(channel: rpc.Channel) -> None:
        while not stopped.is_set():
            async with channel.call("/test/count") as call:
                await call.send(b"2000")
                call.half_close()
                assert [each async for each in call] == [b"%d" % number for number in range(2000)]
            answers[1] += 1

    async with channel_to(port, provider=provider) as channel, anyio.create_task_group() as group:
        await channel.unary("/test/echo", b"")
        for number in range(32):
            group.start_soon(calls, channel, number)
            group.start_soon(streams, channel)
        parent.tell("ready")
        await parent.areceive()
        stopped.set()
    return answers[0], answers[1]


async def test_a_stopped_client_hurts_no_other_and_goes_on(provider: str, child: Start) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        port = listener.address.port
        assert port is not None
        client = child(client_that_is_stopped, provider, port)
        await client.areceive()
        async with channel_to(port, provider=provider) as channel:
            stop(client.pid)
            with anyio.fail_after(30):
                for number in range(500):
                    assert await channel.unary("/test/echo", b"%d" % number) == b"%d" % number
            assert server.core.budget.used < 8 << 20
            client.send_signal(signal.SIGCONT)
            client.tell("end")
            answers, streams = await client.aresult()
            assert answers
            assert streams
            await at_rest(channel, server)


async def test_cancels_at_random_points_leave_nothing(provider: str) -> None:
    dice = random.Random(21)

    async def one(channel: rpc.Channel) -> None:
        with anyio.move_on_after(dice.choice([0, 0.0005, 0.002, 0.005])):
            kind = dice.randrange(4)
            if kind == 0:
                await channel.unary("/test/echo", bytes(dice.choice([0, 1000, 100_000, 1_000_000])))
            elif kind == 1:
                await channel.unary("/test/slow", b"3")
            elif kind == 2:
                async with channel.call("/test/count") as call:
                    await call.send(b"100000")
                    call.half_close()
                    async for _ in call:
                        pass
            else:
                async with channel.call("/test/mirror") as call:
                    for size in (1, 70_000, 400_000):
                        await call.send(bytes(size))
                        await call.recv()

    async with served(provider) as (channel, server):
        for _ in range(12):
            async with anyio.create_task_group() as group:
                for _ in range(50):
                    group.start_soon(one, channel)
        await at_rest(channel, server)
        assert await channel.unary("/test/echo", b"x") == b"x"


async def test_deadlines_of_0_to_5_ms_end_every_call(provider: str) -> None:
    codes: Counter[object] = Counter()

    async def one(channel: rpc.Channel, number: int) -> None:
        try:
            await channel.unary("/test/slow", b"%d" % (number % 4), timeout=number % 6 / 1000)
            codes["OK"] += 1
        except rpc.RpcError as error:
            codes[error.code] += 1

    async with served(provider) as (channel, server):
        await channel.unary("/test/echo", b"")
        for _ in range(5):
            async with anyio.create_task_group() as group:
                for number in range(200):
                    group.start_soon(one, channel, number)
        assert codes.keys() <= {"OK", rpc.StatusCode.DEADLINE_EXCEEDED}
        assert sum(codes.values()) == 1000
        await at_rest(channel, server)


async def test_clients_that_open_and_vanish_leave_nothing(provider: str) -> None:
    async with served(provider) as (channel, server):
        assert await channel.unary("/test/echo", b"x") == b"x"
        (listener,) = server.core.listeners
        for number in range(30):
            endpoint = await aiofabric.connect(listener.address, provider=provider)
            if number % 3:
                await endpoint.send(rpc.Limits().preface().pack()[: 10 * number % 60])
            endpoint.abort()
        assert await channel.unary("/test/echo", b"x") == b"x"
        await until(lambda: len(server.core.transports) == 1)


def kinds_in(data: bytes) -> list[int]:
    """The kinds of the frames in a fabric message."""
    kinds, at = [], 0
    while at < len(data):
        kind, _, _, length, _ = HEADER.unpack_from(data, at)
        kinds.append(kind)
        at += HEADER.size + length
    return kinds


HOSTILE = {
    "nonsense": b"\xff" * 100,
    "an unknown kind": frame(0x55, 0),
    "a frame longer than its message": frame(Kind.PING, 1)[:-4],
    "no preface": frame(Kind.START, 1, bytes(8)),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_client_gets_a_goaway_and_hurts_no_other(provider: str, data: bytes) -> None:
    async with served(provider) as (channel, server):
        assert await channel.unary("/test/echo", b"x") == b"x"
        (listener,) = server.core.listeners
        async with await aiofabric.connect(listener.address, provider=provider) as endpoint:
            await endpoint.send(data)
            kinds: list[int] = []
            with anyio.fail_after(10), suppress(ConnectionError):
                while True:
                    kinds += kinds_in(bytes(await endpoint.recv()))
            assert kinds == [Kind.PREFACE, Kind.GOAWAY]
        assert await channel.unary("/test/echo", b"x") == b"x"


async def test_a_silent_client_is_disconnected(provider: str) -> None:
    async with served(provider) as (channel, server):
        assert await channel.unary("/test/echo", b"x") == b"x"
        (listener,) = server.core.listeners
        server.core.preface_timeout = 0.1
        async with await aiofabric.connect(listener.address, provider=provider) as endpoint:
            with anyio.fail_after(10), suppress(ConnectionError):
                while True:
                    await endpoint.recv()
        assert await channel.unary("/test/echo", b"x") == b"x"
        with anyio.fail_after(10):
            while len(server.core.transports) != 1:  # noqa: ASYNC110 - its task ends a moment later
                await anyio.sleep(0.001)


async def test_a_peer_that_accepts_and_stays_silent_fails_the_calls_of_its_client(provider: str) -> None:
    async with aiofabric.listen(OWN_HOST, 0, provider=provider) as listener, anyio.create_task_group() as group:

        async def accept() -> None:
            async for request in listener:
                async with await request.accept():
                    await anyio.sleep_forever()

        group.start_soon(accept)
        options: dict[str, Any] = {"connect_timeout": 0.5, "options": {"provider": provider}}
        async with rpc.Channel(target(listener.address), **options) as channel:
            with anyio.fail_after(15), pytest.raises(rpc.RpcError, match="UNAVAILABLE") as caught:
                await channel.unary("/test/echo", b"x")
            assert "it has sent no RPC preface in 0.5 s: check that the peer runs aiofabric.rpc" in str(caught.value)
            assert channel.get_state() is rpc.Connectivity.IDLE
        group.cancel_scope.cancel()


async def test_a_client_that_does_not_read_stops_its_own_stream_only(provider: str) -> None:
    async with served(provider) as (channel, server), channel.call("/test/count") as call:
        await call.send(b"1000000")
        call.half_close()
        await call.recv()
        for _ in range(50):
            assert await channel.unary("/test/echo", b"x") == b"x"
        assert server.core.budget.used < 1 << 20
        assert channel.core.budget.used <= channel.core.limits.window + 1024


async def test_a_server_whose_memory_is_full_refuses_and_recovers(provider: str) -> None:
    limits = rpc.Limits(memory=300_000, max_message=200_000)
    async with served(provider, server_options={"limits": limits}) as (channel, server):
        await channel.unary("/test/echo", b"")
        Tally.begun = 0
        calls = [channel.call("/test/mirror") for _ in range(4)]
        async with anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(call.send, bytes(190_000))
            for call in calls:  # one after the other gets memory, since each is read
                assert len(await call.recv()) == 190_000
                call.cancel()
        await at_rest(channel, server)
        assert await channel.unary("/test/echo", bytes(150_000)) == bytes(150_000)


async def test_a_client_that_sends_on_after_its_error_costs_one_timer(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(provider) as (channel, server):
        assert await channel.unary("/test/echo", b"x") == b"x"
        (listener,) = server.core.listeners
        (own,) = server.core.transports
        async with await aiofabric.connect(listener.address, provider=provider) as endpoint:
            await until(lambda: len(server.core.transports) == 2)
            (transport,) = server.core.transports - {own}
            timers: list[float] = []
            monkeypatch.setattr(transport.driver, "call_later", lambda delay, _: timers.append(delay))
            for _ in range(20):
                await endpoint.send(b"\xff" * 100)
            await until(lambda: (pool := transport.endpoint.statistics().pool) is not None and pool.messages >= 20)
            monkeypatch.undo()
            assert timers == [1.0]
            transport.abort()
