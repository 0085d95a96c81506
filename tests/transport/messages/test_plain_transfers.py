"""Transfers without options are posted in C; all others are posted in Python."""

# Privates: `_keeper` is called for an operation that a test posted itself.
# Doubles: calls through Python are recorded, and a callback closes the endpoint.

import sys
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from sniffio import current_async_library

from aiofabric import Caps, MessageEndpoint
from aiofabric._core import STREAK
from aiofabric._ffi import ffi, lib
from aiofabric.cq.operation import Operation, State
from aiofabric.cq.submission import SubmissionQueue, Transfer
from aiofabric.transport.failures import Refill
from aiofabric.transport.messages.receive import Receives
from tests.cq.manual import Endpoint
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.peers import peers
from tests.fixtures.providers import Pair, over

pytestmark = pytest.mark.anyio

provider = over(["tcp"])

LONG = 5000  # more than is injected
CALLS = ("fi_send", "fi_sendv", "fi_senddata", "fi_sendmsg", "fi_recv", "fi_recvv")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that were made through Python."""
    names: list[str] = []

    def noted(name: str, call: Callable[..., int]) -> Callable[..., int]:
        def note(*arguments: Any) -> int:
            names.append(name)
            return call(*arguments)

        return note

    for name in CALLS:
        monkeypatch.setattr(lib, name, noted(name, getattr(lib, name)))
    return names


SENDS: dict[str, Callable[[MessageEndpoint], Coroutine[Any, Any, None]]] = {
    "bytes": lambda ep: ep.send(b"1" * LONG),
    "bytearray": lambda ep: ep.send(bytearray(b"1" * LONG)),
    "view": lambda ep: ep.send(memoryview(b"0" + b"1" * LONG)[1:]),
    "list": lambda ep: ep.send([b"1" * 4000, memoryview(bytearray(b"1" * 1000))]),
    "tuple": lambda ep: ep.send((b"1" * 4999, b"1")),
}


@pytest.mark.parametrize("way", SENDS)
async def test_plain_sends_and_receives(pair: Pair, called: list[str], way: str) -> None:
    async with pair(recv_size=None) as (active, passive):
        for first in (active, passive):  # what comes before its receive, and after
            room = bytearray(LONG + 1)
            async with anyio.create_task_group() as tasks:
                if first is passive:
                    tasks.start_soon(passive.recv_into, room)
                    await anyio.wait_all_tasks_blocked()
                tasks.start_soon(SENDS[way], active)
                if first is active:
                    await anyio.wait_all_tasks_blocked()
                    assert await passive.recv_into(room) == LONG
            assert room == b"1" * LONG + b"\0"
            room.append(0)  # not exported any more
        # On trio a receive takes a checkpoint before it is posted.
        assert set(called) == ({"fi_recv"} if current_async_library() == "trio" else set())


async def test_what_the_provider_has_is_exported_until_it_is_done(pair: Pair) -> None:
    async with pair(recv_size=None, close_timeout=0.1) as (active, _):
        source, room = bytearray(32 << 20), bytearray(10)  # more than the sockets hold, and no receive takes it
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(active.send, source)
            tasks.start_soon(active.recv_into, room)
            await anyio.wait_all_tasks_blocked()
            for lent in (source, room):
                with pytest.raises(BufferError):
                    lent.append(0)
            tasks.cancel_scope.cancel()
        await active.aclose()
    for back in (source, room):
        back.append(0)


def test_receive_that_is_finished_before_it_is_awaited_keeps_its_message() -> None:
    """The poll finds it, but the loop iterates first, because many were found; the pins are released by then."""
    kept: list[bytes] = []

    class Receiver(Receives):
        def __init__(self) -> None: ...

        def _keep(self, pins: Any, tagged: bool, transfer: Operation) -> None:
            kept.append(bytes(ffi.buffer(pins)))

    endpoint, buffer = Endpoint(), bytearray(b"message")
    posted = endpoint.submit(pins=memoryview(buffer))
    endpoint.queue.complete(posted.slot.address)
    endpoint.source.drain()
    assert posted.pins is None
    Receiver()._keeper(posted, buffer)(posted)
    assert kept == [b"message"]
    endpoint.close()


async def test_registered_memory_goes_the_general_path(pair: Pair, called: list[str]) -> None:
    size = 40_000  # shorter messages are copied
    async with pair(recv_size=None) as (active, passive):
        source, room = bytearray(b"1" * size), bytearray(size)
        with active.domain.register(source), passive.domain.register(room):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(active.send, source)
                assert await passive.recv_into(room) == size
    assert room == source
    assert sorted(called) == ["fi_recv", "fi_send"]


async def test_what_cannot_be_received_into_is_refused_as_ever(pair: Pair, called: list[str]) -> None:
    async with pair(recv_size=None) as (active, passive):
        wrong: list[tuple[Any, type[Exception]]] = [
            (b"read-only", BufferError),
            (memoryview(bytearray(10))[::2], BufferError),
            ("text", TypeError),
            (None, TypeError),
        ]
        for buffer, error in wrong:
            with pytest.raises(error):
                await passive.recv_into(buffer)
            if error is TypeError:
                with pytest.raises(error):
                    await active.send(buffer)
        assert not called
        assert passive.statistics().receives == active.statistics().sends == 0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes in Python export no buffer before 3.12")
async def test_each_export_of_a_buffer_may_be_elsewhere(pair: Pair) -> None:
    class Elsewhere:
        def __init__(self) -> None:
            self.exports: list[bytearray] = []

        def __buffer__(self, flags: int) -> memoryview:
            self.exports.append(bytearray(b"1" * LONG))
            return memoryview(self.exports[-1])

    async with pair(recv_size=None) as (active, passive):
        source, room = Elsewhere(), Elsewhere()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(active.send, source)
            assert await passive.recv_into(room) == LONG
        assert [each for each in room.exports if each == b"1" * LONG]
        del source.exports[:], room.exports[:]


async def test_a_message_in_its_buffer_is_not_lost_to_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback of the poll closed the endpoint, and many awaits have returned at once before."""
    async with peers("shm", Caps.TAGGED, recv_size=None) as (one, other, peer, _):
        source, received = source_of(other), SubmissionQueue.received

        def closing(submissions: SubmissionQueue, transfer: Transfer) -> bool:
            while transfer.state is not State.FINISHED:
                source.drain()
            other.close()
            source.streak = STREAK
            return received(submissions, transfer)

        await one.send_tagged(b"here", 7, to=peer)
        monkeypatch.setattr(SubmissionQueue, "received", closing)
        room = bytearray(10)
        with anyio.fail_after(5):
            assert (await other.recv_tagged_into(room, 7)).length == 4
        assert room[:4] == b"here"
        assert other.closed == (current_async_library() != "trio")  # there the receive uses Python from the beginning


async def test_a_receive_that_was_to_take_an_undelivered_message_and_got_a_message_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with peers("shm", Caps.TAGGED, recv_size=None) as (one, other, peer, _):
        recalled, received = handle_of(other).recalled, SubmissionQueue.received

        def chosen(submissions: SubmissionQueue, transfer: Transfer) -> bool:
            recalled[transfer] = Refill
            return received(submissions, transfer)

        monkeypatch.setattr(SubmissionQueue, "received", chosen)
        for _ in range(5):
            await one.send_tagged(b"here", 7, to=peer)
            assert (await other.recv_tagged_into(bytearray(10), 7)).length == 4
        assert not recalled
