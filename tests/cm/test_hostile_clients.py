"""Hazard: thousands of clients connect to the listening port and send nothing, a part of a request, or nonsense.

The listener runs in a process of its own, because a provider may crash. It must disconnect these clients and serve the
next honest client at once. After they are gone, it must have as many descriptors as before.
"""

# Privates: `_silent` shows when the provider has accepted a client; a search and its pause are looked at.
# Doubles: a timeout and a limit are shortened, and a race is made certain.

import os
import random
import resource
import select
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from time import monotonic, sleep
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric.cm.passive import PassiveHandle
from aiofabric.cm.workarounds import half_open_clients
from aiofabric.transport.virtual import oob_listener as oob_listener
from aiofabric.transport.virtual.protocol import Hello
from tests.fixtures.children import Child, Parent
from tests.fixtures.clients import (
    HERE,
    ONE_LOOP,
    Listening,
    connections,
    descriptors,
    kinds,
    questions,
    request_words,
)
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.providers import CARRIERS, require
from tests.fixtures.stopping import stopped

pytestmark = pytest.mark.anyio

PROVIDERS = [*CARRIERS, "tcp;ofi_rxm"]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_client_that_speaks_another_protocol_is_logged(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    """A warning for the first client, and no warning for the next ones, who could fill the disk."""
    require(provider)
    caplog.set_level("INFO", "aiofabric")
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        for _ in range(2):
            async with await anyio.connect_tcp(HERE, listener.address.port or 0) as browser:
                await browser.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                with suppress(anyio.BrokenResourceError), pytest.raises(anyio.EndOfStream), anyio.fail_after(10):
                    await browser.receive()
    logged = [each for each in caplog.records if "does not connect by libfabric" in each.getMessage()]
    assert [each.levelname for each in logged] == ["WARNING", "INFO"]
    assert "127.0.0.1" in logged[0].getMessage()
    assert "GET / HTTP" in logged[0].getMessage()


async def echo(request: aiofabric.ConnectionRequest) -> None:
    try:
        async with await request.accept() as endpoint:
            async for message in endpoint:
                await endpoint.send(message)
    except OSError:  # a client that became a request and left
        pass


async def serve(parent: Parent, provider: str, timeout: float, room: int | None = None) -> None:
    """``room``: the number of descriptors that it may open once it listens; without it there is no limit."""
    half_open_clients.TIMEOUT = oob_listener.TIMEOUT = timeout  # type: ignore[attr-defined]
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            async for request in listener:
                tasks.start_soon(echo, request)

        tasks.start_soon(accept)
        if room is not None:
            confine(room)
        parent.tell(listener.address.port)
        source = source_of(listener)
        await questions(parent, lambda: asdict(listener.statistics()) | {"passes": source.statistics().passes})
        tasks.cancel_scope.cancel()


def confine(room: int) -> None:
    """Let this process open this number of further descriptors."""
    while (lowest := os.dup(0)) < descriptors() - 2:  # one is the list's own, one is `lowest`: no gap is left below
        pass
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + room, lowest + room))


async def honest(provider: str, port: int) -> None:
    with anyio.fail_after(10):
        async with await aiofabric.connect(HERE, port, provider=provider) as endpoint:
            await endpoint.send(b"still here?")
            assert await endpoint.recv() == b"still here?"


@pytest.mark.long
@ONE_LOOP
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("kind", kinds(b"", 0))
async def test_two_thousand_of_them(kind: str, provider: str, child: Callable[..., Child]) -> None:
    words = kinds(await request_words(require(provider)), kind)[kind]
    listening = Listening(child(serve, provider, 60.0))
    await honest(provider, listening.port)
    await honest(provider, listening.port)
    before, _ = await listening.tells()
    with connections(listening.port, words):
        await honest(provider, listening.port)
        await listening.until(lambda descriptors, _: descriptors <= before + half_open_clients.SILENT_MOST + 10)
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


