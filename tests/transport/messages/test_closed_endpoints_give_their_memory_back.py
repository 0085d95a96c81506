"""Hazard: messages that a closed endpoint received stay in memory until the garbage collector runs."""

import anyio
import pytest

import aiofabric
from tests.fixtures.children import run_in_child
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import require

MEMORY = """
    import gc, re, sys
    from pathlib import Path

    import anyio, aiofabric

    _, provider, backend = sys.argv
    MIB = 1 << 20
    LARGE = {"recv_size": MIB, "recv_count": 8}

    def resident():
        return int(re.search(r"VmRSS:[ \t]*([0-9]+)", Path("/proc/self/status").read_text())[1]) // 1024

    async def connection(listener):
        async def accept():
            async with await (await listener.accept_request()).accept() as endpoint:
                for _ in range(8):
                    await endpoint.recv()
                await endpoint.send(b"all there")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            async with await aiofabric.connect(listener.address, provider=provider, **LARGE) as endpoint:
                for _ in range(8):
                    await endpoint.send(bytes(MIB))
                assert await endpoint.recv() == b"all there"

    async def main():
        async with aiofabric.listen("127.0.0.1", 0, provider=provider, **LARGE) as listener:
            await connection(listener)
            first = resident()
            for _ in range(10):
                await connection(listener)
            print(resident() - first)
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(connection, listener)
            print(resident() - first)

    gc.disable()
    anyio.run(main, backend=backend)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("provider", ["tcp", "shm"])
def test_without_the_collector(provider: str, backend: str) -> None:
    require(provider)
    ended = run_in_child(MEMORY, provider, backend)
    assert ended.status == 0, ended
    in_turn, at_once = map(int, ended.out.split())
    assert in_turn < 48  # MiB; the memory of those that are closed would be 80
    assert at_once < 64


@pytest.mark.anyio
async def test_a_closed_connection_returns_the_receives_of_what_nobody_read() -> None:
    """They are the multiplexer's, and others' after it."""
    require("shm")
    accepted: list[aiofabric.MessageEndpoint] = []

    async def accept(listener: aiofabric.Listener) -> None:
        accepted.append(await (await listener.accept_request()).accept())

    async with aiofabric.listen("127.0.0.1", 0, provider="shm") as listener:
        for _ in range(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(accept, listener)
                active = await aiofabric.connect(listener.address, provider="shm")
            passive = accepted.pop()
            for _ in range(20):
                await active.send(b"unread")
            with anyio.fail_after(5):
                while (pool := passive.statistics().pool) is not None and pool.filled < 20:
                    await anyio.lowlevel.checkpoint()
            passive.close()
            active.close()
        receive_pools = handle_of(passive).pooled
        with anyio.fail_after(5):
            while receive_pools.posted < receive_pools.count - 8:  # they are posted in batches
                await anyio.lowlevel.checkpoint()
