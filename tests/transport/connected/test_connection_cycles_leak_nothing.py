"""Many times: connect, transfer data, close. The number of descriptors, slots and regions, and the memory, stay the
same.
"""

import os
from itertools import pairwise

import anyio
import psutil
import pytest

import aiofabric
from aiofabric.testing import live_resources
from tests.fixtures.providers import CARRIERS, HOST, over

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(180)]

provider = over(CARRIERS)

CYCLES = {"tcp": 1_000, "shm": 200}
BATCHES = 5
MIB = 1 << 20


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_cycles_leak_nothing(provider: str) -> None:
    process, cycles, served = psutil.Process(), CYCLES[provider], 0
    async with aiofabric.listen(HOST, 0, provider=provider) as listener:
        port = listener.address.port

        async def serve() -> None:
            nonlocal served
            async for request in listener:
                async with await request.accept() as endpoint:
                    await endpoint.send(await endpoint.recv())
                    async for _ in endpoint:
                        pass
                served += 1

        async def last_one_closed() -> None:
            while served < listener.statistics().accepted:
                await anyio.lowlevel.checkpoint()

        async def cycle() -> None:
            async with await aiofabric.connect(HOST, port, provider=provider) as endpoint:
                with endpoint.domain.register(bytearray(4096), access=aiofabric.Access.REMOTE_READ):
                    await endpoint.send(b"x" * 1000)
                    assert await endpoint.recv() == b"x" * 1000

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            # libfabric and the allocator take the memory that they keep in the first cycles.
            for _ in range(cycles // 4):
                await cycle()
            await last_one_closed()
            before = descriptors(), len(live_resources())
            memory = [process.memory_info().rss]
            for _ in range(BATCHES):
                for _ in range(cycles // BATCHES):
                    await cycle()
                await last_one_closed()
                memory.append(process.memory_info().rss)
            assert (descriptors(), len(live_resources())) == before
            # A leak grows in every batch. The heap, when it is in pieces, grows once by one large step: a domain of tcp
            # takes and frees 16 MiB (2.x). So the batch that grew most does not count.
            grown = sum(sorted(after - before for before, after in pairwise(memory))[:-1])
            assert grown < 5 * MIB, f"{grown / MIB:.1f} MiB more, one batch not counted, after {cycles} cycles"
            tasks.cancel_scope.cancel()
