"""Promise: `send` and `recv` return an object that asyncio, anyio and trio take for a coroutine (`_core/base/call.c`).

Hazards: a message is sent before the call is awaited, a message is taken by a call that no task awaits any more, a
buffer is kept for longer than the call.
"""

# Privates: the moment before a call waits is a private method.
# Doubles: code runs at a moment that no public call reaches.

import asyncio
import gc
import inspect
import sys
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import EndpointType, MessageEndpoint
from aiofabric._core import ThreadCheck
from aiofabric.cq.loops.drivers import current_driver
from aiofabric.transport.interfaces import InboxBase
from aiofabric.transport.messages.inbox import Inbox
from aiofabric.transport.messages.receive import Receives
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import Pair, connected_pair

pytestmark = pytest.mark.anyio

SIZES = pytest.mark.parametrize("size", [64, 1 << 16], ids=["inject", "post"])

Made = Callable[[MessageEndpoint], Any]


def send(endpoint: MessageEndpoint) -> Any:
    return endpoint.send(b"unsent")


def recv(endpoint: MessageEndpoint) -> Any:
    return endpoint.recv()


EITHER = pytest.mark.parametrize("call", [send, recv])


class Left(Exception):
    """Why the caller does not wait any longer."""


def waiters(endpoint: MessageEndpoint) -> int:
    pool = handle_of(endpoint).pool
    assert pool is not None
    waiting: int = pool.waiting
    return waiting


