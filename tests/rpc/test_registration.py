"""Handlers that no call could reach or run, and servers that are used in a wrong order: an error says so at once."""

from __future__ import annotations

from typing import Any

import pytest

from aiofabric import rpc
from tests.fixtures.providers import CONNECTED, OWN_HOST, over
from tests.rpc.services import HANDLERS, served
from tests.rpc.test_channel import channel_to

provider = over(CONNECTED)

ECHO = HANDLERS["/test/echo"]


async def one(request: Any, context: Any = None) -> Any:
    """A coroutine function."""


async def many(request: Any, context: Any = None) -> Any:
    yield b""


def plain(request: Any, context: Any = None) -> Any:
    """A plain function."""


def generator(request: Any, context: Any = None) -> Any:
    yield b""


@pytest.mark.parametrize("handlers", [{"/t/e": one}, {"/t/e": None}, {b"/t/e": ECHO}])
def test_handlers_of_no_kind_are_refused(handlers: Any) -> None:
    with pytest.raises(TypeError, match=r"must be made by unary_unary|must be a str such as"):
        rpc.Server(handlers)


def test_methods_that_no_call_reaches_are_refused() -> None:
    with pytest.raises(ValueError, match=r"begins with a slash, as in '/service/method': 't\.e'"):
        rpc.Server({"t.e": ECHO})
    with pytest.raises(ValueError, match="The method '/t/e' has two handlers"):
        rpc.Server([("/t/e", ECHO), ("/t/e", ECHO)])
    with pytest.raises(TypeError, match="this is no pair"):
        rpc.Server([("/t/e", ECHO, 1)])  # type: ignore[list-item]


def test_a_server_that_would_refuse_every_call_is_refused() -> None:
    with pytest.raises(ValueError, match="max_running must be at least 1, not 0"):
        rpc.Server(HANDLERS, max_running=0)


@pytest.mark.parametrize(
    ("kind", "function", "text"),
    [
        (rpc.unary_unary, 5, "must be a function, not 5"),
        (rpc.unary_unary, many, "must return it instead of yielding"),
        (rpc.unary_unary, generator, "must return it instead of yielding"),
        (rpc.stream_unary, many, "must return it instead of yielding"),
        (rpc.stream_unary, generator, "must return it instead of yielding"),
        (rpc.stream_unary, plain, "a plain function cannot await the requests"),
        (rpc.unary_stream, one, "write it as `async def` with `yield`"),
        (rpc.unary_stream, generator, "write it as `async def` with `yield`"),
        (rpc.stream_stream, one, "write it as `async def` with `yield`"),
        (rpc.stream_stream, generator, "write it as `async def` with `yield`"),
    ],
)
def test_a_function_of_another_kind_is_refused(kind: Any, function: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        kind(function)


class Callables:
    """Handlers that are no functions."""

    async def __call__(self, request: bytes, context: rpc.ServerContext) -> bytes:
        return request

    async def method(self, request: bytes, context: rpc.ServerContext) -> Any:
        yield request


@pytest.mark.anyio
async def test_objects_and_methods_can_be_handlers(provider: str) -> None:
    def iterator(request: bytes, context: rpc.ServerContext) -> Any:
        return Callables().method(request, context)

    handlers = {
        "/t/object": rpc.unary_unary(Callables()),
        "/t/method": rpc.unary_stream(Callables().method),
        "/t/iterator": rpc.unary_stream(iterator),
        "/t/plain": rpc.unary_unary(lambda request, context: request),
    }
    async with rpc.Server(handlers) as server:
        port = (await server.listen(OWN_HOST, 0, provider=provider)).address.port or 0
        async with channel_to(port, provider=provider) as channel:
            for method in handlers:
                assert await channel.unary(method, b"x") == b"x"


@pytest.mark.anyio
async def test_a_server_that_was_not_entered_says_so() -> None:
    with pytest.raises(RuntimeError, match="Enter the server first"):
        await rpc.Server(HANDLERS).listen(OWN_HOST, 0)


@pytest.mark.anyio
async def test_a_server_runs_once_at_a_time(provider: str) -> None:
    async with served(provider) as (channel, server):
        with pytest.raises(RuntimeError, match="This server runs already"):
            await server.__aenter__()
        assert await channel.unary("/test/echo", b"x") == b"x"
    async with server:
        assert (await server.listen(OWN_HOST, 0, provider=provider)).address.port


@pytest.mark.anyio
async def test_a_server_that_has_stopped_listens_no_more(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        await server.stop()
        with pytest.raises(RuntimeError, match="The server has stopped and cannot listen again: create a new one"):
            await server.listen(OWN_HOST, 0, provider=provider)


@pytest.mark.anyio
@pytest.mark.parametrize(("grace", "kind"), [(-1, ValueError), (float("nan"), ValueError), ("5", TypeError)])
async def test_a_grace_that_is_no_time_is_refused(provider: str, grace: Any, kind: type[Exception]) -> None:
    async with served(provider) as (channel, server):
        for refuses in (server.stop, channel.close):
            with pytest.raises(kind, match="The grace period must"):
                await refuses(grace)
        assert await channel.unary("/test/echo", b"x") == b"x"


@pytest.mark.anyio
async def test_options_of_listen_are_checked(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        with pytest.raises(TypeError, match=r"set Limits\.recv_size"):
            await server.listen(OWN_HOST, 0, provider=provider, recv_size=100_000)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="heartbeat"):
            await server.listen(OWN_HOST, 0, provider=provider, hartbeat=1)  # type: ignore[call-arg]


def test_the_interfaces_of_programs_show_no_internals() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    handlers_side = {"method", "metadata", "trailing_metadata", "peer", "time_remaining"}
    assert public(rpc.ServerContext) == handlers_side | {"recv", "send", "send_headers"}
    assert public(rpc.Call) == {"send", "recv", "headers", "end", "half_close", "cancel", "over"}