@pytest.mark.long
@ONE_LOOP
@pytest.mark.parametrize(("provider", "room"), [*((provider, None) for provider in PROVIDERS), ("tcp", 1)])
async def test_who_takes_the_place_of_one_that_left_is_cut_off_too(
    provider: str, room: int | None, child: Callable[..., Child]
) -> None:
    """In one pass, the provider closes a socket and accepts another one with the same number."""
    listening = Listening(child(serve, require(provider), 0.3, room))
    before, _ = await listening.tells()
    with ExitStack() as clients:
        first = clients.enter_context(socket.create_connection((HERE, listening.port), timeout=10))
        await listening.until(lambda descriptors, _: descriptors == before + 1)
        with stopped(listening.pid):
            first.close()
            second = clients.enter_context(socket.create_connection((HERE, listening.port), timeout=10))
        assert await anyio.to_thread.run_sync(second.recv, 1) == b""
    await listening.end()


@pytest.mark.long
@ONE_LOOP
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_who_gets_the_number_of_one_that_left_is_not_forgotten_with_it(
    provider: str, child: Callable[..., Child]
) -> None:
    """The listener remembers a client that left for as long as its timeout, which ends before that of the next one."""
    listening = Listening(child(serve, require(provider), 0.5))
    before, _ = await listening.tells()
    with socket.create_connection((HERE, listening.port), timeout=10):
        await listening.until(lambda descriptors, _: descriptors == before + 1)
    await listening.until(lambda descriptors, _: descriptors == before)
    await anyio.sleep(0.1)  # a part of the timeout
    with socket.create_connection((HERE, listening.port), timeout=10) as second:
        assert await anyio.to_thread.run_sync(second.recv, 1) == b""
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


async def read_in_between(_: Parent, provider: str, words: bytes, leaves: bool) -> None:
    """The data arrives after our check and before the provider's read."""
    half_open_clients.TIMEOUT = 0.3
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        source, poll = source_of(listener), half_open_clients.HalfOpenClients.before_read
        before = descriptors()
        client = socket.create_connection((HERE, listener.address.port or 0))

        def late(self: half_open_clients.HalfOpenClients) -> None:
            poll(self)
            if not self._silent:  # not accepted yet
                return
            half_open_clients.HalfOpenClients.before_read = poll  # type: ignore[method-assign]
            client.sendall(words)
            assert select.select(list(self._silent), [], [], 10)[0]

        half_open_clients.HalfOpenClients.before_read = late  # type: ignore[method-assign]
        with anyio.fail_after(10):
            while half_open_clients.HalfOpenClients.before_read is late:
                source.touch_events()
                await anyio.lowlevel.checkpoint()
            if leaves:
                client.close()
            while descriptors() > before + (not leaves):
                await anyio.lowlevel.checkpoint()
        client.close()
    assert descriptors() < before


@ONE_LOOP
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "stays"])
@pytest.mark.parametrize("size", [1, 32, 33])  # 32: the header
async def test_who_is_read_in_the_midst_of_a_request_is_closed(
    size: int, leaves: bool, child: Callable[..., Child]
) -> None:
    """2.x forgets a socket that has received only the header."""
    words = await request_words(require("tcp"))
    await child(read_in_between, "tcp", words[:size], leaves).aresult()


async def come_unseen(_: Parent, provider: str, words: bytes, leaves: bool) -> None:
    """The provider accepts a client with a descriptor number that aiofabric did not expect."""
    half_open_clients.TIMEOUT = 0.2

    def miss(self: half_open_clients.HalfOpenClients) -> None:
        if self._incoming:
            self.missed = self.missed or monotonic()
            self._arm()

    half_open_clients.HalfOpenClients.after_read = miss  # type: ignore[method-assign]
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        before = descriptors()
        with socket.create_connection((HERE, listener.address.port or 0)) as client, anyio.fail_after(10):
            client.sendall(words)
            while not watch_of(listener).missed:
                await anyio.lowlevel.checkpoint()
            if leaves:
                client.close()
            while descriptors() > before + (not leaves):
                await anyio.lowlevel.checkpoint()


