"""Hazard: a sink fails, and its message's receive is not posted again: after some failures nothing arrives."""

# Privates: the methods that report failures are private.
# Doubles: no sink of aiofabric's own fails, and no loop refuses a report.

import asyncio
from collections.abc import Callable

import anyio
import pytest

import aiofabric
from aiofabric import FabricConnectionEndedError, TruncatedMessageError, rpc
from aiofabric.rpc.protocol.connection import Connection
from aiofabric.rpc.protocol.frames import frame
from aiofabric.transport.messages.inbox import Inbox
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.peers import peers
from tests.fixtures.providers import Pair, over
from tests.fixtures.waiting import until
from tests.rpc.services import HANDLERS

pytestmark = pytest.mark.anyio
provider = over(["tcp"])

MANY = 300  # more than the receives of a connection
UNKNOWN_KIND = 200


class Failing:
    """Raises at each call, and counts."""

    def __init__(self, error: Callable[[], BaseException]) -> None:
        self.calls = 0
        self.error = error

    def __call__(self, *_: object) -> None:
        self.calls += 1
        raise self.error()


@pytest.mark.parametrize("anyio_backend", LOOPS[:1])
@pytest.mark.parametrize("reporting", [False, True], ids=["reported", "report fails"])
async def test_messages_arrive_after_a_sink_has_failed(
    pair: Pair, reporting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, seen = asyncio.get_running_loop(), []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    failing = Failing(lambda: LookupError("sink"))
    if reporting:
        monkeypatch.setattr(Inbox, "_sink_failed", Failing(lambda: LookupError("report")))
    async with pair() as (active, passive):
        passive.set_sink(failing)
        with anyio.fail_after(30):
            for _ in range(MANY):
                await active.send(b"x")
            await until(lambda: failing.calls == MANY)
            await until(lambda: len(seen) == MANY)
    loop.set_exception_handler(before)
    assert {repr(each) for each in seen} == {"LookupError('report')" if reporting else "LookupError('sink')"}


@pytest.mark.parametrize("anyio_backend", LOOPS[:1])
async def test_frames_arrive_after_a_connection_of_rpc_has_failed(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink of a connection of RPC is called by the native core."""
    loop, seen = asyncio.get_running_loop(), []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    failing, reporting = Failing(lambda: LookupError("frame")), Failing(lambda: LookupError("report"))
    monkeypatch.setattr(Connection, "_unknown", failing)
    monkeypatch.setattr(Connection, "_reading_failed", failing)
    monkeypatch.setattr(Inbox, "_sink_failed", reporting)
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen("127.0.0.1", 0, provider=provider)
        async with await aiofabric.connect(listener.address, provider=provider) as raw:
            with anyio.fail_after(30):
                for _ in range(MANY):
                    await raw.send(frame(UNKNOWN_KIND, 1, b""))
                await until(lambda: reporting.calls == MANY)
    loop.set_exception_handler(before)
    assert len(seen) == MANY


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("anyio_backend", LOOPS[:1])
async def test_ctrl_c_in_a_sink_ends_the_pass_and_not_the_connection(
    pair: Pair, error: Callable[[], BaseException]
) -> None:
    failing = Failing(error)
    async with pair() as (active, passive):
        passive.set_sink(failing)
        active.send_nowait(b"x")
        raised: list[BaseException] = []
        while not failing.calls:  # without the loop, which such an exception would end
            try:
                source_of(passive).drain()
            except BaseException as ended:
                raised.append(ended)
        assert [type(each) for each in raised] == [error]
        passive.set_sink(None)
        await active.send(b"y")
        assert await passive.recv() == b"y"


@pytest.mark.parametrize("anyio_backend", LOOPS[:1])
async def test_an_end_of_a_sink_that_fails_is_reported_and_the_connection_ends(pair: Pair) -> None:
    loop, seen = asyncio.get_running_loop(), []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    failing = Failing(lambda: LookupError("end"))
    async with pair() as (active, passive):
        passive.set_sink(print, failing)
        await active.aclose()
        await until(lambda: failing.calls)
        assert passive.state == "peer gone"
    loop.set_exception_handler(before)
    assert [repr(each) for each in seen] == ["LookupError('end')"]
    assert failing.calls == 1


async def test_a_sink_that_comes_after_the_end_gets_what_arrived_before_and_the_end(pair: Pair) -> None:
    arrived: list[object] = []
    async with pair() as (active, passive):
        await active.send(b"last")
        await active.aclose()
        await until(lambda: passive.state == "peer gone")
        passive.set_sink(lambda view: arrived.append(bytes(view)), lambda error: arrived.append(type(error)))
        assert arrived == [b"last", FabricConnectionEndedError]
        passive.set_sink(None)
        with pytest.raises(FabricConnectionEndedError):
            await passive.recv()
    assert len(arrived) == 2


@pytest.mark.parametrize("early", [True, False], ids=["sink first", "message first"])
async def test_a_sink_is_told_of_a_message_that_is_too_long(early: bool) -> None:
    async with peers("tcp;ofi_rxm", recv_size=64) as (one, other, there, _):
        arrived: list[object] = []

        def listen() -> None:
            other.set_sink(lambda view: arrived.append(bytes(view)), lambda error: arrived.append(type(error)))

        if early:
            listen()
        await one.send(bytes(65), to=there)
        if not early:
            await until(lambda: handle_of(other).pool.inbox)
            listen()
        await until(lambda: arrived)  # a later message may be lost: see the page of providers
        assert arrived == [TruncatedMessageError]
