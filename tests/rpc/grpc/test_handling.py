"""`HandlerPlan` in C handles a call as `handle` in Python does, which has all cases."""

# Privates: the plan of a server is private; it is replaced by the general path, to be compared with it.
# Doubles: the fast path is removed, so that the general path runs.

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import sys
import weakref
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric import _core
from aiofabric.rpc import grpc as aio
from aiofabric.rpc.grpc.server.server import Server
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

pytestmark = pytest.mark.anyio


class Awaitable:
    """Awaits another one, and is no coroutine."""

    def __init__(self, awaited: Any) -> None:
        self.awaited = awaited

    def __await__(self) -> Generator[Any, None, Any]:
        return self.awaited.__await__()  # type: ignore[no-any-return]


class Case:
    """A handler, what it saw, and what its client does."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.begun = asyncio.Event()

    async def handler(self, request: bytes, context: Any) -> Any:
        self.seen.append(request)
        return request

    deserializer: Callable[[bytes], Any] | None = None
    serializer: Callable[[Any], Any] | None = None

    async def client(self, call: Any) -> None:
        pass


class Waits(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        return request


class ReturnsText(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        return "text"


class ReturnsNonsense(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        return 5


class Converts(Case):
    deserializer = staticmethod(lambda data: data.decode())
    serializer = staticmethod(lambda text: text.encode())


class CannotDeserialize(Case):
    @staticmethod
    def deserializer(data: bytes) -> Any:
        raise LookupError("of the deserializer")


class CannotSerialize(Case):
    @staticmethod
    def serializer(message: Any) -> Any:
        raise LookupError("of the serializer")


class Raises(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        raise LookupError("at once")


class RaisesLater(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        await asyncio.sleep(0.01)
        raise LookupError("later")


class RaisesCancelledError(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        raise asyncio.CancelledError


class RaisesGeneratorExit(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        if request == b"second":
            await asyncio.sleep(0.01)
        raise GeneratorExit


class RaisesAnotherAbortError(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        raise grpc.aio.AbortError("not from abort")


class Aborts(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        await context.abort(grpc.StatusCode.ABORTED, "stop", (("key", "value"),))


class CatchesItsAbort(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        with suppress(grpc.aio.AbortError):
            await context.abort(grpc.StatusCode.ABORTED, "stop")
        return request


class SetsACode(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("not here")
        return 5  # it is not serialized


class SetsDetails(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        self.seen += [context.details(), context.code(), context.trailing_metadata()]
        context.set_details("fine")
        context.set_trailing_metadata((("key", "value"),))
        self.seen += [context.details(), context.code(), context.trailing_metadata()]
        return request


class SetsOnlyDetails(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        context.set_details("fine")
        return request


class SetsOnlyTrailers(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        context.set_trailing_metadata((("key", "value"),))
        return request


class UsesItsContextLater(Case):
    """In a task that goes on after the handler's return."""

    async def handler(self, request: bytes, context: Any) -> Any:
        self.later = asyncio.create_task(self.use(context))
        return request

    async def use(self, context: Any) -> None:
        await asyncio.sleep(0.01)
        for late in (lambda: context.write(b"late"), context.read, lambda: context.send_initial_metadata(())):
            try:
                await late()
            except grpc.aio.UsageError as error:
                self.seen.append(str(error))
        self.seen.append(context.done())

    async def client(self, call: Any) -> None:
        await call
        await self.later


