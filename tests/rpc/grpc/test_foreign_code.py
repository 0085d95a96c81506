"""An error of a program's callback, handler or serializer affects its own call only. Independent testers found each
case.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric import WrongThreadError
from aiofabric.rpc import grpc as aio
from tests.fixtures.children import run_in_child
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.anyio


class Foreign(BaseException):
    """No Exception."""


async def echo(request: bytes, context: Any) -> bytes:
    return request


async def never(request: bytes, context: Any) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc, name-defined, unused-ignore]
    """`/a/bad` is what the test wants, `/a/never` never ends, and everything else echoes."""

    def __init__(self, bad: Callable[[], Any] = lambda: None) -> None:
        self.bad = bad

    def service(self, details: Any) -> Any:
        if details.method == "/a/bad":
            return self.bad()
        return grpc.unary_unary_rpc_method_handler(never if details.method == "/a/never" else echo)


@asynccontextmanager
async def served(handlers: Any) -> AsyncIterator[tuple[Any, Any]]:
    server: Any = aio.server()
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(2):
            await channel.unary_unary("/a/echo")(b"")
        yield server, channel
    await server.stop(0)


def raising(error: BaseException) -> Any:
    def function(*_: Any) -> Any:
        raise error

    return function


ERRORS = [LookupError("on purpose"), asyncio.CancelledError(), Foreign("on purpose")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("end", ["answers", "deadlines", "stop", "close"])
async def test_a_done_callback_that_raises_leaves_all_other_calls_their_end(error: BaseException, end: str) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    async with served(Handlers()) as (server, channel):
        method = channel.unary_unary("/a/echo" if end == "answers" else "/a/never")
        calls = [method(b"%d" % number, timeout=0.05 if end == "deadlines" else None) for number in range(32)]
        called: list[Any] = []
        for call in calls[::8]:
            call.add_done_callback(raising(error))
            call.add_done_callback(called.append)
        if end == "stop":
            await until(lambda: len(server._core.tasks) == 32)
            await server.stop(0)
        elif end == "close":
            await channel.close()
        async with asyncio.timeout(10):
            codes = {await call.code() for call in calls}
        expected = {"answers": "OK", "deadlines": "DEADLINE_EXCEEDED", "stop": "UNAVAILABLE", "close": "CANCELLED"}
        assert codes == {grpc.StatusCode[expected[end]]}
        assert len(called) == 4
        assert set(called) == set(calls[::8])
        assert reported == [error] * 4


async def test_a_done_callback_of_a_handler_that_raises_is_the_last_one() -> None:
    reported: list[Any] = []
    called: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

    async def handler(request: bytes, context: Any) -> bytes:
        for callback in (called.append, raising(error), called.append):
            context.add_done_callback(callback)
        return request

    error = LookupError("on purpose")
    async with served(Handlers(lambda: grpc.unary_unary_rpc_method_handler(handler))) as (server, channel):
        assert await channel.unary_unary("/a/bad")(b"x") == b"x"
        await until(lambda: not server._core.tasks)
        assert (len(called), reported) == (1, [error])


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit"])
def test_an_interrupt_in_a_done_callback_ends_the_program(loop: str, error: str) -> None:
    ended = run_in_child(
        f"""
        import asyncio, uvloop
        from aiofabric.rpc import grpc as aio
        from tests.rpc.grpc.test_foreign_code import Handlers, served

        def callback(call):
            raise {error}(5)

        async def main():
            async with served(Handlers()) as (server, channel):
                calls = [channel.unary_unary("/a/echo")(b"x") for _ in range(4)]
                calls[1].add_done_callback(callback)
                try:
                    await asyncio.sleep(30)
                finally:
                    print([call.done() for call in calls])

        try:
            {loop}.run(main())
        except {error} as error:
            print("ended with", error)
        """
    )
    assert ended.out == "[True, True, True, True]\nended with 5\n", ended


class Unhashable:
    """A handler that serves, and cannot be looked up."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc.unary_unary_rpc_method_handler(echo), name)

    def __hash__(self) -> int:
        raise self.error


