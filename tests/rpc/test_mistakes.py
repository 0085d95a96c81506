"""Mistakes of programs, and peers that break the kind of a method: an error names the mistake, and no call hangs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiofabric import rpc
from tests.fixtures.providers import CONNECTED, over
from tests.rpc.services import HANDLERS
from tests.rpc.test_channel import channel_to
from tests.rpc.waiting import until

pytestmark = pytest.mark.anyio

provider = over(CONNECTED)


async def details(request: bytes, context: rpc.ServerContext) -> bytes:
    raise rpc.RpcError(5, b"fine")  # type: ignore[arg-type]


async def bad_code(request: bytes, context: rpc.ServerContext) -> bytes:
    raise rpc.RpcError(999_999, "too large")


async def bad_trailing(request: bytes, context: rpc.ServerContext) -> bytes:
    context.trailing_metadata = (("Bad Key", "x"),)
    return request


async def bad_error_metadata(request: bytes, context: rpc.ServerContext) -> bytes:
    raise rpc.RpcError(5, "x", (("Bad Key", "x"),))


async def bad_headers(request: bytes, context: rpc.ServerContext) -> bytes:
    context.send_headers((("Bad Key", "x"),))
    return request


async def returns_none(request: bytes, context: rpc.ServerContext) -> None:
    return None


async def returns_text(request: bytes, context: rpc.ServerContext) -> Any:
    return "text"


async def yields_text(request: bytes, context: rpc.ServerContext) -> Any:
    yield "text"


async def sends_text(context: rpc.ServerContext) -> Any:
    await context.send("text")  # type: ignore[arg-type]
    return b""


UNARY = [details, bad_code, bad_trailing, bad_error_metadata, bad_headers, returns_none, returns_text]


@pytest.mark.parametrize("function", [*UNARY, yields_text, sends_text])
async def test_a_faulty_handler_fails_its_own_call_only(provider: str, function: Any) -> None:
    kind: Any = rpc.unary_unary if function in UNARY else rpc.unary_stream
    kind = rpc.stream_unary if function is sends_text else kind
    async with rpc.Server({**HANDLERS, "/test/faulty": kind(function)}) as server:
        listener = await server.listen("127.0.0.1", 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            async with channel.call("/test/mirror") as other:
                await other.send(b"before")
                assert await other.recv() == b"before"
                with anyio.fail_after(10), pytest.raises(rpc.RpcError, match="UNKNOWN: The handler failed"):
                    await channel.unary("/test/faulty", b"x")
                await other.send(b"after")
                assert await other.recv() == b"after"
            assert len(server.core.links) == 1


async def test_what_is_no_message_is_refused_before_and_after_the_connection(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen("127.0.0.1", 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            for _ in range(2):
                with pytest.raises(TypeError, match="A message must be bytes, or another buffer, not str"):
                    await channel.unary("/test/echo", "text")  # type: ignore[arg-type]
                with pytest.raises(TypeError, match="must be a str such as"):
                    await channel.unary(b"/test/echo", b"")  # type: ignore[arg-type]
                with pytest.raises(TypeError, match="must be a str such as"):
                    channel.call(b"/test/echo")  # type: ignore[arg-type]
                async with channel.call("/test/mirror") as call:
                    with pytest.raises(TypeError, match="A message must be bytes"):
                        await call.send("text")  # type: ignore[arg-type]
                assert await channel.unary("/test/echo", memoryview(b"x")) == b"x"  # type: ignore[arg-type]
            assert not channel.calls


async def test_a_first_call_without_a_message_gets_a_status(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen("127.0.0.1", 0, provider=provider)
        for connected in (False, True):
            async with channel_to(listener.address.port or 0, provider=provider) as channel:
                if connected:
                    await channel.unary("/test/echo", b"")
                async with channel.call("/test/echo") as call:
                    call.half_close()
                    with anyio.fail_after(10), pytest.raises(rpc.RpcError, match="the client sent none"):
                        await call.recv()
        await until(lambda: not any(link.connection.running for link in server.core.links))  # type: ignore[union-attr]


async def test_a_unary_call_of_a_method_that_streams_fails(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen("127.0.0.1", 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            for count in (b"2", b"1000000"):
                with anyio.fail_after(10), pytest.raises(rpc.RpcError, match="INTERNAL: The server sent more than one"):
                    await channel.unary("/test/count", count)
            assert await channel.unary("/test/count", b"1") == b"0"


@pytest.mark.parametrize("handlers", [{"/t/e": details}, {"/t/e": None}, {b"/t/e": HANDLERS["/test/echo"]}])
def test_handlers_of_no_kind_are_refused(handlers: Any) -> None:
    with pytest.raises(TypeError, match=r"must be made by unary_unary|must be a str such as"):
        rpc.Server(handlers)


async def test_a_server_that_was_not_entered_says_so() -> None:
    with pytest.raises(RuntimeError, match="Enter the server first"):
        await rpc.Server(HANDLERS).listen("127.0.0.1", 0)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_message": -1},
        {"window": 10},
        {"recv_size": 1},
        {"max_metadata": 1 << 20},
        {"max_calls": 0},
        {"resets": float("nan")},
        {"credentials": bytes(16385)},
    ],
)
def test_limits_that_no_peer_accepts_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Limits: {next(iter(limits))} must"):
        rpc.Limits(**limits)


async def test_a_first_call_with_much_metadata_waits_for_the_preface(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen("127.0.0.1", 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            for _ in range(2):
                with anyio.fail_after(10):
                    assert await channel.unary("/test/echo", b"x", metadata=[("k", "v" * 10_000)]) == b"x"
            with pytest.raises(rpc.RpcError, match="the server accepts 16384"):
                await channel.unary("/test/echo", b"x", metadata=[("k", "v" * 20_000)])
