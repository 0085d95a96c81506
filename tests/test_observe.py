"""Nothing is logged unless the program asks for it, and spans cover the operations that take time."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

import aiofabric
from aiofabric.observe import Totals, span, span_hooks
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import Pair

TALK = """
import anyio, logging, aiofabric
{setup}
async def main():
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp", backlog=1) as listener:
        with anyio.move_on_after(0.2):
            await aiofabric.connect(listener.address, provider="tcp")
        for _ in range(2):
            try:
                await aiofabric.connect(listener.address, provider="tcp")
            except ConnectionRefusedError:
                print("refused")
anyio.run(main)
"""


def test_a_warning_is_not_printed_to_who_set_up_no_logging() -> None:
    ended = run_in_child(TALK.format(setup=""))
    assert (ended.out, ended.err, ended.status) == ("refused\nrefused\n", "", 0)


DEBUGGED = """
import asyncio, aiofabric

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # that log is asyncio's, about a slow machine
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
        connecting = asyncio.create_task(aiofabric.connect(listener.address, provider="tcp"))
        theirs = await (await listener.accept_request()).accept()
        async with theirs, await connecting as ours:
            await ours.send(bytes(50_000))
            await theirs.recv()
            cancelled = asyncio.create_task(theirs.recv())
            await asyncio.sleep(0)
            cancelled.cancel()

asyncio.run(main(), debug=True)
"""


def test_nothing_is_said_in_asyncios_debug_mode() -> None:
    ended = run_in_child(DEBUGGED)
    assert (ended.status, ended.out, ended.err) == (0, "", "")


def test_a_full_backlog_is_a_warning_with_the_listeners_opener() -> None:
    ended = run_in_child(TALK.format(setup="logging.basicConfig(format='%(levelname)s %(name)s %(message)s')"))
    assert ended.status == 0
    (line,) = ended.err.splitlines()
    assert line.startswith("WARNING aiofabric.cm.requests 1 requests wait at the listener opened at <string>:")


@pytest.mark.anyio
async def test_debug_level_follows_a_connection(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "aiofabric"):
        async with pair() as (active, passive):
            await active.aclose()
            with pytest.raises(ConnectionResetError):
                await passive.recv()
    said = [record.getMessage() for record in caplog.records]
    assert f"MessageEndpoint with {active.peer_address}: connected" in said
    assert any(line.startswith("MessageEndpoint with ") and line.endswith(": the peer is gone") for line in said)
    assert {record.name.partition(".")[0] for record in caplog.records if record.name.startswith("aio")} <= {
        "aiofabric",
        "asyncio",
    }


@pytest.mark.anyio
async def test_spans_are_around_connecting_and_accepting(pair: Pair) -> None:
    seen: list[tuple[str, object]] = []

    @contextmanager
    def hook(name: str, attributes: Mapping[str, object]) -> Iterator[None]:
        seen.append((f"{name} begins", attributes["provider"]))
        yield
        seen.append((f"{name} ends", attributes["provider"]))

    span_hooks.append(hook)
    try:
        async with pair():
            pass
    finally:
        span_hooks.remove(hook)
    assert sorted(name for name, _ in seen) == ["accept begins", "accept ends", "connect begins", "connect ends"]
    assert {provider for _, provider in seen} == {"tcp"}


@pytest.mark.anyio
async def test_a_failed_span_hands_its_error_to_the_hook() -> None:
    seen: list[str] = []

    @contextmanager
    def hook(name: str, attributes: Mapping[str, object]) -> Iterator[None]:
        with pytest.raises(ConnectionRefusedError) as caught:
            yield
        seen.append(name)
        raise caught.value

    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
        nobody = listener.address
    span_hooks.append(hook)
    try:
        with pytest.raises(ConnectionRefusedError):
            await aiofabric.connect(nobody, provider="tcp")
    finally:
        span_hooks.remove(hook)
    assert seen == ["connect"]


def test_without_hooks_a_span_is_nothing() -> None:
    with span("connect", provider="tcp") as nothing:
        assert nothing is None


def test_totals_add_up_by_label() -> None:
    totals = Totals()
    totals.add("tcp", messages=1, bytes=10)
    totals.add("tcp", messages=1, bytes=5)
    totals.add("shm", messages=1)
    assert totals.read() == {("messages", "tcp"): 2, ("bytes", "tcp"): 15, ("messages", "shm"): 1}