def step(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The first step: what it waits for."""
    return coroutine.send(None)


@EITHER
async def test_it_is_a_coroutine_to_everybody(pair: Pair, call: Made) -> None:
    async with pair() as (active, _):
        made = call(active)
        try:
            assert made.__name__ in ("send", "recv", "_send")
            assert made.__qualname__ in ("Sends.send", "Receives.recv", "Sends._send")
            assert not made.cr_running
            assert made.cr_await is None
            assert weakref.ref(made)() is made
            assert isinstance(made, Coroutine)
            assert asyncio.iscoroutine(made)
            assert inspect.isawaitable(made)
        finally:
            made.close()


@pytest.mark.parametrize("name", ["send", "recv", "send_tagged"])
def test_the_functions_are_coroutine_functions(name: str) -> None:
    owner = aiofabric.RdmEndpoint if name == "send_tagged" else MessageEndpoint
    asks = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction
    assert asks(getattr(owner, name))


@EITHER
async def test_nothing_happens_before_it_is_awaited_and_who_forgets_to_is_told(pair: Pair, call: Made) -> None:
    async with pair() as (active, passive):
        await passive.send(b"still there")
        with pytest.warns(RuntimeWarning, match=r"coroutine '.*(send|recv)' was never awaited"):
            call(active)  # no reference is kept
        await active.send(b"the first that is sent")
        with anyio.fail_after(5):
            assert await passive.recv() == b"the first that is sent"
            assert await active.recv() == b"still there"


async def test_errors_belong_to_who_awaits(pair: Pair) -> None:
    """As of any coroutine: a task that is made of it has them, not who makes the task."""
    async with pair() as (active, _):
        calls: list[Any] = [active.send(object()), active.recv(10), active.send(b"", to=object())]  # type: ignore[arg-type]
        for made in calls:
            with pytest.raises(TypeError):
                await made
        pending: list[Any] = [active.send(b"late"), active.recv()]
    for made in (*pending, active.send(b"later"), active.recv()):
        with pytest.raises(ClosedResourceError):
            await made


@SIZES
async def test_tasks_are_made_of_it(pair: Pair, size: int) -> None:
    got: list[bytes] = []

    async def receive(endpoint: MessageEndpoint) -> None:
        got.append(await endpoint.recv())

    async with pair() as (active, passive):
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(receive, passive)
                group.start_soon(partial(active.send, bytes(size)))
    assert got == [bytes(size)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@SIZES
async def test_asyncio_takes_it_wherever_it_takes_a_coroutine(pair: Pair, size: int) -> None:
    message = b"m" * size
    async with pair() as (active, passive):
        receiving = asyncio.create_task(passive.recv())
        assert "recv" in repr(receiving)
        assert await asyncio.gather(active.send(message), receiving) == [None, message]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(passive.recv(), 0.01)
        await asyncio.wait_for(active.send(message), 5)
        assert await asyncio.wait_for(asyncio.shield(passive.recv()), 5) == message
        assert waiters(passive) == 0


@pytest.mark.parametrize(
    "data", [b"small", b"", bytes(1 << 16), [b"several ", b"pieces"]], ids=["small", "0", "64K", "[]"]
)
async def test_sending_returns_nothing(pair: Pair, data: Any) -> None:
    async with pair() as (active, passive):
        result = await active.send(data)  # type: ignore[func-returns-value]
        assert result is None
        assert await passive.recv() == b"".join([data] if isinstance(data, bytes) else data)


@EITHER
async def test_it_is_awaited_once(pair: Pair, call: Made) -> None:
    async with pair() as (active, passive):
        await passive.send(b"for the first time")
        made = call(active)
        with anyio.fail_after(5):
            await made
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await made


async def test_hazard_second_task_that_awaits_it_takes_nothing_from_the_first(pair: Pair) -> None:
    got: list[bytes] = []

    async def first() -> None:
        got.append(await receiving)

    async with pair() as (active, passive):
        receiving = passive.recv()
        async with anyio.create_task_group() as group:
            group.start_soon(first)
            await anyio.wait_all_tasks_blocked()
            assert waiters(passive) == 1
            with pytest.raises(RuntimeError, match="being awaited already"):
                await receiving
            await active.send(b"message")
        assert got == [b"message"]


def thrown(made: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(Left):
        made.throw(Left())


def closed(made: Coroutine[Any, Any, Any]) -> None:
    made.close()


@pytest.mark.parametrize("way", [thrown, closed])
async def test_who_leaves_before_it_has_begun_does_nothing(pair: Pair, way: Callable[[Any], None]) -> None:
    async with pair() as (active, passive):
        for made in (active.send(b"unsent"), active.recv()):
            way(made)
            with pytest.raises(RuntimeError, match="cannot reuse"):
                await made
            with pytest.raises(RuntimeError, match="cannot reuse"):
                made.throw(Left())
            made.close()
        await active.send(b"sent")
        await passive.send(b"kept")
        with anyio.fail_after(5):
            assert await passive.recv() == b"sent"
            assert await active.recv() == b"kept"


@EITHER
async def test_hazard_value_for_one_that_has_not_begun_sends_nothing(pair: Pair, call: Made) -> None:
    async with pair() as (active, passive):
        made = call(active)
        with pytest.raises(TypeError, match="just-started coroutine"):
            made.send(1)
        made.close()
        await active.send(b"sent")
        assert await passive.recv() == b"sent"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("way", [thrown, closed])
async def test_who_leaves_while_it_waits_takes_no_message_along(pair: Pair, way: Callable[[Any], None]) -> None:
    async with pair() as (active, passive):
        receiving = passive.recv()
        step(receiving)
        assert waiters(passive) == 1
        way(receiving)
        assert waiters(passive) == 0
        await active.send(b"the next one's")
        with anyio.fail_after(5):
            assert await passive.recv() == b"the next one's"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_hazard_who_is_dropped_with_a_message_in_hand_gives_it_back_at_once(pair: Pair) -> None:
    """Although a pass still refers to its waiter: the next receive would get the message after it."""
    async with pair() as (active, passive):
        pool: Any = handle_of(passive).pool
        await active.send(b"first")
        with anyio.fail_after(5):
            while not pool.inbox:
                await anyio.lowlevel.checkpoint()
        item = pool.first()
        receiving = passive.recv()
        step(receiving)
        pool.hand_out(item)
        assert len(pool.inbox) == 0
        del receiving
        assert len(pool.inbox) == 1
        await active.send(b"second")
        with anyio.fail_after(5):
            assert [await passive.recv(), await passive.recv()] == [b"first", b"second"]


@SIZES
async def test_hazard_buffer_is_the_callers_when_it_returns(pair: Pair, size: int) -> None:
    """Although the call is kept: a bytearray cannot be resized while an export of it exists."""
    data = bytearray(size)
    async with pair() as (active, passive):
        made = active.send(data)
        await made
        data.append(0)
        gone = active.send(data)
        thrown(gone)
        data.append(0)
        assert await passive.recv() == bytes(size)


@SIZES
async def test_hazard_endpoint_that_nobody_else_keeps_lives_until_it_is_sent(pair: Pair, size: int) -> None:
    async with pair() as (active, passive):
        made = active.send(bytes(size))
        frame = made.cr_frame if inspect.iscoroutine(made) else None
        kept = frame.f_locals.values() if frame else gc.get_referents(made)
        assert any(each is active for each in kept)
        await made
        assert len(await passive.recv()) == size


class Meddler:
    """A receiver that closes the call inside one of its steps."""

    def __init__(self, pool: InboxBase, how: str, where: str) -> None:
        self.pool, self.how, self.where = pool, how, where
        self.errors: list[str] = []
        self.call: Any = pool.receiving(self, ThreadCheck())  # it refuses every message, so it calls the receiver

    def meddle(self) -> None:
        try:
            if self.how == "close":
                self.call.close()
            elif self.how == "throw":
                self.call.throw(Left())
            else:
                self.call.send(None)
        except ValueError as error:
            self.errors.append(str(error))
        gc.collect()

    def _check_receivable(self) -> None:
        if self.where == "its first step":
            self.meddle()
        self.pool.ended = Left  # something comes before waiting: `_next_after`

    async def before_waiting(self, _: Inbox) -> None:
        if self.where == "what it awaits":
            self.meddle()
            assert self.call.cr_await is not None, "freed while it runs"
        self.pool.ended = None
        raise Left


async def ends_a_call_from_within(parent: Parent, how: str, where: str) -> list[str]:
    async with connected_pair("tcp") as (_, passive):
        assert handle_of(passive).pool is not None
        meddler = Meddler(handle_of(passive).pool, how, where)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Inbox, "_before_waiting", lambda pool: meddler.before_waiting(pool))
            with pytest.raises(Left):
                await meddler.call
    return meddler.errors


@pytest.mark.parametrize("where", ["its first step", "what it awaits"])
@pytest.mark.parametrize("how", ["close", "throw", "send"])
def test_hazard_call_that_is_running_is_not_ended_from_within(
    anyio_backend: object, child: Callable[..., Child], how: str, where: str
) -> None:
    """The objects of a running step are in use; before, they were freed."""
    assert child(ends_a_call_from_within, how, where).result() == ["coroutine already executing"]


async def test_calls_leave_nothing_behind(pair: Pair) -> None:
    def calls() -> int:
        gc.collect()
        return sum(type(each).__name__ == "Call" for each in gc.get_objects())

    before = calls()  # another test of this process may have left a task
    async with pair() as (active, passive):
        for round_ in range(3):
            for _ in range(200):
                await active.send(b"message")
                await passive.recv()
                passive.recv().close()
            assert calls() <= before, round_


def test_what_is_called_says_what_it_takes() -> None:
    """As functions do, for `help`, editors and mocks."""
    send, recv = inspect.signature(MessageEndpoint.send), inspect.signature(MessageEndpoint.recv)
    assert list(send.parameters) == ["self", "data", "to", "remote_data", "flags"]
    assert [each for each in send.parameters.values() if each.kind is each.KEYWORD_ONLY] == list(
        send.parameters.values()
    )[2:]
    assert list(recv.parameters) == ["self", "max_bytes"]
    for each in (MessageEndpoint.send, MessageEndpoint.recv):
        assert inspect.isfunction(each)
        assert each.__doc__
        assert "Man page: fi_msg" in each.__doc__
        assert each.__module__.startswith("aiofabric.transport")
    assert isinstance(create_autospec(MessageEndpoint).send, AsyncMock)


async def test_it_is_called_in_any_way_that_a_method_is(pair: Pair) -> None:
    async with pair() as (active, passive):
        send, recv = active.send, passive.recv
        assert send.__self__ is active  # type: ignore[attr-defined]
        assert (send.__name__, recv.__name__) == ("send", "recv")
        await send(b"bound")
        assert await recv() == b"bound"
        await MessageEndpoint.send(active, b"unbound")
        assert await MessageEndpoint.recv(passive) == b"unbound"
        await active.send(data=b"named")
        assert await passive.recv(max_bytes=None) == b"named"
        await active.send(*(b"star",), **{})
        assert await passive.recv() == b"star"


@pytest.mark.parametrize(
    ("method", "args"),
    [
        (MessageEndpoint.send, ()),
        (MessageEndpoint.send, (object(), b"", None)),
        (MessageEndpoint.recv, ()),
        (MessageEndpoint.recv, (object(), 1, 2)),
    ],
)
def test_arguments_that_it_does_not_take(method: Callable[..., Any], args: Any) -> None:
    with pytest.raises(TypeError, match="argument"):
        method(*args)


async def test_hazard_object_that_is_no_endpoint(pair: Pair) -> None:
    """The parts of an endpoint are not read from an object of another type."""
    fast_path = MessageEndpoint.__dict__["send"], Receives.__dict__["recv"]

    class Other:
        _handle = None

    async with pair() as (active, passive):
        await active.send(b"the usual one")
        for unknown in (object(), Other(), 1, active.domain, b""):
            for method, args in zip(fast_path, ((b"",), ()), strict=True):
                with pytest.raises((AttributeError, TypeError)):
                    await method(unknown, *args)
        assert await passive.recv() == b"the usual one"


def functions_run_by(call: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[Coroutine[Any, Any, Any], list[str]]:
    """The coroutine that ``call`` returns, and the names of the functions in Python that ran until then."""
    names: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        coroutine = call()
    finally:
        sys.setprofile(None)
    return coroutine, names


async def test_the_usual_calls_run_no_function_of_python(pair: Pair) -> None:
    async with pair() as (active, passive):
        sending, ran = functions_run_by(partial(active.send, b"hello"))
        await sending
        assert ran == (["send"] if current_driver().checkpoint_if_cancelled else [])
        receiving, ran = functions_run_by(passive.recv)
        assert await receiving == b"hello"
        assert ran == []


async def test_one_who_inherits_may_have_a_send_of_its_own(pair: Pair) -> None:
    class Shouting(MessageEndpoint):
        __slots__ = ()

        async def send(self, data: Any, **kwargs: Any) -> None:
            await super().send(data.upper(), **kwargs)

        async def recv(self, max_bytes: int | None = None) -> Any:
            return (await super().recv()).lower()

    async with pair() as (active, passive):
        active.__class__ = passive.__class__ = Shouting
        await active.send(b"Hello")
        assert await MessageEndpoint.recv(passive) == b"HELLO"
        await active.send(b"Hello")
        assert await passive.recv() == b"hello"
        active.__class__ = passive.__class__ = MessageEndpoint
        await active.send(b"Hello")
        assert await passive.recv() == b"Hello"


async def test_connectionless_endpoints_are_told_whom_to_send_to_when_they_await() -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider="tcp;ofi_rxm") as endpoint:
        made = endpoint.send(b"to nobody")
        with pytest.raises(TypeError, match="to="):
            await made


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_its_state_can_be_inspected(pair: Pair) -> None:
    async with pair() as (active, passive):
        call: Any = passive.recv()
        assert inspect.getcoroutinestate(call) == inspect.CORO_CREATED
        assert inspect.getcoroutinelocals(call) == {}
        task = asyncio.ensure_future(call)
        assert len(task.get_stack()) == 1
        assert "recv" in repr(task)
        await anyio.wait_all_tasks_blocked()
        assert inspect.getcoroutinestate(call) == inspect.CORO_SUSPENDED
        assert task.get_stack() == []
        await active.send(b"it")
        await task
        assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED
