"""Handlers of grpcio's synchronous kind: the pool gets its threads back, whatever the client and the handler do."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric.rpc import grpc as aio
from tests.fixtures.children import run_in_child
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


def method_handler(kind: str, function: Any) -> Any:
    return getattr(grpc, f"{kind}_rpc_method_handler")(function)


@asynccontextmanager
async def served(threads: int, **handlers: tuple[str, Any]) -> AsyncIterator[tuple[Any, list[Any]]]:
    """A channel to a server with a small pool, and what was reported to the loop meanwhile."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    with ThreadPoolExecutor(threads) as pool:
        server: Any = aio.server(pool)
        methods = {name: method_handler(*handler) for name, handler in handlers.items()}
        server.add_registered_method_handlers("a", methods)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel, reported
        finally:
            await server.stop(0)


def echo(request: bytes, context: Any) -> bytes:
    return request


async def test_cancelled_streams_to_a_slow_reader_leave_the_pool_its_threads() -> None:
    ended: list[bytes] = []

    def endless(request: bytes, context: Any) -> Any:
        try:
            while True:
                yield bytes(100_000)
        finally:
            ended.append(request)

    async with served(4, endless=("unary_stream", endless), echo=("unary_unary", echo)) as (channel, reported):
        for number in range(12):
            call = channel.unary_stream("/a/endless")(b"%d" % number)
            assert len(await call.read()) == 100_000
            call.cancel()
        async with asyncio.timeout(10):
            assert await channel.unary_unary("/a/echo")(b"x") == b"x"
        await until(lambda: len(ended) == 12)
        assert not reported


async def test_a_stream_whose_handler_raises_after_its_cancel_is_logged_and_reports_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cancelled = threading.Event()

    def fails(request: bytes, context: Any) -> Any:
        context.add_callback(cancelled.set)
        yield b"first"
        assert cancelled.wait(10)
        raise LookupError("on purpose")

    async with served(1, fails=("unary_stream", fails), echo=("unary_unary", echo)) as (channel, reported):
        call = channel.unary_stream("/a/fails")(b"")
        assert await call.read() == b"first"
        call.cancel()
        async with asyncio.timeout(10):
            assert await channel.unary_unary("/a/echo")(b"x") == b"x"
        assert not reported
    raised = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [str(error) for error in raised] == ["on purpose"]


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
@pytest.mark.parametrize("end", ["returns", "raises", "aborts", "cancelled"])
async def test_callbacks_of_a_context_run_at_every_end(kind: str, end: str) -> None:
    called: list[str] = []
    entered = threading.Event()
    over = threading.Event()

    def finish(context: Any) -> None:
        assert context.add_callback(over.set)
        context.add_callback(lambda: called.append(end))
        entered.set()
        if end == "raises":
            raise LookupError("on purpose")
        if end == "aborts":
            context.abort(grpc.StatusCode.NOT_FOUND, "on purpose")
        if end == "cancelled":
            assert over.wait(10)
            assert not context.add_callback(over.set)

    def one(request: bytes, context: Any) -> bytes:
        finish(context)
        return request

    def many(request: bytes, context: Any) -> Any:
        finish(context)
        yield request

    function = one if kind == "unary_unary" else many
    async with served(1, method=(kind, function), echo=("unary_unary", echo)) as (channel, reported):
        call = getattr(channel, kind)("/a/method")(b"x")
        if end == "cancelled":
            await until(entered.is_set)
            call.cancel()
        expected = {"returns": "OK", "raises": "UNKNOWN", "aborts": "NOT_FOUND", "cancelled": "CANCELLED"}
        if kind == "unary_stream" and end == "returns":
            assert [each async for each in call] == [b"x"]
        assert await call.code() == grpc.StatusCode[expected[end]]
        async with asyncio.timeout(10):
            assert await channel.unary_unary("/a/echo")(b"x") == b"x"
        await until(lambda: called == [end])
        assert not reported


async def test_a_stop_iteration_of_a_handler_is_an_error_of_its_call() -> None:
    def empty(requests: Any, context: Any) -> bytes:
        return next(requests)  # type: ignore[no-any-return]

    async with served(1, empty=("stream_unary", empty)) as (channel, _):
        async with asyncio.timeout(10):
            call = channel.stream_unary("/a/empty")(iter(()))
            assert await call.code() == grpc.StatusCode.UNKNOWN
            assert "StopIteration" in await call.details()


CHILD = """
    import asyncio, sys
    from concurrent.futures import ThreadPoolExecutor
    import grpc
    from aiofabric.rpc import grpc as aio

    def aborts(request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "on purpose")

    def metadata(request, context):
        context.send_initial_metadata((("key", "value"),))
        return iter((request, request))

    def consumes(requests, context):
        return iter((next(requests), b"x"))

    async def main():
        server = aio.server(ThreadPoolExecutor(2))
        server.add_registered_method_handlers("a", {
            "aborts": grpc.unary_stream_rpc_method_handler(aborts),
            "metadata": grpc.unary_stream_rpc_method_handler(metadata),
            "consumes": grpc.stream_stream_rpc_method_handler(consumes),
        })
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_stream("/a/aborts")(b"")
            print((await call.code()).name, await call.details())
            call = channel.unary_stream("/a/metadata")(b"x")
            print(*await call.initial_metadata(), [each async for each in call])
            call = channel.stream_stream("/a/consumes")(iter((b"1", b"2")))
            print([each async for each in call])
        await server.stop(0)

    if sys.argv[1] == "uvloop":
        import uvloop
        uvloop.run(main())
    else:
        asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_plain_function_that_returns_an_iterator_may_wait_for_the_loop(loop: str) -> None:
    ended = run_in_child(CHILD, loop)
    expected = ["NOT_FOUND on purpose", "('key', 'value') [b'x', b'x']", "[b'1', b'x']"]
    assert ended.out.splitlines() == expected, ended.err


async def test_a_context_of_a_synchronous_handler_refuses_to_block_the_loop() -> None:
    refused: list[BaseException] = []

    def handler(request: bytes, context: Any) -> bytes:
        def callback() -> None:
            try:
                context.abort(grpc.StatusCode.NOT_FOUND, "too late")
            except RuntimeError as error:
                refused.append(error)

        context.add_callback(callback)
        return request

    async with served(1, handler=("unary_unary", handler)) as (channel, _):
        assert await channel.unary_unary("/a/handler")(b"x") == b"x"
        await until(lambda: refused)
    assert "use them in the thread that runs the handler" in str(refused[0])
