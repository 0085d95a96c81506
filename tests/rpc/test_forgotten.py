"""Channels and servers that a program drops without closing them: a warning names them, and nothing stays."""

from __future__ import annotations

import gc
import weakref

import pytest

from aiofabric import rpc
from tests.fixtures.ports import free_port
from tests.fixtures.providers import CONNECTED, OWN_HOST, over
from tests.fixtures.waiting import until
from tests.rpc.services import HANDLERS
from tests.rpc.test_channel import channel_to

pytestmark = pytest.mark.anyio

provider = over(CONNECTED)


async def test_a_channel_that_is_dropped_warns_and_its_connection_ends(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        port = (await server.listen(OWN_HOST, 0, provider=provider)).address.port or 0
        channel = channel_to(port, provider=provider)
        assert await channel.unary("/test/echo", b"x") == b"x"
        assert len(server.core.transports) == 1
        dropped = weakref.ref(channel)
        with pytest.warns(ResourceWarning, match="unclosed <aiofabric.rpc.client.Channel"):  # noqa: PT031
            del channel
            gc.collect()
        assert dropped() is None
        await until(lambda: not server.core.transports)


async def test_a_channel_that_does_not_connect_can_be_dropped(provider: str) -> None:
    channel = channel_to(free_port(), provider=provider)
    with pytest.raises(rpc.RpcError, match="UNAVAILABLE"):
        await channel.unary("/test/echo", b"x")
    dropped = weakref.ref(channel)
    with pytest.warns(ResourceWarning, match="unclosed"):  # noqa: PT031
        del channel
        gc.collect()
    assert dropped() is None


async def test_a_server_that_is_dropped_warns_and_ends_its_connections(provider: str) -> None:
    server = await rpc.Server(HANDLERS).__aenter__()
    core = server.core
    port = (await server.listen(OWN_HOST, 0, provider=provider)).address.port or 0
    async with channel_to(port, provider=provider) as channel:
        assert await channel.unary("/test/echo", b"x") == b"x"
        with pytest.warns(ResourceWarning, match="unclosed <aiofabric.rpc.server.Server"):  # noqa: PT031
            del server
            gc.collect()
        await until(lambda: not core.transports)
        with pytest.raises(rpc.RpcError, match="UNAVAILABLE"):
            await channel.unary("/test/echo", b"x")


@pytest.mark.filterwarnings("error")
async def test_what_was_closed_or_never_used_is_dropped_in_silence(provider: str) -> None:
    rpc.Channel("127.0.0.1:1")
    rpc.Server(HANDLERS)
    async with rpc.Server(HANDLERS) as server:
        port = (await server.listen(OWN_HOST, 0, provider=provider)).address.port or 0
        async with channel_to(port, provider=provider) as channel:
            assert await channel.unary("/test/echo", b"x") == b"x"
    del channel, server
    gc.collect()
