"""Promise: the data of a fabric connection does not travel over a kernel socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.adapters import carried
from tests.fixtures.children import run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.children import Child

WITHOUT_SOFTWARE = "^tcp,net,udp,shm,sm2,sockets,ofi_rxm,ofi_rxd"

ATTEMPTS = """
import asyncio, aiofabric
from aiofabric import aio, streams
HERE, THERE = ("127.0.0.1", 0), ("127.0.0.1", 7471)
ATTEMPTS = {
    "connect_stream": lambda: streams.connect_stream(*THERE),
    "connect_messages": lambda: streams.connect_messages(*THERE),
    "open_datagrams": lambda: streams.open_datagrams(*HERE),
    "connect_datagrams": lambda: streams.connect_datagrams(*THERE),
    "listen_messages": lambda: streams.listen_messages(*HERE).__aenter__(),
    "listen_stream": lambda: streams.listen_stream(*HERE).__aenter__(),
    "create_connection": lambda: aio.create_connection(asyncio.Protocol, *THERE),
    "create_server": lambda: aio.create_server(asyncio.Protocol, *HERE),
    "open_connection": lambda: aio.open_connection(*THERE),
    "start_server": lambda: aio.start_server(print, *HERE),
}
for adapter, attempt in ATTEMPTS.items():
    async def main():
        await attempt()
    try:
        asyncio.run(main())
    except aiofabric.NoProviderError:
        continue
    raise SystemExit(f"{adapter} worked")
print("tried", *ATTEMPTS)
"""


def test_without_a_provider_no_adapter_works() -> None:
    ended = run_in_child(ATTEMPTS, FI_PROVIDER=WITHOUT_SOFTWARE)
    assert (ended.status, len(ended.out.split())) == (0, 11), ended.err


@pytest.mark.anyio
async def test_data_moves_through_libfabrics_descriptors_only(child: Callable[..., Child], provider: str) -> None:
    """Where connections are ours (shm) a socket carries the handshake, the end and doorbells, and no data."""
    found = await child(carried.over_every_adapter, provider).aresult()
    assert found.pop("a socket") >= 2 * carried.SIZE
    assert set(found) >= {"bytes", "messages"}
    assert max(found.values()) < 1000, found
