"""The fast paths in C of unary calls do the same as the methods in Python, which have all cases.

`StubCore` begins a call, `ResponseCore` awaits its response, and a `Plan` runs its handler.
"""

# Privates: the fast paths are private; the general ones are called directly, to be compared with them.
# Doubles: each use of a general path is recorded.

from __future__ import annotations

import asyncio
import gc
import select
import time
import weakref
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric import _core
from aiofabric.rpc import grpc as aio
from aiofabric.rpc.grpc.client.calls import OneResponse
from aiofabric.rpc.grpc.client.multicallable import UnaryUnaryMultiCallable
from aiofabric.rpc.grpc.client.rpc import ClientRpc
from aiofabric.rpc.grpc.server.server import Server
from tests.fixtures.waiting import until
from tests.rpc.grpc import interop_server
from tests.rpc.grpc.generated import pb2, pb2_grpc
from tests.rpc.grpc.service import Interop, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from tests.fixtures.children import Child

pytestmark = pytest.mark.anyio


class LongWay:
    """A multi-callable and its calls, by the methods in Python."""

    def __init__(self, multi_callable: Any) -> None:
        self.multi_callable = multi_callable

    def __call__(self, request: Any) -> Any:
        return self.multi_callable._begin_call(request)


class Awaited:
    """Awaits a call by the method in Python."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __await__(self) -> Generator[Any, None, Any]:
        return self.call._wait()  # type: ignore[no-any-return]


class Kinds(Interop):
    """The text of a request says how the handler ends."""

    async def Unary(self, request: Any, context: Any) -> Any:
        text = request.status.text
        if text == "raises":
            raise LookupError("on purpose")
        if text == "headers":
            await context.send_initial_metadata((("first", "1"),))
        if text == "trailers":
            context.set_trailing_metadata((("last", "2"),))
        if text == "code":
            context.set_code(grpc.StatusCode.NOT_FOUND)
            context.set_details("not here")
        if text == "aborts":
            await context.abort(grpc.StatusCode.ABORTED, "stop")
        if text == "cancels":
            context.cancel()
            await asyncio.sleep(60)
        if text == "late":
            await asyncio.sleep(0.02)
        return pb2.Response(body=bytes(request.size))


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Any, Any, Any]]:
    """A server, a connected channel, and its stub."""
    async with (
        started(aio, Kinds()) as (server, target),
        aio.insecure_channel(target) as channel,
    ):
        stub = pb2_grpc.InteropStub(channel)
        for _ in range(2):  # the first call connects, and the second one defines the name of the method
            await stub.Unary(pb2.Request())
        yield server, channel, stub


def running(channel: Any) -> int:
    return len(channel.core.calls)


TEXTS = ["", "raises", "headers", "trailers", "code", "aborts", "cancels", "late"]
SIZES = [0, 64, 16_384, 16_385, 200_000]
USES = ["at once", "later", "twice", "by two tasks", "cancelled", "cancelled call", "callback", "code first", "timeout"]


async def seen_of(begin: Any, wrap: Any, request: Any, use: str) -> list[Any]:
    """Everything that a program can observe of a call."""
    call = begin(request)
    seen: list[Any] = []
    if use == "later":
        await asyncio.sleep(0.05)
    if use == "callback":
        call.add_done_callback(lambda each: seen.append(("called", each is call)))
    if use == "cancelled call":
        seen.append(("cancel", call.cancel()))
    if use == "code first":
        seen.append(await call.code())

    async def response() -> Any:
        try:
            return (await wrap(call)).body
        except grpc.RpcError as error:
            return type(error), error.code(), error.details()
        except asyncio.CancelledError:
            return "cancelled"

    if use == "cancelled":
        task = asyncio.create_task(response())
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            seen.append(await task)
    elif use == "by two tasks":
        seen.append(await asyncio.gather(response(), response()))
    elif use == "timeout":
        try:
            async with asyncio.timeout(0):
                seen.append(await response())
        except TimeoutError:
            seen.append("timeout")
    else:
        seen.append(await response())
        if use == "twice":
            seen.append(await response())
    seen += [call.done(), call.cancelled(), await call.code(), await call.details()]
    with suppress(asyncio.CancelledError, grpc.RpcError):  # of a call that was cancelled here
        seen += [tuple(await call.initial_metadata()), tuple(await call.trailing_metadata())]
    seen += [call.cancel(), repr(call)]
    return seen


@pytest.mark.parametrize("use", USES)
async def test_the_fast_paths_do_the_same_as_the_general_ones(use: str) -> None:
    async with served() as (server, channel, stub):
        for text in ["late"] if use in ("cancelled", "timeout") else TEXTS:  # others may answer before that
            for size in SIZES if use == "at once" and not text else SIZES[:1]:
                request = pb2.Request(size=size)
                request.status.text = text
                short = await seen_of(stub.Unary, lambda call: call, request, use)
                long = await seen_of(LongWay(stub.Unary), Awaited, request, use)
                assert short == long, (text, size)
        await until(lambda: not running(channel))
        await until(lambda: not server._core.tasks)


async def test_a_usual_call_takes_the_fast_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as (_, _, stub):

        def taken(*_: Any, **__: Any) -> Any:
            pytest.fail("the general path was taken")

        monkeypatch.setattr(UnaryUnaryMultiCallable, "_begin_call", taken)
        monkeypatch.setattr(OneResponse, "_wait", taken)
        monkeypatch.setattr(ClientRpc, "answered", taken)
        monkeypatch.setattr(ClientRpc, "begin", taken)
        monkeypatch.setattr(Server, "begin", taken)
        for _ in range(3):
            assert (await stub.Unary(pb2.Request(size=7))).body == bytes(7)


async def test_the_steps_of_an_await_are_as_those_of_a_generator() -> None:
    async with served() as (_, channel, stub):
        for wrap in (lambda call: call, Awaited):
            request = pb2.Request(wait_ms=60_000)
            call = stub.Unary(pb2.Request())
            steps = wrap(call).__await__()
            assert iter(steps) is steps
            steps.close()  # before the first step
            with pytest.raises((StopIteration, RuntimeError)):
                steps.send(None)
            steps = wrap(call).__await__()
            with pytest.raises(ValueError, match="thrown"):
                steps.throw(ValueError("thrown"))
            assert (await call).body == b""

            request.status.text = "late"
            call = stub.Unary(request)
            steps = wrap(call).__await__()
            # None: the loop must iterate first, because other tasks had work in the last iterations
            assert steps.send(None) is not None or steps.send(None) is not None
            with pytest.raises(ValueError, match="thrown"):
                steps.throw(ValueError("thrown"))
            assert not call.done()
            assert call._rpc._receiver is None
            steps = wrap(call).__await__()
            steps.send(None)
            steps.close()
            assert call._rpc._receiver is None
            assert (await call).body == b""

            call = stub.Unary(request)
            steps = wrap(call).__await__()
            steps.send(None)
            with pytest.raises(asyncio.CancelledError):
                steps.throw(asyncio.CancelledError())
            assert call.cancelled()
            await until(lambda: not running(channel))


async def test_an_await_that_is_collected_leaves_the_call_to_others() -> None:
    async with served() as (_, _, stub):
        request = pb2.Request()
        request.status.text = "late"
        call = stub.Unary(request)
        steps = call.__await__()
        steps.send(None)
        assert call._rpc._receiver is not None
        del steps
        gc.collect()
        assert call._rpc._receiver is None
        assert (await call).body == b""


def source_of(call: Any) -> Any:
    return call._rpc.connection.transport.source


async def test_an_await_may_let_the_loop_go_round_first() -> None:
    async with served() as (_, _, stub):
        for end in ("close", "throw", "delete", "finish"):
            request = pb2.Request()
            request.status.text = "late"
            call = stub.Unary(request)
            source = source_of(call)
            source._others_woken = source.must_iterate = (
                True  # as after a poll that was refused so that the loop can iterate
            )
            steps = call.__await__()
            assert steps.send(None) is None
            assert source._yielding == 1
            if end == "close":
                steps.close()
            elif end == "throw":
                with pytest.raises(ValueError, match="thrown"):
                    steps.throw(ValueError("thrown"))
            elif end == "delete":
                del steps
                gc.collect()
            else:
                await until(call.done)
                with pytest.raises(StopIteration) as response:
                    steps.send(None)
                assert response.value.value.body == b""
            assert source._yielding == 0
            assert call._rpc._receiver is None
            assert (await call).body == b""


async def test_after_many_responses_in_a_row_other_tasks_run_first(
    child: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = child(interop_server.serve, "tcp")
    target = await server.areceive()
    later = []
    outcome_later = OneResponse._outcome_later

    def spied(call: Any) -> Any:
        later.append(call)
        return outcome_later(call)

    monkeypatch.setattr(OneResponse, "_outcome_later", spied)
    async with aio.insecure_channel(target) as channel:
        stub = pb2_grpc.InteropStub(channel)
        await stub.Unary(pb2.Request())
        for _ in range(1000):
            call = stub.Unary(pb2.Request(size=3))
            select.select([], [], [], 0.001)  # the other process answers meanwhile, and the await's poll finds it
            source = source_of(call)
            source.iteration_began, source.streak = time.monotonic_ns(), _core.STREAK  # as if the loop had iterated now
            assert (await call).body == bytes(3)
            if later:
                break
        assert later


async def test_all_tasks_that_wait_for_a_call_get_its_response() -> None:
    async with served() as (_, _, stub):
        request = pb2.Request()
        request.status.text = "late"
        call = stub.Unary(request)

        async def wait() -> Any:
            return (await call).body

        tasks = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        steps = call.__await__()  # elsewhere: another task is the receiver
        steps.send(None)
        steps.close()
        assert await asyncio.gather(*tasks) == [b""] * 3


async def test_a_task_that_is_cancelled_while_others_wait_cancels_the_call() -> None:
    async with served() as (_, _, stub):
        request = pb2.Request()
        request.status.text = "late"
        call = stub.Unary(request)

        async def wait() -> Any:
            return await call

        tasks = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in results] == [asyncio.CancelledError] * 3
        assert call.cancelled()


async def test_a_stub_of_another_loop_is_refused_in_the_same_way() -> None:
    async with served() as (_, channel, stub):

        async def call(begin: Any) -> Any:
            return await begin(pb2.Request())

        errors = []
        for begin in (stub.Unary, stub.Unary._begin_call):
            with pytest.raises(Exception, match="loop") as raised:
                await asyncio.to_thread(asyncio.run, call(begin))
            errors.append((raised.type, str(raised.value)))
        assert errors[0] == errors[1]
        with pytest.raises(Exception, match="loop"):
            await asyncio.to_thread(stub.Unary, pb2.Request())
        assert not running(channel)
        assert (await stub.Unary(pb2.Request())).body == b""


METHOD = "/" + pb2.DESCRIPTOR.services_by_name["Interop"].full_name + "/Unary"


async def test_a_serializer_that_fails_ends_the_call_and_no_other() -> None:
    async with served() as (_, channel, _):

        def serialize(request: Any) -> Any:
            if isinstance(request, BaseException):
                raise request
            return request

        multi_callable = channel.unary_unary(METHOD, request_serializer=serialize)
        assert await multi_callable(b"") == b""  # now it takes the fast path
        for request, error in ((LookupError("on purpose"), LookupError), (5, TypeError)):
            call = multi_callable(request)
            assert call.done()
            assert await call.code() is grpc.StatusCode.INTERNAL
            with pytest.raises(error):
                await call
        for interrupt in (KeyboardInterrupt(), asyncio.CancelledError()):
            with pytest.raises(type(interrupt)):
                multi_callable(interrupt)
        assert await multi_callable(b"") == b""
        assert not running(channel)


async def test_a_serializer_may_call_and_may_close_the_channel() -> None:
    async with served() as (_, channel, _):
        actions: list[Any] = []
        made: list[Any] = []

        def serialize(request: bytes) -> bytes:
            if actions:
                made.append(actions.pop()())
            return request

        multi_callable = channel.unary_unary(METHOD, request_serializer=serialize)
        assert await multi_callable(b"") == b""  # now it takes the fast path
        actions.append(lambda: multi_callable(b""))
        assert [await multi_callable(b""), await made.pop()] == [b"", b""]
        actions.append(channel.core.abort)
        call = multi_callable(b"")
        assert await call.code() is grpc.StatusCode.CANCELLED
        with pytest.raises((asyncio.CancelledError, grpc.RpcError)):
            await call
        assert not running(channel)


async def test_a_deserializer_that_raises_is_called_again_by_the_next_await() -> None:
    async with served() as (_, channel, _):
        results: list[Any] = [LookupError("first"), "second"]

        def deserialize(_: bytes) -> Any:
            result = results.pop(0)
            if isinstance(result, Exception):
                raise result
            return result

        call = channel.unary_unary(METHOD, response_deserializer=deserialize)(b"")
        with pytest.raises(LookupError, match="first"):
            await call
        assert [await call, await call] == ["second", "second"]


async def test_a_close_with_grace_waits_for_calls_of_the_fast_path() -> None:
    async with started(aio, Kinds()) as (_, target):
        channel = aio.insecure_channel(target)
        stub = pb2_grpc.InteropStub(channel)
        await stub.Unary(pb2.Request())
        request = pb2.Request()
        request.status.text = "late"
        call = stub.Unary(request)
        await channel.close(5.0)
        assert call.done()
        assert (await call).body == b""


async def test_calls_beyond_the_servers_limit_follow_when_others_have_ended() -> None:
    async with (
        started(aio, Kinds(), options=[("grpc.max_concurrent_streams", 2)]) as (_, target),
        aio.insecure_channel(target) as channel,
    ):
        stub = pb2_grpc.InteropStub(channel)
        for _ in range(2):
            await stub.Unary(pb2.Request())
        request = pb2.Request(size=5)
        request.status.text = "late"
        responses = await asyncio.gather(*(stub.Unary(request) for _ in range(9)))
        assert [len(each.body) for each in responses] == [5] * 9


async def test_the_last_call_of_a_connection_that_drains_ends_it() -> None:
    async with served() as (server, _, stub):
        request = pb2.Request()
        request.status.text = "late"
        call = stub.Unary(request)
        (transport,) = server._core.transports
        await until(lambda: server._core.tasks)
        transport.connection.drain()
        await call
        await until(lambda: transport not in server._core.transports)
        assert (await stub.Unary(pb2.Request(size=5))).body == bytes(5)  # on a new connection


async def test_a_done_callback_that_is_added_while_the_call_runs_is_called() -> None:
    async with served() as (_, _, stub):
        request = pb2.Request()
        request.status.text = "late"
        call = stub.Unary(request)
        seen: list[Any] = []

        async def wait() -> Any:
            return await call

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        call.add_done_callback(seen.append)
        await task
        assert seen == [call]


async def test_calls_stubs_and_channels_are_collected() -> None:
    async with started(aio, Kinds()) as (_, target):

        async def use() -> list[weakref.ref[Any]]:
            channel = aio.insecure_channel(target)
            stub = pb2_grpc.InteropStub(channel)
            call = stub.Unary(pb2.Request())
            await call
            kept = stub.Unary(pb2.Request())
            kept.add_done_callback(lambda _: kept)  # a cycle
            await kept
            references = [weakref.ref(each) for each in (channel, call, kept, call._rpc)]
            await channel.close()
            return references

        references = await use()
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0)
        assert [each() for each in references] == [None] * 4


async def test_an_object_that_was_not_initialised_is_refused() -> None:
    call = _core.ResponseCore.__new__(_core.ResponseCore)
    with pytest.raises(RuntimeError, match="not initialised"):
        call.__await__()
    with pytest.raises(RuntimeError, match="not initialised"):
        call._outcome()
    tasks = _core.TaskSet.__new__(_core.TaskSet)
    coroutine = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="not initialised"):
        tasks.start(coroutine)
    coroutine.close()


async def test_an_await_that_is_closed_during_its_own_poll_takes_no_step() -> None:
    async with served() as (_, _, stub):
        await stub.Unary(pb2.Request())
        while not await _closed_during_its_own_poll(stub):  # on a busy machine, it may let the loop iterate instead
            pass


async def _closed_during_its_own_poll(stub: Any) -> bool:
    """Whether the await polled. Then it has ended."""
    first, second = stub.Unary(pb2.Request()), stub.Unary(pb2.Request())  # the second one's frame waits
    connection = second._rpc.connection
    if not connection.output:  # the loop was late, so that frames leave one by one for a while
        await first
        await second
        return False
    flush, steps = connection.flush, second.__await__()
    polled = False

    def close_and_flush() -> None:
        nonlocal polled
        polled = True
        steps.close()
        flush()

    connection.flush = close_and_flush
    refused = ""
    try:
        steps.send(None)
    except RuntimeError as error:
        refused = str(error)
    assert ("expected an await that has not ended" in refused) == polled
    steps.close()
    connection.flush = flush
    await first
    await second
    return polled
