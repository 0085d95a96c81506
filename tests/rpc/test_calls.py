"""Calls of all kinds, and all the ways in which they end, on each loop and over both kinds of connections."""

import pickle
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any

import anyio
import pytest

from aiofabric import rpc
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until
from tests.rpc.services import Tally, served, target

pytestmark = pytest.mark.anyio

BIG = bytes(range(256)) * 12_000  # 3 MB


async def test_a_unary_call_returns_the_reply(provider: str) -> None:
    async with served(provider) as (channel, server):
        assert await channel.unary("/test/echo", b"hello") == b"hello"
        assert await channel.unary("/test/echo", b"") == b""
        assert await channel.unary("/test/echo", memoryview(b"view")) == b"view"  # type: ignore[arg-type]
        assert await channel.unary("/test/reverse", b"abc") == b"cba"
        assert server.core.budget.used == channel.core.budget.used == 0


async def test_a_large_message_arrives_whole_in_both_directions(provider: str) -> None:
    async with served(provider) as (channel, server):
        assert await channel.unary("/test/echo", BIG) == BIG
        assert server.core.budget.used == channel.core.budget.used == 0


async def test_metadata_reaches_both_sides(provider: str) -> None:
    pairs = (("key", "value"), ("key-bin", b"\0\1"), ("key", "other"))
    async with served(provider) as (channel, _), channel.call("/test/metadata", metadata=pairs) as call:
        await call.send(b"x")
        call.half_close()
        assert await call.headers() == pairs
        assert await call.recv() == b"x"
        assert (await call.end()).metadata == pairs


async def test_a_status_reaches_the_client_with_details_and_metadata(provider: str) -> None:
    async with served(provider) as (channel, _):
        with pytest.raises(rpc.RpcError) as caught:
            await channel.unary("/test/fail", b"")
        assert caught.value.code is rpc.StatusCode.NOT_FOUND
        assert caught.value.details == "ürgh"
        assert caught.value.trailing_metadata == (("key", "value"), ("key-bin", b"\0\xff"))


