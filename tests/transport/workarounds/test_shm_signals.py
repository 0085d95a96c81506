"""Hazard: the first endpoint over shm replaces signal handlers, and a signal then removes the memory of a running
process.

Processes that connected to such a process crashed (1.17) or got no message (2.5).
"""

import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
import pytest

import aiofabric
from aiofabric import FabricConnectionRefusedError, FabricError, workarounds
from aiofabric.transport.workarounds.shm_signals import handlers_stay
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio


def files_of(process: int) -> list[Path]:
    """The memory of a process's endpoints."""
    return list(Path("/dev/shm").glob(f"aiofabric-*-{process}-*"))


async def serve(parent: Parent, number: int, ignored: bool) -> None:
    """Gets a signal that does not end it, and serves a client."""
    seen: list[int] = []
    signal.signal(number, signal.SIG_IGN if ignored else lambda *_: seen.append(number))
    async with aiofabric.listen("127.0.0.1", 0, provider="shm") as listener:
        os.kill(os.getpid(), number)
        parent.tell(listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            await endpoint.send(b"hello")
            await endpoint.recv()
    parent.tell(seen)


@pytest.mark.parametrize("ignored", [False, True], ids=["handled", "ignored"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_that_survives_a_signal_keeps_its_memory(
    child: Callable[..., Child], number: signal.Signals, ignored: bool
) -> None:
    require("shm")
    server = child(serve, number, ignored)
    async with await aiofabric.connect("127.0.0.1", await server.areceive(), provider="shm") as endpoint:
        with anyio.fail_after(10):
            assert await endpoint.recv() == b"hello"
            await endpoint.send(b"thanks")
    assert await server.areceive() == ([] if ignored else [number])


async def fail_after_the_provider_took_the_signals(parent: Parent) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: seen.append(signal.SIGTERM))
    info = aiofabric.getinfo(hints=aiofabric.Hints(fabric_attr=aiofabric.FabricAttr(prov_name="shm")))[0]
    async with AsyncExitStack() as stack:
        with suppress(OSError), handlers_stay(info):
            workarounds.switch("signals", False)  # so the endpoint inside leaves the handlers to the provider
            await stack.enter_async_context(aiofabric.open_endpoint(aiofabric.EndpointType.RDM, provider="shm"))
            raise OSError("the rest of the opening failed")
        files = files_of(os.getpid())
        os.kill(os.getpid(), signal.SIGTERM)
        parent.tell((seen, bool(files), files_of(os.getpid()) == files))


async def test_an_opening_that_fails_gives_the_signals_back(child: Callable[..., Child]) -> None:
    require("shm")
    process = child(fail_after_the_provider_took_the_signals)
    assert await process.areceive() == ([signal.SIGTERM], True, True)


async def wait(parent: Parent) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="shm"):
        parent.tell("listening")
        await anyio.sleep_forever()


async def test_a_process_that_a_signal_ends_leaves_no_memory(child: Callable[..., Child]) -> None:
    require("shm")
    process = child(wait)
    await process.areceive()
    assert files_of(process.pid)
    process.kill(signal.SIGTERM)
    assert not files_of(process.pid)


def remove_memory() -> None:
    for path in files_of(os.getpid()):
        path.unlink()


async def serve_without_memory(parent: Parent) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="shm") as listener:
        remove_memory()
        parent.tell(listener.address.port)
        try:
            await (await listener.accept_request()).accept()
        except FabricError as error:
            parent.tell(str(error))


async def test_connecting_to_a_process_without_memory_is_an_error(child: Callable[..., Child]) -> None:
    require("shm")
    server = child(serve_without_memory)
    port = await server.areceive()
    with anyio.fail_after(10), pytest.raises(FabricConnectionRefusedError, match=r"the peer's endpoint.*'signals'"):
        await aiofabric.connect("127.0.0.1", port, provider="shm")
    assert "the memory of this process's endpoint, does not exist" in await server.areceive()


async def connect_without_memory(parent: Parent, port: int) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="shm"):  # holds the endpoint that all connections share
        remove_memory()
        try:
            await aiofabric.connect("127.0.0.1", port, provider="shm")
        except FabricError as error:
            parent.tell(str(error))


async def test_a_client_without_memory_gets_an_error_and_does_not_harm_the_server(child: Callable[..., Child]) -> None:
    require("shm")
    async with aiofabric.listen("127.0.0.1", 0, provider="shm") as listener:
        client = child(connect_without_memory, listener.address.port)
        with anyio.fail_after(10), pytest.raises(FabricConnectionRefusedError, match="the peer's endpoint"):
            await (await listener.accept_request()).accept()
        assert "the memory of this process's endpoint, does not exist" in await client.areceive()
