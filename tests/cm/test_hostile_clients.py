"""Hazard: strangers at the listening port. They say nothing, half of it or nonsense, by the thousand.

The listener is in a process of its own, which a provider may crash. What it has to do: cut them off, serve the next
honest client at once, and have as many descriptors as before when they are gone.
"""

import os
import random
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric.cm import door, rendezvous
from aiofabric.transport.wire import Hello
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import FACES, require

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"
MANY = 2_000
PROVIDERS = [*FACES, "tcp;ofi_rxm"]
ONE_LOOP = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])


async def echo(request: aiofabric.ConnectionRequest) -> None:
    try:
        async with await request.accept() as endpoint:
            async for message in endpoint:
                await endpoint.send(message)
    except OSError:  # a stranger that became a request and left
        pass


def descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # not even one for the list
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


async def serve(parent: Parent, provider: str, patience: float) -> None:
    """Tell the port; then, asked, the number of descriptors and the listener's counts."""
    door.PATIENCE = rendezvous.PATIENCE = patience  # type: ignore[attr-defined]
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            async for request in listener:
                tasks.start_soon(echo, request)

        tasks.start_soon(accept)
        parent.tell(listener.address.port)
        while await parent.ahear():
            turns = listener._handle.source.statistics().turns
            parent.tell((descriptors(), asdict(listener.statistics()) | {"turns": turns}))
        tasks.cancel_scope.cancel()


@contextmanager
def many_descriptors() -> Iterator[None]:
    """Room for the clients."""
    soft, hard = limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, MANY + 500), hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


async def request_words(provider: str) -> bytes:
    """What an honest client says first."""
    with socket.create_server((HERE, 0)) as recorder, anyio.fail_after(10):
        recorder.setblocking(False)
        async with anyio.create_task_group() as tasks:
            connecting = partial(aiofabric.connect, provider=provider, param=b"friend")
            tasks.start_soon(connecting, HERE, recorder.getsockname()[1])
            await anyio.wait_readable(recorder)
            client, _ = recorder.accept()
            with client:
                await anyio.wait_readable(client)
                words = client.recv(4096)
                tasks.cancel_scope.cancel()
    return words


def kinds(words: bytes) -> dict[str, Callable[[random.Random], bytes]]:
    return {
        "silence": lambda chance: b"",
        "half a request": lambda chance: words[: chance.randrange(1, len(words))],
        "nonsense": lambda chance: chance.randbytes(chance.randrange(1, 400)),
    }


async def honest(provider: str, port: int) -> None:
    with anyio.fail_after(10):
        async with await aiofabric.connect(HERE, port, provider=provider) as endpoint:
            await endpoint.send(b"still here?")
            assert await endpoint.recv() == b"still here?"


class Listening:
    """The other process."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.port: int = child.hear()

    async def tells(self) -> tuple[int, dict[str, int]]:
        self._child.tell(True)
        answer: tuple[int, dict[str, int]] = await self._child.ahear()
        return answer

    async def until(self, satisfied: Callable[[int, dict[str, int]], bool]) -> None:
        with anyio.fail_after(15):
            while not satisfied(*await self.tells()):
                await anyio.lowlevel.checkpoint()

    async def end(self) -> None:
        self._child.tell(False)
        await self._child.aresult()


@ONE_LOOP
@pytest.mark.parametrize("provider", FACES)
@pytest.mark.parametrize("kind", kinds(b""))
async def test_two_thousand_of_them(kind: str, provider: str, child: Callable[..., Child]) -> None:
    words = kinds(await request_words(require(provider)))[kind]
    listening = Listening(child(serve, provider, 60.0))
    await honest(provider, listening.port)
    await honest(provider, listening.port)
    before, _ = await listening.tells()
    with many_descriptors(), ExitStack() as clients:
        chance = random.Random(kind)
        for number in range(min(MANY, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)):
            client = clients.enter_context(socket.create_connection((HERE, listening.port), timeout=10))
            client.settimeout(0)
            with suppress(BlockingIOError, ConnectionError):  # cut off already
                client.send(words(chance))
            if number % 64 == 0:
                await anyio.lowlevel.checkpoint()
        await honest(provider, listening.port)
        await listening.until(lambda descriptors, _: descriptors <= before + door.SILENT_MOST + 10)
    await honest(provider, listening.port)
    await listening.until(lambda descriptors, _: descriptors <= before)
    await listening.end()


@ONE_LOOP
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_who_says_nothing_is_cut_off_after_a_while(provider: str, child: Callable[..., Child]) -> None:
    listening = Listening(child(serve, require(provider), 0.3))
    with socket.create_connection((HERE, listening.port), timeout=10) as client:
        assert await anyio.to_thread.run_sync(client.recv, 1) == b""
    await listening.until(lambda _, counts: counts["cut_off"] == 1)
    await listening.end()


@ONE_LOOP
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_half_a_request_stops_nobody(provider: str, child: Callable[..., Child]) -> None:
    words = await request_words(require(provider))
    listening = Listening(child(serve, provider, 60.0))
    with socket.create_connection((HERE, listening.port)) as client:
        client.sendall(words[:-1])
        await honest(provider, listening.port)
    await honest(provider, listening.port)
    await listening.end()


@ONE_LOOP
async def test_a_listener_without_descriptors_sleeps_and_recovers(child: Callable[..., Child]) -> None:
    listening = Listening(child(serve_few, 0.5))
    with ExitStack() as clients:
        for _ in range(150):
            clients.enter_context(socket.create_connection((HERE, listening.port), timeout=10))
        await listening.until(lambda _, counts: counts["cut_off"] >= 150)
        _, counts = await listening.tells()
        assert counts["turns"] < 10_000  # the listening socket was readable all the time
    await honest("tcp", listening.port)
    await listening.end()


async def serve_few(parent: Parent, patience: float) -> None:
    async with aiofabric.listen(HERE, 0, provider="tcp"):  # what is opened once is open
        most = len(os.listdir("/proc/self/fd")) + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    await serve(parent, "tcp", patience)


@ONE_LOOP
@pytest.mark.parametrize("provider", ["shm"])
async def test_hellos_that_lie(provider: str, child: Callable[..., Child]) -> None:
    """A frame that is whole and names what is not: lengths, numbers, addresses of nobody."""
    words = await request_words(require(provider))
    head, hello = words[:5], Hello.unpack(words[5:])
    listening = Listening(child(serve, provider, 60.0))
    before, _ = await listening.tells()
    chance = random.Random(provider)
    for number in range(200):
        lies: dict[str, Any] = {}
        for field in chance.sample(Hello._fields, chance.randrange(1, 4)):
            truth = getattr(hello, field)
            if isinstance(truth, bytes):
                lies[field] = chance.choice([chance.randbytes(len(truth)), chance.randbytes(1900), b"x"])
            else:
                lies[field] = chance.choice([0, 1, 15, 255, 65535, truth ^ 1 << chance.randrange(16)])
        with suppress(struct.error):  # a number that does not fit into its field
            body = bytearray(hello._replace(**lies).pack())
            if number % 3 == 0:
                body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
            with socket.create_connection((HERE, listening.port), timeout=10) as client:
                client.sendall(head[:3] + len(body).to_bytes(2, "big") + body)
                client.shutdown(socket.SHUT_WR)
                client.settimeout(None)
                with suppress(ConnectionError), anyio.fail_after(10):
                    while await anyio.to_thread.run_sync(client.recv, 4096):
                        pass
    await honest(provider, listening.port)
    await listening.until(lambda descriptors, _: descriptors <= before + 10)
    await listening.end()
