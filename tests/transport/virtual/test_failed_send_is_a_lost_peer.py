"""Hazard: the fabric of a virtual connection fails while its OOB socket is open. A failed send ends the connection."""

# Doubles: no fabric fails on request while its sockets live.

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiofabric import FabricConnectionError, FabricError, TruncatedMessageError
from aiofabric._ffi import constants, lib
from aiofabric.cq.queue import CompletionQueue, ErrorEntry
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import VIRTUAL, Pair, connected_pair, over
from tests.fixtures.through_python import ask_queues_through_python

pytestmark = pytest.mark.anyio
provider = over(VIRTUAL)

REASONS = [constants.FI_ECONNRESET, constants.FI_EHOSTUNREACH, constants.FI_ECANCELED, constants.FI_EIO]
BIG = 20_000


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From now on sends complete with this error."""
    ask_queues_through_python(monkeypatch)

    def begin(code: int) -> None:
        failed: list[tuple[int, ...]] = []
        read, read_error, quiet = CompletionQueue.read, CompletionQueue.read_error, CompletionQueue.quiet

        def failing_read(queue: CompletionQueue, window: int = 0) -> Any:
            entries = read(queue, window)
            if entries is None:
                return None
            entries = list(entries)
            sends = [entry for entry in entries if entry[1] & constants.FI_SEND]
            failed.extend(sends)
            return [entry for entry in entries if entry not in sends] or (None if failed else ())

        def failing_read_error(queue: CompletionQueue) -> ErrorEntry | None:
            if not failed:
                return read_error(queue)
            entry = failed.pop()
            return ErrorEntry(entry[0], entry[1], 0, 0, 0, code, 0, "", constants.FI_ADDR_NOTAVAIL)

        monkeypatch.setattr(CompletionQueue, "quiet", lambda queue: not failed and quiet(queue))
        monkeypatch.setattr(CompletionQueue, "read", failing_read)
        monkeypatch.setattr(CompletionQueue, "read_error", failing_read_error)

    return begin


async def gone(endpoint: Any) -> None:
    with anyio.fail_after(5), pytest.raises(FabricConnectionError):
        await endpoint.recv()
    assert endpoint.state == "peer gone"


@pytest.mark.parametrize("code", REASONS)
async def test_completion(pair: Pair, broken: Callable[[int], None], code: int) -> None:
    async with pair() as (active, passive):
        await active.send(b"fine")
        assert await passive.recv() == b"fine"
        broken(code)
        with anyio.fail_after(5), pytest.raises(FabricConnectionError):
            await active.send(bytes(BIG))
        await gone(active)
        received: list[int] = []
        with anyio.fail_after(5), pytest.raises(FabricConnectionError):  # noqa: PT012
            while True:
                received.append(len(await passive.recv()))
        assert received in ([], [BIG])


@pytest.mark.parametrize("size", [10, BIG], ids=["injected", "posted"])
async def test_the_call_itself(pair: Pair, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    async with pair() as (active, passive):
        with monkeypatch.context() as patched:
            for name in ("fi_tinject", "fi_tsend"):
                patched.setattr(lib, name, lambda *_: -constants.FI_EHOSTUNREACH)
            with anyio.fail_after(5), pytest.raises(FabricConnectionError):
                await active.send(bytes(size))
            await gone(active)
        await gone(passive)


async def test_other_failures_are_the_sends_own(pair: Pair, broken: Callable[[int], None]) -> None:
    async with pair() as (active, _):
        broken(constants.FI_ENOMEM)
        with anyio.fail_after(5), pytest.raises(FabricError) as caught:
            await active.send(bytes(BIG))
        assert not isinstance(caught.value, FabricConnectionError)
        assert active.state == "connected"


@pytest.mark.parametrize("code", [constants.FI_ECONNRESET, constants.FI_EINVAL])
async def test_a_count_of_taken_messages_that_cannot_be_sent(
    pair: Pair, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost peer needs no count, and its connection ends; any other error is reported."""
    async with pair() as (_, passive):
        route = handle_of(passive).tx
        with monkeypatch.context() as patch:
            patch.setattr(lib, "fi_tinject", lambda *_: -code)
            if code == constants.FI_EINVAL:
                with pytest.raises(FabricError, match="fi_tinject"):
                    route.announce()
            else:
                route.announce()
                await gone(passive)


@pytest.mark.parametrize("size", [10, BIG], ids=["injected", "posted"])
async def test_a_call_that_fails_for_another_reason_ends_no_connection(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    async with pair() as (active, passive):
        await active.send(b"known")
        assert await passive.recv() == b"known"
        with monkeypatch.context() as patched:
            for name in ("fi_tinject", "fi_tsend"):
                patched.setattr(lib, name, lambda *_: -constants.FI_EINVAL)
            with anyio.fail_after(5), pytest.raises(FabricError) as caught:
                await active.send(bytes(size))
            call = "fi_tinject" if size < BIG else "fi_tsend"
            assert (caught.value.call, caught.value.errno) == (call, constants.FI_EINVAL)
            assert not isinstance(caught.value, FabricConnectionError)
        assert active.state == "connected"
        with anyio.fail_after(10):
            for _ in range(3):
                await active.send(bytes(size))
                assert await passive.recv() == bytes(size)


async def test_a_count_of_taken_messages_that_has_no_room_is_sent_later(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else tells the sender that it may go on."""
    count, refused = 4, 0
    inject = lib.fi_tinject

    def refuse(*args: Any) -> int:
        nonlocal refused
        if args[2] or refused == 3:  # a message, or enough
            return inject(*args)
        refused += 1
        return -constants.FI_EAGAIN

    async with pair(recv_count=count) as (active, passive):
        monkeypatch.setattr(lib, "fi_tinject", refuse)
        with anyio.fail_after(10):
            for number in range(5 * count):
                await active.send(b"%d" % number)
                assert await passive.recv() == b"%d" % number
        assert refused == 3
        assert not handle_of(passive).tx.owes


async def test_a_message_too_long_for_a_direct_receive_counts_as_taken(provider: str) -> None:
    """Otherwise the window of the sender closes after as many of them."""
    async with connected_pair(provider, recv_size=None) as (active, passive):
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(active.send, bytes(100))
                with pytest.raises(TruncatedMessageError):
                    await passive.recv(10)
        handle = handle_of(passive)
        assert (handle.received, handle.taken, handle_of(active).tx.sent) == (1, 1, 1)