BAD: dict[str, Any] = {
    "text": lambda: "no handler",
    "dictionary": dict,
    "LookupError": raising(LookupError("on purpose")),
    "CancelledError": raising(asyncio.CancelledError()),
    "Foreign": raising(Foreign("on purpose")),
}


@pytest.mark.parametrize("bad", BAD)
async def test_a_generic_handler_that_fails_leaves_all_other_calls_their_answers(bad: str) -> None:
    async with served(Handlers(BAD[bad])) as (server, channel):
        method, wrong = channel.unary_unary("/a/echo"), channel.unary_unary("/a/bad")
        calls = [(wrong if number % 8 == 3 else method)(b"%d" % number) for number in range(32)]
        async with asyncio.timeout(10):
            codes = [await call.code() for call in calls]
        assert codes == [grpc.StatusCode.UNKNOWN if number % 8 == 3 else grpc.StatusCode.OK for number in range(32)]
        await until(lambda: not server._core.tasks)
        (transport,) = server._core.transports
        assert transport.connection.running == 0


@pytest.mark.parametrize("kind", [TypeError, LookupError])
async def test_a_handler_that_cannot_be_hashed_serves(kind: type[Exception]) -> None:
    error = kind("no hash")
    async with served(Handlers(lambda: Unhashable(error))) as (_, channel):
        assert await channel.unary_unary("/a/bad")(b"x") == b"x"


async def test_a_task_factory_that_raises_ends_one_call() -> None:
    async with served(Handlers()) as (server, channel):
        loop = asyncio.get_running_loop()
        left = [1]

        def factory(loop: Any, coroutine: Any, **options: Any) -> Any:
            if left and coroutine.__name__ == "echo":
                left.pop()
                raise LookupError("on purpose")
            return asyncio.Task(coroutine, loop=loop, **options)

        loop.set_task_factory(factory)
        try:
            calls = [channel.unary_unary("/a/echo")(b"x") for _ in range(8)]
            async with asyncio.timeout(10):
                codes = [await call.code() for call in calls]
        finally:
            loop.set_task_factory(None)
        assert codes == [grpc.StatusCode.UNKNOWN] + [grpc.StatusCode.OK] * 7
        await until(lambda: not server._core.tasks)
        (transport,) = server._core.transports
        assert transport.connection.running == 0


