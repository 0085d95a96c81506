"""A server keeps a `Plan` for each method whose handler cannot change; every other call asks the handlers again."""

# Privates: a client that forgets its deadline is made by changing its call.

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric.rpc import grpc as aio
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


def answering(text: bytes) -> Any:
    async def handler(request: bytes, context: Any) -> bytes:
        return text

    return grpc.unary_unary_rpc_method_handler(handler)


class Changing(grpc.GenericRpcHandler):  # type: ignore[misc, name-defined, unused-ignore]
    """Answers each call otherwise."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def service(self, details: Any) -> Any:
        self.asked.append(details.invocation_metadata)
        return answering(b"%d" % len(self.asked))


@asynccontextmanager
async def served(*handlers: Any, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A server, and a channel to it."""
    server: Any = aio.server(**options)
    server.add_generic_rpc_handlers(handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield server, channel
    await server.stop(None)


def fixed(text: bytes) -> Any:
    return grpc.method_handlers_generic_handler("a", {"b": answering(text)})


async def test_a_method_of_a_dictionary_gets_a_plan() -> None:
    async with served(fixed(b"one")) as (server, channel):
        assert server.plans == {}
        assert [await channel.unary_unary("/a/b")(b"") for _ in range(2)] == [b"one"] * 2
        assert list(server.plans) == ["/a/b"]


async def test_a_registered_method_gets_a_plan_beside_handlers_that_change() -> None:
    server: Any = aio.server()
    changing = Changing()
    server.add_generic_rpc_handlers((changing,))
    server.add_registered_method_handlers("a", {"b": answering(b"registered")})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await channel.unary_unary("/a/b")(b"") == b"registered"
        assert [await channel.unary_unary("/a/c")(b"") for _ in range(2)] == [b"1", b"2"]
    assert list(server.plans) == ["/a/b"]
    await server.stop(None)


async def test_handlers_that_change_are_asked_for_each_call() -> None:
    changing = Changing()
    async with served(changing) as (server, channel):
        assert [await channel.unary_unary("/a/b")(b"") for _ in range(3)] == [b"1", b"2", b"3"]
        assert server.plans == {}


async def test_a_handler_that_comes_later_is_asked() -> None:
    async with served() as (server, channel):
        with pytest.raises(grpc.RpcError) as raised:
            await channel.unary_unary("/a/b")(b"")
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        server.add_generic_rpc_handlers((fixed(b"later"),))
        assert await channel.unary_unary("/a/b")(b"") == b"later"
        assert server.plans
        server.add_generic_rpc_handlers((fixed(b"latest"),))
        assert server.plans == {}
        assert await channel.unary_unary("/a/b")(b"") == b"later"  # the first handler that knows the method


async def test_an_unknown_method_leaves_no_plan() -> None:
    async with served(fixed(b"one")) as (server, channel):
        for number in range(3):
            with pytest.raises(grpc.RpcError) as raised:
                await channel.unary_unary(f"/a/{number}")(b"")
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert server.plans == {}


async def test_calls_with_a_deadline_or_metadata_do_the_same_as_those_without() -> None:
    seen: list[Any] = []

    async def handler(request: bytes, context: Any) -> bytes:
        remaining = context.time_remaining()
        seen.append((remaining is not None and 0 < remaining <= 60, tuple(context.invocation_metadata())))
        return b"x"

    handlers = {"b": grpc.unary_unary_rpc_method_handler(handler)}
    async with served(grpc.method_handlers_generic_handler("a", handlers)) as (server, channel):
        await channel.unary_unary("/a/b")(b"")
        assert server.plans
        await channel.unary_unary("/a/b")(b"")
        await channel.unary_unary("/a/b")(b"", timeout=60)
        await channel.unary_unary("/a/b")(b"", metadata=(("key", "value"),))
    assert seen == [(False, ()), (False, ()), (True, ()), (False, (("key", "value"),))]


async def test_a_server_ends_a_call_with_a_deadline_although_its_method_has_a_plan() -> None:
    """Hazard: the plan does not look at the deadline, and only a client that still lives ends the call."""
    begun = asyncio.Event()
    ended: list[str] = []

    async def handler(request: bytes, context: Any) -> bytes:
        begun.set()
        try:
            await asyncio.sleep(0 if request == b"at once" else 60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return b""

    handlers = {"b": grpc.unary_unary_rpc_method_handler(handler)}
    async with served(grpc.method_handlers_generic_handler("a", handlers)) as (server, channel):
        for _ in range(2):
            await channel.unary_unary("/a/b")(b"at once")
        assert server.plans
        begun.clear()
        call = channel.unary_unary("/a/b")(b"", timeout=0.2)
        await begun.wait()
        call._rpc.deadline = None  # the client forgets its deadline
        call._rpc.expired = lambda: None
        async with asyncio.timeout(10):
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: ended == ["cancelled"])


async def test_a_compression_that_a_server_refuses_is_refused_although_its_method_has_a_plan() -> None:
    identity = [("grpc.compression_enabled_algorithms_bitset", 1)]
    async with served(fixed(b"one"), options=identity) as (server, channel):
        for _ in range(2):
            assert await channel.unary_unary("/a/b")(b"") == b"one"
        assert server.plans
        with pytest.raises(grpc.RpcError) as raised:
            await channel.unary_unary("/a/b")(b"", compression=grpc.Compression.Gzip)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("what", ["interceptors", "maximum_concurrent_rpcs"])
async def test_a_server_that_examines_each_call_keeps_no_plan(what: str) -> None:
    class Interceptor(grpc.aio.ServerInterceptor):
        async def intercept_service(self, proceed: Any, details: Any) -> Any:
            return await proceed(details)

    options: Any = {"interceptors": (Interceptor(),)} if what == "interceptors" else {what: 5}
    async with served(fixed(b"one"), **options) as (server, channel):
        assert [await channel.unary_unary("/a/b")(b"") for _ in range(2)] == [b"one"] * 2
        assert server.plans == {}


async def test_handlers_that_raise_in_a_plan_end_the_call_and_count_no_more() -> None:
    called: list[str] = []

    async def handler(request: bytes, context: Any) -> bytes:
        context.add_done_callback(lambda _: called.append("done"))
        if request == b"raise":
            raise LookupError("on purpose")
        return request

    handlers = {"b": grpc.unary_unary_rpc_method_handler(handler)}
    async with served(grpc.method_handlers_generic_handler("a", handlers)) as (server, channel):
        for request in (b"1", b"raise", b"2"):
            if request == b"raise":
                with pytest.raises(grpc.RpcError) as raised:
                    await channel.unary_unary("/a/b")(request)
                assert raised.value.code() is grpc.StatusCode.UNKNOWN
            else:
                assert await channel.unary_unary("/a/b")(request) == request
        assert called == ["done"] * 3
        (transport,) = server._core.transports
        await until(lambda: not server._core.tasks)
        assert transport.connection.running == 0
