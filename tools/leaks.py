"""Repeats each scenario, and compares memory, descriptors and objects of the process before and after.

python tools/leaks.py [ROUNDS]: each scenario runs ROUNDS times, and up to ATTEMPTS times so: free lists, caches and the
allocator's arenas grow at first. More than BYTES_MOST bytes a round, one descriptor or one object of aiofabric more is
a leak, if it is so in each attempt.
"""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import grpc

import aiofabric
from aiofabric.rpc import grpc as rpc
from aiofabric.testing import live_resources

ATTEMPTS = 4
BYTES_MOST = 256  # a round; a slot alone has 64
PAGE = os.sysconf("SC_PAGE_SIZE")
HERE = "127.0.0.1"

Scenario = Callable[[], Awaitable[None]]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Pair:
    """Two connected endpoints, opened once."""

    def __init__(self, provider: str | None = None) -> None:
        self.provider = provider

    async def open(self) -> None:
        async with aiofabric.listen(HERE, 0, provider=self.provider) as listener:
            accepting = asyncio.ensure_future(self._accept(listener))
            self.one = await aiofabric.connect(listener.address, provider=self.provider)
            self.two = await accepting

    @staticmethod
    async def _accept(listener: aiofabric.Listener) -> aiofabric.MessageEndpoint:
        return await (await listener.accept_request()).accept()

    async def close(self) -> None:
        self.one.close()
        self.two.close()

    async def messages(self) -> None:
        for _ in range(10):
            await self.one.send(b"small")
            await self.two.recv()

    async def large(self) -> None:
        sending = asyncio.ensure_future(self.one.send(bytes(60_000)))
        await self.two.recv()
        await sending

    async def cancelled(self) -> None:
        for _ in range(5):
            task = asyncio.ensure_future(self.two.recv())
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def refused(self) -> None:
        for data in ("text", None, 3):
            with suppress(TypeError):
                await self.one.send(data)  # type: ignore[arg-type]

    async def never_awaited(self) -> None:
        for _ in range(5):
            self.two.recv().close()


class Calls:
    """A server and a channel of the grpc interface, opened once."""

    async def open(self) -> None:
        handlers = {
            "echo": grpc.unary_unary_rpc_method_handler(self._echo),
            "fail": grpc.unary_unary_rpc_method_handler(self._fail),
            "wait": grpc.unary_unary_rpc_method_handler(self._wait),
            "items": grpc.stream_stream_rpc_method_handler(self._items),
        }
        self.server = rpc.server()
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("leaks", handlers),))
        port = self.server.add_insecure_port(f"{HERE}:0")
        await self.server.start()
        self.channel = rpc.insecure_channel(f"{HERE}:{port}")
        self.echo = self.channel.unary_unary("/leaks/echo")
        self.fail = self.channel.unary_unary("/leaks/fail")
        self.wait = self.channel.unary_unary("/leaks/wait")
        self.items = self.channel.stream_stream("/leaks/items")
        await self.channel.channel_ready()

    @staticmethod
    async def _echo(request: bytes, context: Any) -> bytes:
        return request

    @staticmethod
    async def _fail(request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "not here")
        return b""

    @staticmethod
    async def _wait(request: bytes, context: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    @staticmethod
    async def _items(requests: Any, context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def close(self) -> None:
        await self.channel.close()
        await self.server.stop(None)

    async def unary(self) -> None:
        for _ in range(5):
            await self.echo(b"small")

    async def large_unary(self) -> None:
        await self.echo(bytes(200_000))

    async def streams(self) -> None:
        async for _ in self.items(iter([b"small"] * 5)):
            pass

    async def failed_calls(self) -> None:
        with suppress(grpc.RpcError):
            await self.fail(b"")

    async def cancelled_calls(self) -> None:
        call = self.wait(b"")
        await asyncio.sleep(0)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call

    async def timed_out_calls(self) -> None:
        with suppress(grpc.RpcError):
            await self.wait(b"", timeout=0.001)


async def connections() -> None:
    pair = Pair()
    await pair.open()
    await pair.messages()
    await pair.close()


async def failed_connections() -> None:
    with suppress(aiofabric.FabricError):
        await aiofabric.connect(HERE, 1)


async def grows(scenario: Scenario, rounds: int) -> tuple[float, int, int]:
    """By how much: bytes a round, descriptors, objects."""
    gc.collect()
    memory, open_files, resources = resident(), descriptors(), len(live_resources())
    for _ in range(rounds):
        await scenario()
    gc.collect()
    return (resident() - memory) / rounds, descriptors() - open_files, len(live_resources()) - resources


async def measure(name: str, scenario: Scenario, rounds: int) -> bool:
    for _ in range(ATTEMPTS):
        memory, files, objects = await grows(scenario, rounds)
        leaks = memory > BYTES_MOST or files > 0 or objects > 0
        if not leaks:
            break
    print(f"{name:20} {rounds:6} rounds {memory:9.1f} bytes/round {files:4} fds {objects:4} objects", "LEAK" * leaks)
    return leaks


async def main(rounds: int) -> int:
    leaks = 0
    for provider in (None, "shm"):
        pair = Pair(provider)
        await pair.open()
        for name in ("messages", "large", "cancelled", "refused", "never_awaited"):
            leaks += await measure(f"{name}, {provider}" if provider else name, getattr(pair, name), rounds)
        await pair.close()
    calls = Calls()
    await calls.open()
    for name in ("unary", "large_unary", "streams", "failed_calls", "cancelled_calls", "timed_out_calls"):
        leaks += await measure(name, getattr(calls, name), rounds // 2)
    await calls.close()
    for scenario in (connections, failed_connections):
        leaks += await measure(scenario.__name__, scenario, max(rounds // 15, 20))
    return min(leaks, 1)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that were never awaited
    sys.exit(anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 4000))