class SendsMetadata(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        await context.send_initial_metadata((("key", "value"),))
        return request


class AnswersBefore(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        await context.write(b"written")
        return request


class ReadsOn(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        self.seen.append(await context.read() is aio.EOF)
        return request


class HasCallbacks(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        for number in range(2):

            def callback(each: Any, number: int = number) -> None:
                self.seen.append((number, each is context, each.done()))

            context.add_done_callback(callback)
        if request == b"raise":
            raise LookupError("on purpose")
        return request


class IsCancelled(Case):
    """By its client."""

    async def handler(self, request: bytes, context: Any) -> Any:
        context.add_done_callback(lambda each: self.seen.append(("called", each.cancelled())))
        self.begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.seen.append(repr(sys.exc_info()[1]))

    async def client(self, call: Any) -> None:
        await self.begun.wait()
        call.cancel()


class GoesOn(Case):
    """It continues although its client has cancelled."""

    async def handler(self, request: bytes, context: Any) -> Any:
        self.begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        self.seen.append(context.cancelled())
        await asyncio.sleep(0.01)
        return request

    client = IsCancelled.client


class ReturnsWhenCancelled(GoesOn):
    async def handler(self, request: bytes, context: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            return request


class CancelsItself(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)


class TimesOut(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)


class IsLarge(Case):
    async def handler(self, request: bytes, context: Any) -> Any:
        return bytes(500_000)


CASES = [Case, *Case.__subclasses__(), ReturnsWhenCancelled]


async def outcome(call: Any, case: Case) -> list[Any]:
    """Everything that the client can observe."""
    seen: list[Any] = []
    await case.client(call)
    try:
        seen += [await call, tuple(await call.initial_metadata()), tuple(await call.trailing_metadata())]
    except grpc.RpcError as error:
        seen += [error.code(), error.details(), tuple(error.trailing_metadata() or ())]
    except asyncio.CancelledError:
        seen.append("cancelled")
    return [*seen, await call.code(), await call.details()]


@asynccontextmanager
async def served(handler: Any, **codec: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A server whose method has a plan, and its multi-callable."""
    server: Any = aio.server()
    handlers = {"b": grpc.unary_unary_rpc_method_handler(handler, **codec)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        yield server, channel.unary_unary("/a/b")
    await server.stop(0)


async def observed(kind: type[Case], caplog: pytest.LogCaptureFixture, *, short: bool) -> list[Any]:
    """The observations of client, handler and log in three calls with this handler, and the number of calls left."""
    case, seen = kind(), list[Any]()
    caplog.clear()
    codec = {"request_deserializer": case.deserializer, "response_serializer": case.serializer}
    async with served(case.handler, **codec) as (server, method):
        for request in (b"first", b"second", b"raise"):  # the first one finds its handler, and makes the plan
            case.begun.clear()
            seen.append(await outcome(method(request), case))
        assert isinstance(server.plans["/a/b"], _core.HandlerPlan) is short
        await until(lambda: not server._core.tasks)
        # The client may have connected again, for example if its first connection was slow.
        seen.append(sum(transport.connection.running for transport in server._core.transports))
    return [*seen, case.seen, [record.getMessage() for record in caplog.records]]


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
async def test_a_plan_handles_calls_as_the_long_way_does(
    kind: type[Case], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.ERROR, logger="aiofabric")
    short = await observed(kind, caplog, short=True)
    # Without a TaskSet, which trio has not, every call is handled in Python.
    monkeypatch.setattr(sys.modules[Server.__module__], "TaskSet", type("None", (), {}))
    assert await observed(kind, caplog, short=False) == short
    assert short[3] == 0


@pytest.mark.parametrize("kind", [Awaitable, asyncio.ensure_future, None], ids=["awaitable", "future", "no awaitable"])
async def test_a_handler_may_return_any_awaitable(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def answer() -> bytes:
        await asyncio.sleep(0)
        return b"answer"

    def handler(request: bytes, context: Any) -> Any:
        return 5 if kind is None else kind(asyncio.ensure_future(answer()))

    async with served(handler) as (server, method):
        server._behaviours = Always(handler, "coroutine")
        for _ in range(2):
            if kind is None:
                with pytest.raises(grpc.RpcError, match="must return an awaitable, not int"):
                    await method(b"")
            else:
                assert await method(b"") == b"answer"
        assert isinstance(server.plans["/a/b"], _core.HandlerPlan)


class Always(dict[Any, tuple[Any, str]]):
    """Has the same for every handler: such as a wrapped one that says that it is a coroutine function."""

    def __init__(self, *found: Any) -> None:
        self.found: Any = found

    def __getitem__(self, key: Any) -> Any:
        return self.found


# -- the coroutine of a plan, step by step


class Rpc(_core.ServerRpcCore):
    """A call without a connection: it keeps how it was ended."""

    def __init__(self, first: bytes | None) -> None:
        super().__init__(self)
        self.first = first
        self.ends: list[Any] = []

    def conclude(self, message: bytes | None) -> None:
        self.ends.append(message)

    def respond(self, response: Any, serializer: Any) -> None:
        self.ends.append(("respond", response))


def plan_of(behaviour: Any, create_task: Any = None) -> _core.HandlerPlan:
    """A plan whose errors and callbacks are kept by the call."""

    def failed(rpc: Any, error: BaseException) -> bool:
        rpc.ends.append(type(error))
        return not isinstance(error, GeneratorExit | KeyboardInterrupt)

    def ended(rpc: Any) -> None:
        rpc.ends.append("callbacks")

    async def whole(rpc: Any) -> None:
        rpc.ends.append("whole")

    loop = asyncio.get_running_loop()
    tasks = _core.TaskSet(loop, create_task or loop.create_task, None, {}, [])
    context: Any = {}  # copied for each task
    return _core.HandlerPlan(behaviour, None, None, lambda *parts: parts, whole, failed, ended, tasks, context)


class Pauses:
    """Awaiting it yields once."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield "pause")


async def pausing(request: bytes, context: Any) -> Any:
    return await Pauses()


def begun(behaviour: Any = pausing) -> tuple[Any, Rpc]:
    rpc = Rpc(b"request")
    rpc.callbacks = [lambda: None]
    return plan_of(behaviour)(rpc), rpc


async def test_the_coroutine_of_a_plan_is_a_coroutine() -> None:
    coroutine, rpc = begun()
    is_coroutine: bool = asyncio.iscoroutine(coroutine)  # as a variable, it narrows no type
    assert is_coroutine
    assert (coroutine.__name__, coroutine.__qualname__) == ("pausing", "pausing")
    assert repr(coroutine).startswith("<coroutine of the handler pausing at 0x")
    assert coroutine.cr_code is pausing.__code__
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    with pytest.raises(TypeError, match="just-started"):
        coroutine.send(1)
    assert coroutine.send(None) == "pause"
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED
    assert coroutine.cr_frame.f_code is pausing.__code__
    assert coroutine.cr_code is pausing.__code__
    assert inspect.iscoroutine(coroutine.cr_await)
    with pytest.raises(RuntimeError, match="already"):
        coroutine.__await__()
    with pytest.raises(StopIteration) as stop:
        coroutine.send(b"sent")
    assert stop.value.value is None
    assert rpc.ends == [b"sent", "callbacks"]
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    with pytest.raises(RuntimeError, match="reuse"):
        coroutine.send(None)
    with pytest.raises(RuntimeError, match="reuse"):
        coroutine.throw(KeyError)
    coroutine.close()
    assert rpc.ends == [b"sent", "callbacks"]


@pytest.mark.parametrize("how", ["throw", "close"])
async def test_a_coroutine_that_has_not_begun_ends_without_its_handler(how: str) -> None:
    coroutine, rpc = begun()
    if how == "close":
        coroutine.close()
    else:
        with pytest.raises(KeyError):
            coroutine.throw(KeyError("thrown"))
    assert rpc.ends == []
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


async def test_what_is_thrown_reaches_the_handler() -> None:
    async def handler(request: bytes, context: Any) -> Any:
        try:
            await Pauses()
        except KeyError:
            await Pauses()
        return b"after all"

    coroutine, rpc = begun(handler)
    coroutine.send(None)
    assert coroutine.throw(KeyError("thrown")) == "pause"
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert rpc.ends == [b"after all", "callbacks"]

    coroutine, rpc = begun(pausing)
    coroutine.send(None)
    with pytest.raises(StopIteration):  # the call has ended with it
        coroutine.throw(LookupError("thrown"))
    assert rpc.ends == [LookupError, "callbacks"]

    coroutine, rpc = begun(pausing)
    coroutine.send(None)
    with pytest.raises(KeyboardInterrupt):
        coroutine.throw(KeyboardInterrupt())
    assert rpc.ends == [KeyboardInterrupt, "callbacks"]


async def test_a_handler_that_returns_when_something_is_thrown_answers() -> None:
    async def handler(request: bytes, context: Any) -> Any:
        try:
            await Pauses()
        except KeyError:
            return b"answer"

    coroutine, rpc = begun(handler)
    coroutine.send(None)
    with pytest.raises(StopIteration):
        coroutine.throw(KeyError)
    assert rpc.ends == [b"answer", "callbacks"]


class PlainIterator:
    """Its steps have no `throw`."""

    def __await__(self) -> Any:
        return iter(["pause"])


async def test_what_is_thrown_ends_an_awaitable_without_throw() -> None:
    coroutine, rpc = begun(lambda request, context: PlainIterator())
    assert coroutine.send(None) == "pause"
    with pytest.raises(StopIteration):  # the call has ended with it
        coroutine.throw(LookupError("thrown"))
    assert rpc.ends == [LookupError, "callbacks"]


@pytest.mark.parametrize("request_arrived", [True, False])
async def test_a_coroutine_whose_task_cannot_be_made_is_closed(request_arrived: bool) -> None:
    made: list[Any] = []
    failures: list[BaseException] = []

    def refuse(coroutine: Any, **options: Any) -> Any:
        made.append(coroutine)
        raise LookupError("no task")

    class Failing(Rpc):
        metadata = ()

        def release(self) -> None:
            pass

        def failed_to_begin(self, rpc: Any, error: BaseException) -> None:
            failures.append(error)

    rpc: Any = Failing(None)
    rpc.method, rpc.plans = "/a/b", {"/a/b": plan_of(pausing, refuse)}
    rpc.started(b"request" if request_arrived else None)
    (coroutine,) = made
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert [str(each) for each in failures] == ["no task"]
    assert rpc.task is None


@pytest.mark.parametrize("how", ["close", "collected"])
async def test_the_end_of_the_loop_closes_the_handler(how: str) -> None:
    seen: list[str] = []

    async def handler(request: bytes, context: Any) -> Any:
        try:
            await Pauses()
        finally:
            seen.append("finally")

    coroutine, rpc = begun(handler)
    coroutine.send(None)
    if how == "close":
        coroutine.close()
    del coroutine
    assert seen == ["finally"]
    assert rpc.ends == ["callbacks"]


async def test_a_handler_cannot_be_stepped_within_its_step() -> None:
    seen: list[str] = []

    async def handler(request: bytes, context: Any) -> Any:
        for again in (lambda: coroutine.send(None), lambda: coroutine.throw(KeyError), coroutine.close):
            try:
                again()
            except ValueError as error:
                seen.append(str(error))
        return b""

    coroutine, rpc = begun(handler)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert seen == ["coroutine already executing"] * 3
    assert rpc.ends == [b"", "callbacks"]


async def test_a_request_that_comes_later_is_handled_in_python() -> None:
    rpc = Rpc(None)
    await plan_of(pausing)(rpc)
    assert rpc.ends == ["whole"]


async def test_plans_and_calls_are_collected() -> None:
    coroutine, rpc = begun()
    coroutine.send(None)
    reference = weakref.ref(rpc)
    rpc.task = coroutine  # a cycle
    del coroutine, rpc
    gc.collect()
    assert reference() is None


async def test_objects_that_were_not_initialised_are_refused() -> None:
    plan = _core.HandlerPlan.__new__(_core.HandlerPlan)
    with pytest.raises(RuntimeError, match="not initialised"):
        plan(Rpc(b"")).close()
    call = _core.ServerRpcCore.__new__(_core.ServerRpcCore)
    with pytest.raises(RuntimeError, match="not initialised"):
        call.started(b"")
    with pytest.raises(TypeError):
        _core.HandlerPlan(*[None] * 9)  # type: ignore[arg-type]


def test_a_usual_call_of_a_server_needs_no_method_in_python() -> None:
    """`started`, which the connection calls, is C's, and so is the step of the handler."""
    from aiofabric.rpc.grpc.server.rpc import ServerRpc

    assert ServerRpc.started is _core.ServerRpcCore.started
    assert Server.run.__qualname__ == "Server.run"
