"""Hazard: fi_trywait always fails. The queue is polled for ever, and its waiters get no error."""

# Doubles: reports of the driver are collected; on trio they go to a log only.

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import anyio
import pytest

from aiofabric import (
    Bind,
    Caps,
    Counter,
    Domain,
    EndpointType,
    EpAttr,
    FabricAttr,
    FabricError,
    Hints,
    MessageEndpoint,
    SharedReceive,
    Waiting,
    getinfo,
    open_endpoint,
)
from aiofabric._ffi import constants
from tests.fixtures.broken_fabric import Answer, broken_trywait
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.providers import Pair, connected_pair, over

pytestmark = [pytest.mark.anyio, pytest.mark.once]
provider = over(["tcp"])


@pytest.fixture
def break_queue() -> Iterator[Callable[[Any], Answer]]:
    """Make fi_trywait of an endpoint's fabric return another value."""
    with ExitStack() as opened:

        def break_fabric(endpoint: Any) -> Answer:
            fabric = handle_of(source_of(endpoint).queue.domain.fabric)
            return opened.enter_context(broken_trywait(fabric.fid, closed=lambda: fabric.released))

        yield break_fabric


async def test_a_task_that_waits_gets_the_error(pair: Pair, break_queue: Callable[[Any], Answer]) -> None:
    async with pair(waiting=Waiting.FD) as (one, _):
        errors: list[FabricError] = []

        async def receive() -> None:
            with pytest.raises(FabricError) as caught:
                await one.recv()
            errors.append(caught.value)

        answer = break_queue(one)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(receive)
                await anyio.wait_all_tasks_blocked()
                answer(-constants.FI_EIO)
                source_of(one).touch()
        assert [(error.call, error.errno) for error in errors] == [("fi_trywait", constants.FI_EIO)] * 2
        answer(0)


async def test_a_task_that_is_about_to_wait_gets_the_error(pair: Pair, break_queue: Callable[[Any], Answer]) -> None:
    async with pair(waiting=Waiting.FD) as (one, two):
        await one.send(b"before")
        assert await two.recv() == b"before"
        answer = break_queue(two)
        answer(-constants.FI_EIO)
        with anyio.fail_after(5), pytest.raises(FabricError, match="fi_trywait"):
            await two.recv()
        answer(0)
        await one.send(b"after")
        with anyio.fail_after(5):
            assert await two.recv() == b"after"


async def test_a_receive_into_memory_gets_the_error_and_its_buffer_stays_pinned(
    pair: Pair, break_queue: Callable[[Any], Answer]
) -> None:
    async with pair(waiting=Waiting.FD, recv_size=None) as (one, _):
        buffer = bytearray(10)
        answer = break_queue(one)

        async def receive() -> None:
            with pytest.raises(FabricError, match="fi_trywait"):
                await one.recv_into(buffer)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                await anyio.wait_all_tasks_blocked()
                answer(-constants.FI_EIO)
                source_of(one).touch()
        with pytest.raises(BufferError):
            buffer.append(0)
        answer(0)


Wait = Callable[[Any], Awaitable[object]]


async def recv(endpoint: MessageEndpoint) -> None:
    await endpoint.recv()


async def recv_into(endpoint: MessageEndpoint) -> None:
    await endpoint.recv_into(bytearray(8))


async def remote_write(endpoint: MessageEndpoint) -> None:
    await endpoint.remote_write()


@pytest.mark.parametrize(
    ("provider", "options", "waits"),
    [
        ("tcp", {}, [recv, recv_into, recv]),
        ("tcp", {"recv_size": None}, [recv_into, recv_into]),
        ("tcp;ofi_rxm", {}, [recv, recv_into, recv]),
        ("tcp;ofi_rxm", {"recv_size": None}, [recv_into]),
        ("tcp", {"remote_writes": 4}, [remote_write, remote_write, recv]),
    ],
    indirect=["provider"],
)
async def test_every_task_that_waits_gets_the_error(
    pair: Pair, break_queue: Callable[[Any], Answer], options: dict[str, Any], waits: list[Wait]
) -> None:
    async with pair(waiting=Waiting.FD, **options) as (one, _):
        await every_wait_fails(one, break_queue, [partial(wait, one) for wait in waits])


