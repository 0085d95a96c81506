"""A stream belongs to the thread, process and event loop that opened it: other calls raise and change nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from aiofabric import WrongThreadError
from aiofabric.streams import FabricStream
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until
from tests.streams.pairs import over_fabric, over_messages

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

CALLS: dict[str, Callable[[Any], Any]] = {
    "receive": lambda stream: stream.receive(),
    "receive_into": lambda stream: stream.receive_into(bytearray(8)),
    "send": lambda stream: stream.send(b"stray"),
    "send_eof": lambda stream: stream.send_eof(),
    "wait_send_might_not_block": lambda stream: stream.wait_send_might_not_block(),
    "aclose": lambda stream: stream.aclose(),
    "abort": lambda stream: stream.abort(),
}


async def pair(kind: str, provider: str) -> tuple[Any, Any]:
    if kind == "messages":
        return await over_messages(provider)
    one, other = await over_fabric(provider)
    return FabricStream(one), FabricStream(other)


async def awaited(call: Callable[[Any], Any], stream: Any) -> None:
    answer = call(stream)
    if answer is not None:
        await answer


@pytest.mark.parametrize("kind", ["bytes", "messages"])
async def test_a_call_from_another_thread_is_refused_and_the_stream_goes_on(
    kind: str, provider: str, anyio_backend: tuple[str, dict[str, Any]]
) -> None:
    stream, peer = await pair(kind, provider)
    async with stream, peer:
        await peer.send(b"first")
        await until(lambda: stream.statistics().receive_queued > 0)
        for name, call in CALLS.items():
            if not hasattr(stream, name):
                continue
            with pytest.raises(WrongThreadError):
                await anyio.to_thread.run_sync(partial(anyio.run, awaited, call, stream, backend=anyio_backend[0]))
        assert await stream.receive() == b"first"
        await stream.send(b"second")
        assert await peer.receive() == b"second"


async def test_messages_that_have_arrived_are_not_given_to_another_thread(
    provider: str, anyio_backend: tuple[str, dict[str, Any]]
) -> None:
    stream, peer = await over_messages(provider)
    async with stream, peer:
        for number in range(3):
            await peer.send(b"%d" % number)
        assert await stream.receive() == b"0"
        with pytest.raises(WrongThreadError):
            await anyio.to_thread.run_sync(partial(anyio.run, stream.receive, backend=anyio_backend[0]))
        assert [await stream.receive(), await stream.receive()] == [b"1", b"2"]


PAIR = """
import os, sys
import anyio
from aiofabric import ForkedError, WrongLoopError
from aiofabric.streams import connect_stream, listen_stream

host, provider, backend = sys.argv[1:]

async def pair():
    accepted = []
    async def accept():
        accepted.append(await listener.accept())
    async with listen_stream(host, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(accept)
        stream = await connect_stream(listener.address, provider=provider)
    await accepted[0].send(b"data")
    while not stream.readable:
        await anyio.sleep(0)
    return stream, accepted[0]
"""

IN_A_CHILD = """
def refused(call):
    try:
        steps = call()
        if steps is not None:
            steps.send(None)
    except ForkedError:
        return True
    return False

async def main():
    stream, peer = await pair()
    child = os.fork()
    if not child:
        calls = [stream.receive, lambda: stream.receive_into(bytearray(4)), lambda: stream.send(b"x"), stream.send_eof,
                 stream.aclose, stream.abort]
        os._exit(0 if all(map(refused, calls)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert await stream.receive() == b"data"
    await stream.send(b"answer")
    assert await peer.receive() == b"answer"
    await stream.aclose()
    await peer.aclose()

anyio.run(main, backend=backend)
"""

AFTER_THE_LOOP = """
async def main(stream):
    for call in (stream.receive, lambda: stream.receive_into(bytearray(4)), lambda: stream.send(b"x"), stream.send_eof):
        try:
            await call()
        except WrongLoopError:
            continue
        raise AssertionError(call)

streams = anyio.run(pair, backend=backend)
anyio.run(main, streams[0], backend=backend)
for stream in streams:
    stream.abort()
"""


@pytest.mark.parametrize("code", [IN_A_CHILD, AFTER_THE_LOOP], ids=["forked", "after the loop"])
def test_a_forked_child_and_another_loop_get_no_data(
    code: str, provider: str, anyio_backend: tuple[str, dict[str, Any]]
) -> None:
    ended = run_in_child(PAIR + code, HOST, provider, anyio_backend[0])
    assert ended.status == 0, ended.err