class Textless(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


@pytest.mark.parametrize("error", [Foreign("on purpose"), Textless()], ids=lambda error: type(error).__name__)
async def test_whatever_a_handler_raises_the_call_ends(error: BaseException) -> None:
    async def handler(request: bytes, context: Any) -> bytes:
        raise error

    async with served(Handlers(lambda: grpc.unary_unary_rpc_method_handler(handler))) as (server, channel):
        async with asyncio.timeout(10):
            assert await channel.unary_unary("/a/bad")(b"").code() is grpc.StatusCode.UNKNOWN
        await until(lambda: not server._core.tasks)


async def test_a_request_of_text_is_the_serializers_matter() -> None:
    async with served(Handlers()) as (_, channel):
        for _ in range(2):
            with pytest.raises(TypeError, match="must be bytes when it is sent, not str"):
                await channel.unary_unary("/a/echo")("text")
        method = channel.unary_unary("/a/echo", request_serializer=str.encode, response_deserializer=bytes.decode)
        assert [await method("é") for _ in range(2)] == ["é", "é"]


async def test_a_cancel_from_another_thread_is_refused_and_changes_nothing() -> None:
    async with served(Handlers()) as (_, channel):
        call = channel.unary_unary("/a/never")(b"")
        with pytest.raises(WrongThreadError, match="call_soon_threadsafe"):
            await asyncio.to_thread(call.cancel)
        assert not call.done()
        assert call.cancel()
        assert await channel.unary_unary("/a/echo")(b"x") == b"x"


async def test_stop_does_not_wait_for_a_handler_that_goes_on_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    over = asyncio.Event()

    async def stubborn(request: bytes, context: Any) -> bytes:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        return b""

    async with served(Handlers(lambda: grpc.unary_unary_rpc_method_handler(stubborn))) as (server, channel):
        call = channel.unary_unary("/a/bad")(b"")
        await until(lambda: len(server._core.tasks) == 1)
        try:
            async with asyncio.timeout(20):
                await server.stop(0.01)
            assert len(server._core.tasks) == 1
            assert "1 handlers still run although they were cancelled" in caplog.text
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
        finally:
            over.set()  # else the loop would wait for the handler for ever
        await until(lambda: not server._core.tasks)


@pytest.mark.long
@pytest.mark.parametrize("what", ["a call", "a channel", "a server"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_loops_that_end_with_something_open_leave_no_descriptors(loop: str, what: str) -> None:
    ended = run_in_child(
        f"""
        import asyncio, gc, os, uvloop
        from aiofabric.rpc import grpc as aio
        from tests.rpc.grpc.test_foreign_code import Handlers, served

        kept = []

        async def main():
            async with served(Handlers()) as (server, channel):
                other = aio.insecure_channel(f"127.0.0.1:{{server._ports[0].number}}")
                await other.unary_unary("/a/echo")(b"")
                if {what!r} == "a call":
                    other.unary_unary("/a/never")(b"")
                elif {what!r} == "a channel":
                    kept.append(other)
                else:
                    left = aio.server()
                    left.add_insecure_port("127.0.0.1:0")
                    await left.start()

        counts = []
        for _ in range(12):
            {loop}.run(main())
            kept.clear()
            gc.collect()
            counts.append(len(os.listdir("/proc/self/fd")))
        assert max(counts[6:]) <= counts[2], counts
        print("done")
        """
    )
    assert ended.out == "done\n", ended


EXITS = """
    import asyncio, sys, uvloop
    import grpc
    from aiofabric.rpc import grpc as aio

    place, error = sys.argv[1], {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[sys.argv[2]]

    def fail(*_):
        raise error(5)

    async def one(*_):
        fail()

    async def many(*_):
        fail()
        yield b""

    async def echo(request, context):
        return request

    class Interceptor(aio.ServerInterceptor):
        async def intercept_service(self, proceed, details):
            return fail() if details.method == "/a/exit" else await proceed(details)

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method == "/a/echo":
                return grpc.unary_unary_rpc_method_handler(echo)
            kinds = {
                "coroutine": grpc.unary_unary_rpc_method_handler(one),
                "generator": grpc.unary_stream_rpc_method_handler(many),
                "requests": grpc.stream_unary_rpc_method_handler(one),
                "thread": grpc.unary_unary_rpc_method_handler(fail),
                "thread of a stream": grpc.unary_stream_rpc_method_handler(fail),
                "serializer": grpc.unary_unary_rpc_method_handler(echo, response_serializer=fail),
                "interceptor": grpc.unary_unary_rpc_method_handler(echo),
            }
            return kinds[place] if place in kinds else fail()

    async def main():
        server = aio.server(interceptors=[Interceptor()] if place == "interceptor" else None)
        server.add_generic_rpc_handlers((Handlers(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            print((await channel.unary_unary("/a/exit")(b"", timeout=10).code()).name)
            print(await channel.unary_unary("/a/echo")(b"x", timeout=10))
        await server.stop(None)

    try:
        (uvloop if sys.argv[3] == "uvloop" else asyncio).run(main())
    except KeyboardInterrupt:
        print("interrupted")
"""

PLACES = ["coroutine", "generator", "requests", "thread", "thread of a stream", "serializer", "interceptor", "generic"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("place", PLACES)
def test_a_handler_that_exits_fails_its_own_call(place: str, loop: str) -> None:
    ended = run_in_child(EXITS, place, "SystemExit", loop)
    assert ended.out == "UNKNOWN\nb'x'\n", ended.err


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("place", ["coroutine", "generator", "interceptor", "generic"])
def test_an_interrupt_in_a_handler_ends_the_program(place: str, loop: str) -> None:
    ended = run_in_child(EXITS, place, "KeyboardInterrupt", loop)
    assert ended.out.endswith("interrupted\n")  # uvloop ends the iteration first