async def test_an_exception_of_a_handler_says_nothing_of_the_servers_insides(
    provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(provider) as (channel, _):
        with pytest.raises(rpc.RpcError, match="UNKNOWN") as caught:
            await channel.unary("/test/raise", b"")
        assert "secret" not in str(caught.value)
        assert "a secret of the server" in caplog.text


async def test_an_unknown_method_is_unimplemented(provider: str) -> None:
    async with served(provider) as (channel, _):
        with pytest.raises(rpc.RpcError, match="UNIMPLEMENTED: This server has no method /test/none"):
            await channel.unary("/test/none", b"")


async def test_a_server_streams_replies(provider: str) -> None:
    async with served(provider) as (channel, _), channel.call("/test/count") as call:
        await call.send(b"3000")
        call.half_close()
        assert [int(message) async for message in call] == [*range(3000)]
        assert (await call.end()).code == 0


async def test_a_handler_that_spends_time_on_each_reply_lets_other_tasks_run(provider: str) -> None:
    """It streams fewer than 64 replies, so only the time makes it yield."""
    passes: list[int] = []
    seen: list[int] = []

    async def busy(request: bytes, context: rpc.ServerContext) -> AsyncIterator[bytes]:
        for _ in range(60):
            until = perf_counter() + 50e-6
            while perf_counter() < until:
                pass
            seen.append(len(passes))
            yield b"x"

    async def count_passes() -> None:
        while True:
            await anyio.lowlevel.checkpoint()
            passes.append(1)

    async with rpc.Server({"/test/busy": rpc.unary_stream(busy)}) as server:
        listener = await server.listen(HOST, 0, provider=provider)
        async with (
            rpc.Channel(target(listener.address), options={"provider": provider}) as channel,
            channel.call("/test/busy") as call,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(count_passes)
            await call.send(b"")
            call.half_close()
            assert [message async for message in call] == 60 * [b"x"]
            tasks.cancel_scope.cancel()
    assert len(set(seen)) >= 10, seen


async def test_a_client_streams_requests(provider: str) -> None:
    async with served(provider) as (channel, server), channel.call("/test/total") as call:
        for _ in range(300):
            await call.send(b"x" * 10_000)
        call.half_close()
        assert await call.recv() == b"3000000"
        await until(lambda: not server.core.budget.used)


async def test_both_stream(provider: str) -> None:
    async with served(provider) as (channel, _), channel.call("/test/mirror") as call:
        for size in (0, 1, 20_000, 400_000):
            await call.send(b"x" * size)
            assert len(await call.recv()) == size
        call.half_close()
        with pytest.raises(anyio.EndOfStream):
            await call.recv()


async def test_a_deadline_ends_the_call_on_both_sides(provider: str) -> None:
    Tally.begun = Tally.cancelled = 0
    async with served(provider) as (channel, server):
        await channel.unary("/test/echo", b"")  # the connection is there
        with pytest.raises(rpc.RpcError, match="DEADLINE_EXCEEDED"):
            await channel.unary("/test/slow", b"60000", timeout=0.5)
        await until(lambda: not len(server.core.tasks))
        assert (Tally.begun, Tally.cancelled) == (1, 1)
        assert not channel.core.calls


async def test_an_expired_call_is_not_sent(provider: str) -> None:
    Tally.begun = 0
    async with served(provider) as (channel, _):
        with pytest.raises(rpc.RpcError, match="DEADLINE_EXCEEDED") as caught:
            await channel.unary("/test/slow", b"0", timeout=0)
        assert not caught.value.may_have_run
        await channel.unary("/test/echo", b"")
        assert Tally.begun == 0


async def test_cancelling_the_caller_cancels_the_handler(provider: str) -> None:
    Tally.begun = Tally.cancelled = 0
    async with served(provider) as (channel, server):
        async with anyio.create_task_group() as group:
            group.start_soon(channel.unary, "/test/slow", b"60000")
            await until(lambda: Tally.begun)
            group.cancel_scope.cancel()
        await until(lambda: Tally.cancelled)
        await until(lambda: not len(server.core.tasks))
        assert not channel.core.calls


async def test_leaving_the_block_cancels_the_call(provider: str) -> None:
    async with served(provider) as (channel, server):
        async with channel.call("/test/mirror") as call:
            await call.send(b"x")
            await call.recv()
            assert len(server.core.tasks) == 1
        assert (await call.end()).code == rpc.StatusCode.CANCELLED
        await until(lambda: not len(server.core.tasks))


async def test_a_message_above_the_servers_limit_is_refused(provider: str) -> None:
    async with served(provider, server_options={"limits": rpc.Limits(max_message=1000)}) as (channel, _):
        with pytest.raises(
            rpc.RpcError, match=r"RESOURCE_EXHAUSTED: Received message larger than max \(1001 vs\. 1000"
        ):
            await channel.unary("/test/echo", bytes(1001))
        with pytest.raises(rpc.RpcError, match="RESOURCE_EXHAUSTED"):
            await channel.unary("/test/echo", bytes(1_000_000))
        assert await channel.unary("/test/echo", bytes(1000)) == bytes(1000)


async def test_a_message_above_the_clients_limit_is_refused(provider: str) -> None:
    async with served(provider, limits=rpc.Limits(max_message=1000)) as (channel, _):
        for size in (1001, 20_000, 1_000_000):
            with pytest.raises(rpc.RpcError, match="RESOURCE_EXHAUSTED: Received message larger than max"):
                await channel.unary("/test/echo", bytes(size))


async def test_calls_above_the_servers_limit_are_refused(provider: str) -> None:
    async with (
        served(provider, server_options={"max_running": 1}) as (channel, _),
        channel.call("/test/mirror") as call,
    ):
        await call.send(b"x")
        await call.recv()
        with pytest.raises(rpc.RpcError, match="RESOURCE_EXHAUSTED: Concurrent RPC limit exceeded") as caught:
            await channel.unary("/test/echo", b"")
        assert not caught.value.may_have_run


async def test_many_calls_at_once(provider: str) -> None:
    replies: list[bytes] = []

    async def one(channel: rpc.Channel, number: int) -> None:
        replies.append(await channel.unary("/test/echo", b"%d" % number, timeout=10))

    async with served(provider) as (channel, _):
        async with anyio.create_task_group() as group:
            for number in range(500):
                group.start_soon(one, channel, number)
        assert sorted(map(int, replies)) == [*range(500)]
        assert not channel.core.calls


async def test_stop_lets_running_calls_end_within_the_grace(provider: str) -> None:
    replies: list[bytes] = []

    async def one(channel: rpc.Channel) -> None:
        replies.append(await channel.unary("/test/slow", b"100"))

    async with served(provider) as (channel, server), anyio.create_task_group() as group:
        group.start_soon(one, channel)
        await until(lambda: len(server.core.tasks))
        await server.stop(10)
        assert not server.core.transports
    assert replies == [b"100"]


async def test_stop_cuts_calls_that_take_longer_than_the_grace(provider: str) -> None:
    caught: list[rpc.RpcError] = []

    async def one(channel: rpc.Channel) -> None:
        try:
            await channel.unary("/test/slow", b"60000")
        except rpc.RpcError as error:
            caught.append(error)

    async with served(provider) as (channel, server), anyio.create_task_group() as group:
        group.start_soon(one, channel)
        await until(lambda: len(server.core.tasks))
        await server.stop(0.05)
    assert [error.code for error in caught] == [rpc.StatusCode.UNAVAILABLE]


async def test_a_closed_channel_cancels_its_calls_and_begins_no_more(provider: str) -> None:
    async with served(provider) as (channel, _):
        call = channel.call("/test/mirror")
        await call.send(b"x")
        await channel.close()
        assert (await call.end()).code == rpc.StatusCode.CANCELLED
        with pytest.raises(rpc.RpcError, match="CANCELLED: The channel is closed"):
            await channel.unary("/test/echo", b"")


@pytest.mark.parametrize(
    "pairs", [[("Key", "x")], [("key", b"x")], [("key-bin", "x")], [("key",)], [("key", "\n")], [(1, "x")]]
)
async def test_metadata_that_cannot_be_sent_is_refused_before_the_call(provider: str, pairs: list[tuple[str]]) -> None:
    async with served(provider) as (channel, _):
        with pytest.raises((TypeError, ValueError)):
            await channel.unary("/test/echo", b"", metadata=pairs)
        assert not channel.core.calls


async def test_interceptors_wrap_each_handler_in_order(provider: str) -> None:
    steps: list[str] = []

    async def outer(context: rpc.ServerContext, proceed: Any) -> bytes | None:
        steps.append(f"outer before {context.method}")
        reply: bytes | None = await proceed()
        steps.append("outer after")
        return None if reply is None else reply + b"!"

    async def inner(context: rpc.ServerContext, proceed: Any) -> bytes | None:
        if ("token", "right") not in context.metadata:
            raise rpc.RpcError(rpc.StatusCode.UNAUTHENTICATED, "no token")
        reply: bytes | None = await proceed()
        return reply

    async with served(provider, server_options={"interceptors": [outer, inner]}) as (channel, _):
        right = [("token", "right")]
        assert await channel.unary("/test/echo", b"x", metadata=right) == b"x!"
        assert steps == ["outer before /test/echo", "outer after"]
        with pytest.raises(rpc.RpcError, match="UNAUTHENTICATED: no token"):
            await channel.unary("/test/echo", b"x")
        async with channel.call("/test/count", metadata=right) as call:
            await call.send(b"3")
            call.half_close()
            assert len([message async for message in call]) == 3


async def test_a_rich_status_travels_with_the_error(provider: str) -> None:
    async def rich(request: bytes, context: rpc.ServerContext) -> bytes:
        raise rpc.RpcError(rpc.StatusCode.INTERNAL, "", (("grpc-status-details-bin", b"\x08\x0d"),))

    async with rpc.Server({"/test/rich": rpc.unary_unary(rich)}) as server:
        listener = await server.listen(HOST, 0, provider=provider)
        async with rpc.Channel(target(listener.address), options={"provider": provider}) as channel:
            with pytest.raises(rpc.RpcError) as caught:
                await channel.unary("/test/rich", b"")
            assert caught.value.rich_status == b"\x08\x0d"
            assert pickle.loads(pickle.dumps(caught.value)).code is rpc.StatusCode.INTERNAL


async def test_a_stop_that_is_cancelled_leaves_nothing_running(provider: str) -> None:
    async with served(provider) as (channel, server), anyio.create_task_group() as group:
        call = channel.call("/test/mirror")
        await call.send(b"x")
        await call.recv()
        group.start_soon(server.stop, 60)
        await until(lambda: server.core.stopping)
        group.cancel_scope.cancel()
    assert not server.core.transports
    assert not len(server.core.tasks)


async def test_a_close_that_is_cancelled_closes_the_channel(provider: str) -> None:
    async with served(provider) as (channel, _):
        call = channel.call("/test/mirror")
        await call.send(b"x")
        await call.recv()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await channel.close(60)
        assert channel.get_state() is rpc.Connectivity.SHUTDOWN
        assert call.over