async def every_wait_fails(
    endpoint: Any, break_queue: Callable[[Any], Answer], waits: list[Callable[[], Awaitable[object]]]
) -> None:
    async def wait_for(wait: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(FabricError, match="fi_trywait"):
            await wait()
        answer(0)  # one failure is for all of them

    answer = break_queue(endpoint)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for wait in waits:
                tasks.start_soon(wait_for, wait)
            await anyio.wait_all_tasks_blocked()
            answer(-constants.FI_EIO)
            source_of(endpoint).touch()


async def test_tagged_receives_get_the_error(break_queue: Callable[[Any], Answer]) -> None:
    hints = Hints(fabric_attr=FabricAttr(prov_name="tcp;ofi_rxm"), caps=Caps.MSG | Caps.TAGGED)
    opened = open_endpoint(EndpointType.RDM, "127.0.0.1", hints=hints, waiting=Waiting.FD)
    async with opened as endpoint:
        waits: list[Any] = [
            partial(endpoint.recv_tagged, 7),
            partial(endpoint.recv_tagged_into, bytearray(8), 8),
            endpoint.recv,
        ]
        await every_wait_fails(endpoint, break_queue, waits)


@pytest.mark.parametrize("shares", [False, True])
async def test_the_waits_of_a_counter_and_of_a_shared_receive_get_the_error(
    break_queue: Callable[[Any], Answer], monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    hints = Hints(fabric_attr=FabricAttr(prov_name="tcp"), ep_attr=EpAttr(type=EndpointType.MSG))
    with (
        Domain(getinfo("127.0.0.1", hints=hints)[0]) as domain,
        SharedReceive(domain, recv_count=4) as shared,
        Counter(domain) as counter,
    ):
        options: Any = (
            {"shared_receive": shared} if shares else {"waiting": Waiting.FD, "counters": {counter: Bind.RECV}}
        )
        async with connected_pair("tcp", {}, domain=domain, **options) as (one, _):
            # A pass may follow before the tasks run, and no task waits then.
            monkeypatch.setattr(source_of(one).driver, "report", lambda *_: None)
            await every_wait_fails(
                one, break_queue, [shared.recv, shared.recv] if shares else [one.recv, partial(counter.wait, 5)]
            )


async def test_a_sink_gets_the_error_once(
    pair: Pair, break_queue: Callable[[Any], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(waiting=Waiting.FD) as (one, _):
        source = source_of(one)
        reported: list[object] = []
        monkeypatch.setattr(source.driver, "report", lambda _, error: reported.append(error))
        ends: list[Any] = []
        one.set_sink(lambda _: None, ends.append)
        answer = break_queue(one)
        answer(-constants.FI_EIO)
        source.touch()
        with anyio.fail_after(5):
            while not ends:
                await anyio.lowlevel.checkpoint()
        assert [(error.call, error.errno) for error in ends] == [("fi_trywait", constants.FI_EIO)]
        assert reported == []
        answer(0)


async def test_nothing_polls_a_queue_that_failed(
    pair: Pair, break_queue: Callable[[Any], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(waiting=Waiting.FD) as (one, _):
        source = source_of(one)
        answer = break_queue(one)
        reported: list[object] = []
        monkeypatch.setattr(source.driver, "report", lambda _, error: reported.append(error))
        answer(-constants.FI_EIO)
        source.touch()
        with anyio.fail_after(30):
            while not reported:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            before = -1
            while before != (before := source.statistics().passes):  # the queue becomes quiet  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert [type(error) for error in reported] == [FabricError]  # no task waited, so the loop gets it
        answer(0)