@ONE_LOOP
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "stays"])
@pytest.mark.parametrize("size", [0, 1, 32, 33])
async def test_who_slips_in_unseen_is_closed_too(size: int, leaves: bool, child: Callable[..., Child]) -> None:
    words = await request_words(require("tcp"))
    await child(come_unseen, "tcp", words[:size], leaves).aresult()


def watch_of(listener: aiofabric.Listener) -> half_open_clients.HalfOpenClients:
    handle = handle_of(listener)
    assert isinstance(handle, PassiveHandle)
    found = handle.events.half_open
    assert found is not None
    return found


async def half_a_word(listener: aiofabric.Listener, port: int = 0) -> tuple[int, int]:
    """Send it from this port and close once it was received, so that the port is free; return port and inode."""
    judged = watch_of(listener).handed_over
    before = {each.socket.inode for each in judged.values()}
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
        client.bind((HERE, port))
        client.connect((HERE, listener.address.port))
        client.sendall(b"?")
        place = client.getsockname()
        while True:
            for each in judged.values():
                if each.peer == place and each.socket.inode not in before:
                    return place[1], each.socket.inode
            await anyio.lowlevel.checkpoint()


@ONE_LOOP
async def test_who_comes_again_from_the_same_port_keeps_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = require("tcp")
    monkeypatch.setattr(half_open_clients, "TIMEOUT", 0.2)
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        judged = watch_of(listener).handed_over
        with anyio.fail_after(20):
            again, _ = await half_a_word(listener)
            _, other = await half_a_word(listener)
            while any(each.socket.inode == other for each in judged.values()):
                await half_a_word(listener, again)
                await anyio.sleep(0.1)


async def test_a_loop_that_stands_still_cuts_nobody_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer may run before data that has arrived is read: with uvloop it does."""
    provider, stalled = require("tcp"), list[str]()

    def slow(name: str) -> Any:
        call = getattr(half_open_clients.GuardedQueue, name)

        def stall(self: half_open_clients.GuardedQueue) -> Any:
            answer = call(self)
            if self.half_open is not None and self.half_open.handed_over and not stalled:
                stalled.append(name)
                sleep(0.3)
            return answer

        return stall

    monkeypatch.setattr(half_open_clients, "TIMEOUT", 0.2)
    for name in ("quiet", "read"):
        monkeypatch.setattr(half_open_clients.GuardedQueue, name, slow(name))
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            await echo(await listener.accept_request())

        tasks.start_soon(accept)
        await honest(provider, listener.address.port or 0)
        assert stalled
        assert not listener.statistics().cut_off


@pytest.mark.parametrize("told", ["nothing", "nobody"])
async def test_no_connection_is_taken_for_a_client(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although neither the client of a request is known, nor that there is a request."""
    provider, spoke = require("tcp"), half_open_clients.HalfOpenClients.became_request
    monkeypatch.setattr(half_open_clients, "TIMEOUT", 0.1)
    monkeypatch.setattr(
        half_open_clients.HalfOpenClients,
        "became_request",
        lambda self, _: None if told == "nothing" else spoke(self, None),
    )
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            await echo(await listener.accept_request())

        tasks.start_soon(accept)
        async with await aiofabric.connect(listener.address, provider=provider) as endpoint:
            watching = watch_of(listener)
            assert watching.handed_over
            with anyio.fail_after(10):
                while watching.handed_over:
                    await anyio.lowlevel.checkpoint()
            await endpoint.send(b"still here?")
            assert await endpoint.recv() == b"still here?"


