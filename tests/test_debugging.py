"""debug() of a program that hangs names the operations that wait, and the place where each object was opened."""

import io
import re
import threading

import anyio
import anyio.lowlevel
import pytest

import aiofabric
from aiofabric.debugging import debug
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import Pair

HERE = re.escape(__file__)


def text() -> str:
    """The output of debug(), called from another thread, as one does for a loop that hangs."""
    out = io.StringIO()
    thread = threading.Thread(target=debug, args=[out])
    thread.start()
    thread.join()
    return out.getvalue()


@pytest.mark.anyio
async def test_tells_what_is_posted_and_queued_and_who_opened_it(pair: Pair) -> None:
    async with pair() as (active, _), anyio.create_task_group() as tasks:
        limit = active.info.tx_attr.size
        for _ in range(8 * limit):  # there is no receive: messages that the provider does not take wait here
            tasks.start_soon(active.send, bytes(65536))
        with anyio.fail_after(10):
            while not active.statistics().queued:
                await anyio.lowlevel.checkpoint()
        said = text()
        tasks.cancel_scope.cancel()
    peer = re.escape(f"MessageEndpoint with {active.peer_address}")
    assert re.search(rf"^ +{peer}, opened at .*providers\.py:\d+$", said, re.MULTILINE)
    assert re.search(r"^ +- posted: fi_send with \S+, 65536 bytes, \d+ times$", said, re.MULTILINE)
    assert re.search(r"^ +- queued: fi_send with \S+, 65536 bytes, \d+ times$", said, re.MULTILINE)
    assert re.search(r"- pool of \d+ x 65536 bytes: \d+ posted, \d+ filled, 0 lent", said)
    assert re.search(r"queue on (asyncio|trio), waiting adaptive: \d+ in flight, [1-9]\d* queued, 0 abandoned", said)


@pytest.mark.anyio
async def test_tells_what_is_abandoned(pair: Pair) -> None:
    async with pair() as (active, _):
        async with anyio.create_task_group() as tasks:
            while not active.statistics().queued:
                tasks.start_soon(active.send, bytes(65536))
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        said = text()  # the tasks are gone; tcp cannot take back what it has
    assert re.search(r"^ +- abandoned: fi_send with \S+, 65536 bytes, \d+ times$", said, re.MULTILINE)
    assert re.search(r"[1-9]\d* abandoned, 0 quarantined", said)


@pytest.mark.anyio
async def test_tells_of_listeners_and_their_opener() -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp"):
        said = text()
    assert re.search(rf"^ +Listener, opened at {HERE}:\d+$", said, re.MULTILINE)
    assert "- 0 requests wait; 0 requests, 0 accepted, 0 rejected, 0 overflowed, 0 cut off" in said


@pytest.mark.anyio
async def test_tells_that_the_peer_is_gone(pair: Pair) -> None:
    async with pair() as (active, passive):
        await active.aclose()
        with anyio.fail_after(10), pytest.raises(aiofabric.FabricConnectionError):
            await passive.recv()
        assert re.search(r"^ +- the peer is gone$", text(), re.MULTILINE)


def test_asks_for_no_library() -> None:
    ended = run_in_child("import aiofabric; aiofabric.debug()", AIOFABRIC_LIBFABRIC="/nowhere/libfabric.so.1")
    assert ended.status == 0
    assert ended.err == "aiofabric: libfabric is not loaded, so nothing is open\n"
