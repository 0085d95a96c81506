"""A server polls for the next call of a client that makes one after the other. Nothing waits for that poll."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiofabric import rpc
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import source_of
from tests.fixtures.providers import OWN_HOST, over
from tests.rpc.test_channel import channel_to

pytestmark = pytest.mark.anyio

provider = over(["tcp"])
Start = Callable[..., Child]


async def ticking_server(parent: Parent, provider: str) -> None:
    """`/test/ticks` replies with the number of times that another task of the loop has run."""
    ticks = 0
    waiting: list[anyio.Event] = []

    async def count(request: bytes, context: Any) -> bytes:
        return b"%d" % ticks

    async def wait(request: bytes, context: Any) -> bytes:
        waiting.append(anyio.Event())
        await waiting[-1].wait()
        return b"woken"

    async def wake(request: bytes, context: Any) -> bytes:
        waiting.pop().set()
        return b""

    handlers = {"/test/ticks": count, "/test/wait": wait, "/test/wake": wake}
    async with rpc.Server({method: rpc.unary_unary(each) for method, each in handlers.items()}) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        parent.tell(listener.address.port)
        while True:
            await anyio.sleep(0.001)
            ticks += 1


async def test_other_tasks_of_a_server_run_while_a_client_makes_call_after_call(provider: str, child: Start) -> None:
    """Hazard: the poll finds each next call, so that the loop never iterates."""
    port = await child(ticking_server, provider).areceive()
    async with channel_to(port, provider=provider) as channel:
        first = int(await channel.unary("/test/ticks", b""))
        with anyio.fail_after(30):
            while int(await channel.unary("/test/ticks", b"")) < first + 100:
                pass


async def test_a_handler_that_another_one_wakes_answers_although_calls_follow(provider: str, child: Start) -> None:
    """Its task needs an iteration of the loop, which a poll must not put off for ever."""
    port = await child(ticking_server, provider).areceive()
    async with channel_to(port, provider=provider) as channel:
        for _ in range(50):
            got: list[bytes] = []

            async def waits(got: list[bytes] = got) -> None:
                got.append(await channel.unary("/test/wait", b""))

            async with anyio.create_task_group() as group:
                group.start_soon(waits)
                await anyio.wait_all_tasks_blocked()
                await channel.unary("/test/ticks", b"")  # the other call has arrived, too
                await channel.unary("/test/wake", b"")
                with anyio.fail_after(30):
                    while not got:
                        await channel.unary("/test/ticks", b"")
            assert got == [b"woken"]


async def test_answers_that_leave_together_are_not_put_off(provider: str, child: Start) -> None:
    """Hazard: answers are kept for the end of the iteration, and the server polls instead."""
    port = await child(ticking_server, provider).areceive()
    async with channel_to(port, provider=provider) as channel:
        for width in (2, 3, 17):
            for _ in range(50):
                got: list[bytes] = []

                async def calls(got: list[bytes] = got) -> None:
                    got.append(await channel.unary("/test/ticks", b""))

                with anyio.fail_after(30):
                    async with anyio.create_task_group() as group:
                        for _ in range(width):
                            group.start_soon(calls)
                assert len(got) == width


async def test_a_server_that_polled_sleeps_when_its_clients_are_silent(provider: str, child: Start) -> None:
    async def echo(request: bytes, context: Any) -> bytes:
        return request

    async with rpc.Server({"/test/echo": rpc.unary_unary(echo)}) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        client = child(calling_client, provider, listener.address.port)
        await client.areceive()
        (transport,) = server.core.transports
        source = source_of(transport.endpoint)
        with anyio.fail_after(30):
            while True:  # the last passes end
                passes = source.statistics().passes
                await anyio.sleep(0.1)
                if source.statistics().passes == passes:
                    break
        assert source.armed
        assert source.unsent == 0
        client.tell("end")
        await client.aresult()


async def calling_client(parent: Parent, provider: str, port: int) -> None:
    async with channel_to(port, provider=provider) as channel:
        for _ in range(500):
            await channel.unary("/test/echo", b"x")
        async with anyio.create_task_group() as group:
            for _ in range(100):  # their answers leave together
                group.start_soon(channel.unary, "/test/echo", b"x")
        parent.tell("done")
        await parent.areceive()