@ONE_LOOP
async def test_a_listener_without_descriptors_sleeps_and_recovers(child: Callable[..., Child]) -> None:
    listening = Listening(child(serve, "tcp", 0.5, 100))
    with ExitStack() as clients:
        for _ in range(150):
            clients.enter_context(socket.create_connection((HERE, listening.port), timeout=10))
        await listening.until(lambda _, counts: counts["cut_off"] >= 150)
        _, counts = await listening.tells()
        assert counts["passes"] < 10_000  # the listening socket was readable all the time
    await honest("tcp", listening.port)
    await listening.end()


async def is_cut_off(client: socket.socket) -> bool:
    with anyio.fail_after(10):
        await anyio.wait_readable(client)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


async def silent_client(listener: aiofabric.Listener, opened: ExitStack) -> socket.socket:
    """A client that the provider has accepted, and that has sent nothing."""
    watching = watch_of(listener)
    client = opened.enter_context(socket.create_connection((HERE, listener.address.port), timeout=10))
    client.setblocking(False)
    with anyio.fail_after(10):
        while client.getsockname() not in [each.peer for each in watching._silent.values()]:
            await anyio.lowlevel.checkpoint()
    return client


async def test_one_silent_client_too_many_replaces_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = require("tcp")
    monkeypatch.setattr(half_open_clients, "SILENT_MOST", 2)
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        with ExitStack() as opened:
            clients = [await silent_client(listener, opened) for _ in range(3)]
            assert await is_cut_off(clients[0])
            assert listener.statistics().cut_off == 1
            for client in clients[1:]:
                with pytest.raises(BlockingIOError):
                    client.recv(1)


async def test_a_client_that_takes_the_place_of_one_that_was_shut_down_is_watched_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2.x closes a socket and accepts the next one with the same number in one read."""
    monkeypatch.setattr(half_open_clients, "SILENT_MOST", 2)
    monkeypatch.setattr(half_open_clients, "TIMEOUT", 60.0)
    async with aiofabric.listen(HERE, 0, provider=require("tcp")) as listener:
        with ExitStack() as opened:
            for _ in range(6):
                await silent_client(listener, opened)
            assert listener.statistics().cut_off == 4


@ONE_LOOP
async def test_a_long_search_for_clients_takes_a_bounded_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def listed() -> list[int]:
        now[0] += 3.0  # seconds of the search
        return []

    async with aiofabric.listen(HERE, 0, provider=require("tcp")) as listener:
        watching = watch_of(listener)
        with monkeypatch.context() as patch:
            patch.setattr(half_open_clients, "monotonic", lambda: now[0])
            watching._search()
            assert watching._pause == half_open_clients._SEARCH
            patch.setattr(half_open_clients, "open_descriptors", listed)
            watching._search()
            assert watching._pause == 3.0 * half_open_clients._SHARE


async def test_the_close_of_a_listener_cuts_off_clients_that_are_not_requests_yet() -> None:
    """Their sockets are the provider's, which forgets them."""
    words = await request_words(require("tcp"))
    with ExitStack() as opened:
        async with aiofabric.listen(HERE, 0, provider="tcp") as listener:
            clients = [await silent_client(listener, opened) for _ in range(3)]
            clients[1].sendall(words[:1])
        assert [await is_cut_off(client) for client in clients] == [True] * len(clients)


async def test_the_close_of_a_listener_cuts_off_a_client_that_it_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = require("tcp")
    monkeypatch.setattr(half_open_clients.HalfOpenClients, "_watch", lambda *_: False)
    with ExitStack() as opened:
        async with aiofabric.listen(HERE, 0, provider=provider) as listener:
            client = opened.enter_context(socket.create_connection((HERE, listener.address.port), timeout=10))
            client.setblocking(False)
            with anyio.fail_after(10):
                while watch_of(listener).missed is None:
                    await anyio.lowlevel.checkpoint()
        assert await is_cut_off(client)


@ONE_LOOP
@pytest.mark.parametrize("provider", ["shm", "tcp;ofi_rxm"])
async def test_hellos_that_lie(provider: str, child: Callable[..., Child]) -> None:
    """A complete frame with wrong contents: lengths, numbers, addresses that do not exist."""
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
