"""The addresses and providers that connect and listen choose, and the arguments that they refuse first."""

# Doubles: the resolver's answer is chosen, and a thread cannot be started.

import asyncio
import mmap
import socket
import threading
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.to_thread import current_default_thread_limiter

import aiofabric
from aiofabric import Address, FabricConnectionResetError, Hints
from aiofabric.transport.opening.resolution import resolve
from tests.fixtures.providers import CARRIERS, HOST, Pair, over

provider = over(CARRIERS)


async def connected(listener: aiofabric.Listener, *where: Any, **options: Any) -> None:
    """Connect and part."""
    async with anyio.create_task_group() as tasks:

        async def accept() -> None:
            (await (await listener.accept_request()).accept()).close()

        tasks.start_soon(accept)
        with anyio.fail_after(5):
            async with await aiofabric.connect(*where, **options) as endpoint:
                with pytest.raises(FabricConnectionResetError):  # the side that closes first might close too early
                    await endpoint.recv()


@pytest.mark.anyio
async def test_listens_at_a_whole_address(provider: str) -> None:
    async with aiofabric.listen(f"fi_sockaddr://{HOST}:0", provider=provider) as listener:
        assert listener.address.port
        await connected(listener, f"fi_sockaddr://{HOST}:{listener.address.port}", provider=provider)
        await connected(listener, str(listener.address), provider=provider)


@pytest.mark.anyio
@pytest.mark.parametrize(("everywhere", "host"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
async def test_listens_at_all_addresses(provider: str, everywhere: str, host: str) -> None:
    async with aiofabric.listen(everywhere, 0, provider=provider) as listener:
        await connected(listener, host, listener.address.port, provider=provider)


@pytest.mark.anyio
@pytest.mark.parametrize("node", [Address.from_ip("127.0.0.1", 7471), "fi_sockaddr://127.0.0.1:7471"])
async def test_a_whole_address_leaves_no_room_for_a_service(provider: str, node: Any) -> None:
    with pytest.raises(ValueError, match="leave out the service"):
        await aiofabric.connect(node, 7471, provider=provider)
    with pytest.raises(ValueError, match="leave out the service"):
        async with aiofabric.listen(node, 7471, provider=provider):
            pass


@pytest.mark.anyio
@pytest.mark.parametrize("port", [-1, 1 << 16])
async def test_no_such_port(provider: str, port: int) -> None:
    with pytest.raises(ValueError, match="a port must be 0 to 65535"):
        await aiofabric.connect(HOST, port, provider=provider)


@pytest.mark.anyio
@pytest.mark.parametrize("param", [5, "text", [1, 2]])
async def test_private_data_is_a_buffer(provider: str, param: Any) -> None:
    with pytest.raises(TypeError):
        await aiofabric.connect(HOST, 9, provider=provider, param=param)


@pytest.mark.anyio
async def test_waiting_is_one_of_its_kinds(provider: str) -> None:
    with pytest.raises(TypeError, match="waiting"):
        await aiofabric.connect(HOST, 9, provider=provider, waiting="fd")  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_what_is_gone_is_no_buffer(pair: Pair) -> None:
    released = memoryview(bytearray(4))
    released.release()
    closed = mmap.mmap(-1, 4096)
    closed.close()
    async with pair() as (active, passive):
        for buffer, words in ((released, "released"), (closed, "closed")):
            with pytest.raises(BufferError, match=words):
                await active.send(buffer)
            with pytest.raises(BufferError, match=words):
                await passive.recv_into(buffer)


@pytest.mark.anyio
async def test_every_address_of_a_name_is_tried(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system = socket.getaddrinfo

    def debians(host: Any, *rest: Any, **options: Any) -> list[Any]:  # its /etc/hosts has localhost twice
        names = ["::1", "127.0.0.1"] if host in ("localhost", b"localhost") else [host]
        return [found for name in names for found in system(name, *rest, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", debians)
    async with aiofabric.listen(HOST, 0, provider=provider) as listener:
        await connected(listener, "localhost", listener.address.port, provider=provider)
        await connected(listener, "localhost", str(listener.address.port), provider=provider)


@pytest.mark.anyio
async def test_hazard_many_at_once_are_not_a_thread_each() -> None:
    """While a name is resolved, or a provider is loaded, in as many threads as anyio's limiter allows."""
    limit = int(current_default_thread_limiter().total_tokens)
    together = threading.Barrier(limit)
    now, most = set[int](), 0

    def ask(*_: Any, **__: Any) -> list[Any]:
        nonlocal most
        now.add(threading.get_ident())
        most = max(most, len(now))
        together.wait(10)
        now.discard(threading.get_ident())
        return []

    async with anyio.create_task_group() as group:
        for _ in range(3 * limit):
            group.start_soon(partial(resolve, "a-name.invalid", 1, Hints(), call=ask))
    assert most == limit
    assert not [each for each in threading.enumerate() if each.name.startswith("aiofabric")]


@pytest.mark.anyio
@pytest.mark.parametrize("error", [ValueError("no such thing"), KeyboardInterrupt()], ids=["error", "interrupt"])
async def test_what_a_look_up_raises_belongs_to_who_asked(error: BaseException) -> None:
    def ask(*_: Any, **__: Any) -> list[Any]:
        raise error

    with pytest.raises(type(error)) as caught:
        await resolve("a-name.invalid", 1, Hints(), call=ask)
    assert caught.value is error


@pytest.mark.anyio
async def test_who_is_cancelled_already_asks_nobody() -> None:
    asked: list[object] = []

    def ask(*args: Any, **_: Any) -> list[Any]:
        asked.append(args)
        return []

    with anyio.CancelScope() as scope:
        scope.cancel()
        await resolve("a-name.invalid", 1, Hints(), call=ask)
    assert scope.cancelled_caught
    assert not asked


def test_hazard_answer_to_a_loop_that_has_ended_keeps_no_thread() -> None:
    """It gets the result, and the thread does not wait for it."""
    asked, answer = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def ask(*_: Any, **__: Any) -> list[Any]:
        threads.append(threading.current_thread())
        asked.set()
        answer.wait(10)
        return []

    async def leaves() -> None:
        task = asyncio.ensure_future(resolve("a-name.invalid", 1, Hints(), call=ask))
        assert await asyncio.to_thread(asked.wait, 10)
        task.cancel()
        await asyncio.wait([task])

    for closes_first in (True, False):
        asked.clear()
        answer.clear()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(leaves())
        if closes_first:
            loop.close()
        answer.set()
        threads[-1].join(10)
        assert not threads[-1].is_alive()
        loop.close()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_hazard_who_was_cancelled_counts_until_its_thread_is_gone() -> None:
    """A cancel by asyncio is not shielded: the thread continues without its caller."""
    limiter = current_default_thread_limiter()
    asked, answer = threading.Event(), threading.Event()

    def ask(*_: Any, **__: Any) -> list[Any]:
        asked.set()
        answer.wait(10)
        return []

    task = asyncio.ensure_future(resolve("a-name.invalid", 1, Hints(), call=ask))
    try:
        with anyio.fail_after(5):
            while not asked.is_set():
                await anyio.lowlevel.checkpoint()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert limiter.borrowed_tokens == 1
            answer.set()
            while limiter.borrowed_tokens:
                await anyio.lowlevel.checkpoint()
    finally:
        answer.set()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_hazard_threads_that_cannot_be_started_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    with pytest.raises(RuntimeError, match="can't start"):
        await resolve("a-name.invalid", 1, Hints(), call=lambda *_, **__: [])
    monkeypatch.undo()
    assert current_default_thread_limiter().borrowed_tokens == 0
