"""Many calls at once whose messages need more memory than there is: all of them end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import grpc as grpcio
import pytest

from aiofabric import rpc
from aiofabric.rpc import grpc
from tests.fixtures.providers import OWN_HOST
from tests.rpc.services import served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

LARGE = bytes(1 << 20)
CALLS = 40
LIMITS = rpc.Limits(memory=8 << 20)


async def unary(channel: rpc.Channel) -> None:
    assert await channel.unary("/test/echo", LARGE) == LARGE


async def stream(channel: rpc.Channel) -> None:
    async with channel.call("/test/mirror") as call:
        for _ in range(2):
            await call.send(LARGE)
            assert await call.recv() == LARGE
        call.half_close()
        with pytest.raises(anyio.EndOfStream):
            await call.recv()


@pytest.mark.parametrize("kind", [unary, stream])
async def test_many_large_calls_end_with_little_memory_on_both_sides(provider: str, kind: object) -> None:
    async with served(provider, server_options={"limits": LIMITS}, limits=LIMITS) as (channel, server):
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(CALLS):
                    group.start_soon(kind, channel)  # type: ignore[arg-type]
        assert server.core.budget.waiting == channel.core.budget.used == 0


async def test_many_large_calls_end_with_all_defaults() -> None:
    async with served("tcp") as (channel, _):
        message = bytes(rpc.Limits().max_message)

        async def one() -> None:
            assert len(await channel.unary("/test/echo", message)) == len(message)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(100):
                    group.start_soon(one)


async def test_answers_that_are_not_read_end_their_calls_when_other_calls_wait(provider: str) -> None:
    """A program that sends every request before it reads an answer needs more memory than the server has."""
    async with served(provider, server_options={"limits": LIMITS}) as (channel, server):
        server.core.memory_reclaim.timeout = 0.05
        calls = [channel.call("/test/mirror") for _ in range(CALLS)]
        texts = []

        async def send(call: rpc.Call) -> None:
            try:
                await call.send(LARGE)
            except rpc.RpcError as error:
                texts.append(str(error))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for call in calls:
                    group.start_soon(send, call)
            for call in calls:
                call.half_close()
                try:
                    assert await call.recv() == LARGE
                except rpc.RpcError as error:
                    texts.append(str(error))
        unread = [text for text in texts if "RESOURCE_EXHAUSTED: The client has read nothing for" in text]
        assert 0 < len(unread) <= len(texts) < CALLS
        # The limit of 50 ms is short: on a busy machine, a part of an announced message may come later than that.
        others = [text for text in texts if text not in unread]
        assert [text for text in others if "of an announced message came in" not in text] == []


async def test_a_stream_that_nobody_reads_delays_no_other_call(provider: str) -> None:
    limits = rpc.Limits(memory=4 << 20)
    async with served(provider, limits=limits) as (channel, _):
        unread = [channel.call("/test/mirror") for _ in range(8)]
        for call in unread:
            await call.send(LARGE)
        with anyio.fail_after(30):
            await unary(channel)
            await stream(channel)
        for call in unread:
            call.cancel()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_many_large_calls_of_the_grpc_interface_end_with_all_defaults(anyio_backend: str) -> None:
    async def echo(request: bytes, context: object) -> bytes:
        return request

    async def mirror(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    handlers = {
        "Echo": grpcio.unary_unary_rpc_method_handler(echo),
        "Mirror": grpcio.stream_stream_rpc_method_handler(mirror),
    }
    server = grpc.server()
    server.add_generic_rpc_handlers((grpcio.method_handlers_generic_handler("test", handlers),))
    port = server.add_insecure_port(f"{OWN_HOST}:0")
    await server.start()
    message = bytes(rpc.Limits().max_message)
    async with grpc.insecure_channel(f"{OWN_HOST}:{port}") as channel:
        unary, stream = channel.unary_unary("/test/Echo"), channel.stream_stream("/test/Mirror")

        async def one() -> None:
            assert len(await unary(message)) == len(message)
            call = stream()
            await call.write(message)
            await call.done_writing()
            assert len(await call.read()) == len(message)

        with anyio.fail_after(60):
            await asyncio.gather(*[one() for _ in range(100)])
    await server.stop(None)
