"""Nothing rides on a kernel socket in secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faces import carried
from tests.fixtures.children import run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.children import Child

WITHOUT_SOFTWARE = "^tcp,net,udp,shm,sm2,sockets,ofi_rxm,ofi_rxd"

ATTEMPTS = {
    "connect_stream": "await aiofabric.streams.connect_stream('127.0.0.1', 7471)",
    "connect_messages": "await aiofabric.streams.connect_messages('127.0.0.1', 7471)",
    "open_datagrams": "await aiofabric.streams.open_datagrams('127.0.0.1', 0)",
    "connect_datagrams": "await aiofabric.streams.connect_datagrams('127.0.0.1', 7471)",
    "listen_messages": "await aiofabric.streams.listen_messages('127.0.0.1', 0).__aenter__()",
    "listen_stream": "await aiofabric.streams.listen_stream('127.0.0.1', 0).__aenter__()",
    "create_connection": "await aiofabric.aio.create_connection(asyncio.Protocol, '127.0.0.1', 7471)",
    "create_server": "await aiofabric.aio.create_server(asyncio.Protocol, '127.0.0.1', 0)",
    "open_connection": "await aiofabric.aio.open_connection('127.0.0.1', 7471)",
    "start_server": "await aiofabric.aio.start_server(print, '127.0.0.1', 0)",
}


@pytest.mark.parametrize("face", ATTEMPTS)
def test_without_a_provider_no_face_works(face: str) -> None:
    code = f"""
        import asyncio, aiofabric.aio, aiofabric.streams
        async def main():
            {ATTEMPTS[face]}
        asyncio.run(main())
    """
    ended = run_in_child(code, FI_PROVIDER=WITHOUT_SOFTWARE)
    assert ended.status == 1
    assert "NoProviderError" in ended.err


@pytest.mark.anyio
async def test_data_moves_through_libfabrics_descriptors_only(child: Callable[..., Child], provider: str) -> None:
    """Where connections are ours (shm) a socket carries the handshake, the end and doorbells, and no data."""
    found = await child(carried.over_every_face, provider).aresult()
    assert found.pop("a socket") >= 2 * carried.SIZE
    assert set(found) >= {"bytes", "messages"}
    assert max(found.values()) < 1000, found
