"""Mistakes of programs, and peers that break the kind of a method: an error names the mistake, and no call hangs."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from aiofabric import listen, rpc
from aiofabric.errors import WrongLoopError
from tests.fixtures.providers import CONNECTED, OWN_HOST, over
from tests.fixtures.waiting import until
from tests.rpc.services import HANDLERS, served
from tests.rpc.test_channel import channel_to

if TYPE_CHECKING:
    from collections.abc import Callable

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


class Foreign(BaseException):
    """No Exception. A task of trio's system that raises it ends the program."""


async def raises_foreign(request: bytes, context: rpc.ServerContext) -> bytes:
    raise Foreign


async def raises_generator_exit(request: bytes, context: rpc.ServerContext) -> bytes:
    """As what closes a handler at the end of its loop, but the loop goes on."""
    await anyio.lowlevel.checkpoint()
    raise GeneratorExit


UNARY = [
    *(details, bad_code, bad_trailing, bad_error_metadata, bad_headers, returns_none, returns_text, raises_foreign),
    raises_generator_exit,
]


@pytest.mark.parametrize("function", [*UNARY, yields_text, sends_text])
async def test_a_faulty_handler_fails_its_own_call_only(provider: str, function: Any) -> None:
    kind: Any = rpc.unary_unary if function in UNARY else rpc.unary_stream
    kind = rpc.stream_unary if function is sends_text else kind
    async with rpc.Server({**HANDLERS, "/test/faulty": kind(function)}) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            async with channel.call("/test/mirror") as other:
                await other.send(b"before")
                assert await other.recv() == b"before"
                with anyio.fail_after(10), pytest.raises(rpc.RpcError, match="UNKNOWN: The handler failed"):
                    await channel.unary("/test/faulty", b"x")
                await other.send(b"after")
                assert await other.recv() == b"after"
            assert len(server.core.transports) == 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: rpc.Channel("127.0.0.1", 50051), "limits must be Limits, not 50051: host and port are one target"),  # type: ignore[arg-type]
        (lambda: rpc.Channel("127.0.0.1:1", timeout=5), r"^Channel.__init__\(\) got an unexpected .* 'timeout'"),  # type: ignore[call-arg]
        (lambda: rpc.Channel("127.0.0.1:1", provider="tcp"), r"^Channel.__init__\(\) got an unexpected .* 'provider'"),  # type: ignore[call-arg]
        (lambda: rpc.Channel("a:1", connect_timeout="x"), "connect_timeout must be a number of seconds"),  # type: ignore[arg-type]
        (lambda: rpc.Channel("a:1", connect_timeout=None), "connect_timeout must be a number of seconds"),  # type: ignore[arg-type]
        (lambda: rpc.Channel("a:1", backoff=lambda: 5), r"backoff must make an object with the method next\(\)"),  # type: ignore[arg-type,return-value]
        (lambda: rpc.Channel("a:1", backoff=5), "backoff must be a function that makes one"),  # type: ignore[arg-type]
        (lambda: rpc.Channel("a:1", policy=lambda: None), r"policy must make an object with the method pick\(\)"),  # type: ignore[arg-type,return-value]
        (lambda: rpc.Channel("a:1", policy=5), "policy must be a function that makes one"),  # type: ignore[arg-type]
        (lambda: rpc.Channel("a:1", resolver=5), "resolver must be an async function"),  # type: ignore[arg-type]
        (lambda: rpc.Channel("a:1", options=5), "options must be of type Mapping"),  # type: ignore[arg-type]
        (lambda: rpc.Channel("a:1", options={1: 2}), "the name of an option must be of type str"),  # type: ignore[dict-item]
        (lambda: rpc.Channel("a:1", options={"recv_size": 5}), "cannot have recv_size: RPC sets it itself"),
        (lambda: rpc.Channel("a:1", options={"param": b""}), "cannot have param"),
        (lambda: rpc.Channel("a:1", options={"hartbeat": 1}), "unexpected option 'hartbeat'. Did you mean heartbeat"),
        (lambda: rpc.Limits(credentials="x"), "credentials must be bytes"),  # type: ignore[arg-type]
        (lambda: rpc.Limits(resets="x"), "resets must be a number"),  # type: ignore[arg-type]
        (lambda: rpc.Server(None), "handlers must be of type Mapping or Iterable"),  # type: ignore[arg-type]
        (lambda: rpc.Server(HANDLERS, max_running="x"), "max_running must be of type int"),  # type: ignore[arg-type]
        (lambda: rpc.Server(HANDLERS, interceptors=5), "interceptors must be of type Iterable"),  # type: ignore[arg-type]
        (lambda: rpc.Server(HANDLERS, limiter=5), "limiter must be of type CapacityLimiter"),  # type: ignore[arg-type]
        (lambda: rpc.Server(HANDLERS, limits=5), "limits must be the Limits of a server, such as"),  # type: ignore[arg-type]
        (lambda: rpc.Server(HANDLERS, interceptors=[lambda context, proceed: proceed()]), "must be a function `async"),
        (lambda: rpc.Server(HANDLERS, interceptors=[5]), "The interceptor 5 must be a function `async def"),  # type: ignore[list-item]
    ],
)
async def test_a_wrong_argument_is_named_when_the_object_is_made(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        make()
    gc.collect()  # `__del__` of an object whose constructor failed: pytest would report its exception


async def test_the_error_of_a_server_that_never_accepts_says_how_long_it_was_waited_for(provider: str) -> None:
    async with (
        listen(OWN_HOST, 0, provider=provider) as listener,
        channel_to(listener.address.port or 0, provider=provider, connect_timeout=0.1) as channel,
    ):
        with anyio.fail_after(20), pytest.raises(rpc.RpcError, match=r"did not accept within [0-9.]+ s") as raised:
            await channel.unary("/test/echo", b"")
        assert not raised.value.may_have_run


async def test_what_is_no_message_is_refused_before_and_after_the_connection(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
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
            assert not channel.core.calls


async def test_a_first_call_without_a_message_gets_a_status(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        for connected in (False, True):
            async with channel_to(listener.address.port or 0, provider=provider) as channel:
                if connected:
                    await channel.unary("/test/echo", b"")
                async with channel.call("/test/echo") as call:
                    call.half_close()
                    with anyio.fail_after(10), pytest.raises(rpc.RpcError, match="the client sent none"):
                        await call.recv()
        await until(lambda: not any(transport.connection.running for transport in server.core.transports))


async def test_a_unary_call_of_a_method_that_streams_fails(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            for count in (b"2", b"1000000"):
                with anyio.fail_after(10), pytest.raises(rpc.RpcError, match="INTERNAL: The server sent more than one"):
                    await channel.unary("/test/count", count)
            assert await channel.unary("/test/count", b"1") == b"0"


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
        {"memory": 1e9},
    ],
)
def test_limits_that_no_peer_accepts_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=f"Limits: {next(iter(limits))} must"):
        rpc.Limits(**limits)


async def test_a_first_call_with_much_metadata_waits_for_the_preface(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            for _ in range(2):
                with anyio.fail_after(10):
                    assert await channel.unary("/test/echo", b"x", metadata=[("k", "v" * 10_000)]) == b"x"
            with pytest.raises(rpc.RpcError, match="the server accepts 16384"):
                await channel.unary("/test/echo", b"x", metadata=[("k", "v" * 20_000)])


@pytest.mark.parametrize("target", [("127.0.0.1", 80), None, 80])
def test_a_target_that_is_no_text_is_refused(target: Any) -> None:
    with pytest.raises(TypeError, match="The target of a channel must be a str such as 'host:port', not"):
        rpc.Channel(target)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("unix:/tmp/x", "the scheme unix of the target 'unix:/tmp/x' is not supported: use a host and a port"),
        ("http://127.0.0.1:80", "the scheme http of the target"),
        ("127.0.0.1:-1", "'127.0.0.1:-1': a port is at least 0"),
        ("127.0.0.1:65536", "a port is at most 65535"),
    ],
)
async def test_a_target_that_cannot_be_says_why(target: str, text: str) -> None:
    async with rpc.Channel(target) as channel:
        with pytest.raises(rpc.RpcError, match=text):
            await channel.unary("/test/echo", b"")


def test_a_service_config_that_was_not_parsed_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be what ServiceConfig\.parse\(\) returns"):
        rpc.Channel("127.0.0.1:1", service_config={})  # type: ignore[arg-type]
    rpc.Channel("127.0.0.1:1", service_config=rpc.ServiceConfig.parse({}))


@pytest.mark.parametrize("metadata", [{"key": "value"}, {"ab": "c"}, ["ab"], ("key", "value"), "ab"])
async def test_metadata_that_is_not_of_pairs_is_refused(provider: str, metadata: Any) -> None:
    async with served(provider) as (channel, _):
        with pytest.raises(TypeError, match="Metadata consists of pairs of a key and a value"):
            await channel.unary("/test/echo", b"", metadata=metadata)


def test_a_status_code_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a StatusCode, or a number, not 'NOT_FOUND'"):
        rpc.RpcError("NOT_FOUND")  # type: ignore[arg-type]


async def test_a_timeout_that_is_no_number_is_refused_before_the_call(provider: str) -> None:
    async with served(provider) as (channel, _):
        with pytest.raises(TypeError, match="The timeout of a call must be a number of seconds, not 'x'"):
            await channel.unary("/test/echo", b"", timeout="x")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="must be a number of seconds"):
            channel.call("/test/echo", timeout="x")  # type: ignore[arg-type]
        assert not channel.core.calls


async def test_a_second_task_in_recv_is_refused_and_the_first_goes_on(provider: str) -> None:
    got: list[bytes] = []
    refused = anyio.Event()

    async def twice(context: rpc.ServerContext) -> bytes:
        async def first() -> None:
            got.append(await context.recv())

        async with anyio.create_task_group() as group:
            group.start_soon(first)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(anyio.BusyResourceError):
                await context.recv()
            refused.set()
        return b"done"

    async with rpc.Server({**HANDLERS, "/test/twice": rpc.stream_unary(twice)}) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            async with channel.call("/test/mirror") as call, anyio.create_task_group() as group:

                async def first() -> None:
                    got.append(await call.recv())

                async def ends() -> None:
                    got.append(b"%d" % (await call.end()).code)

                group.start_soon(ends)  # others may wait for the end, or for the headers
                group.start_soon(first)
                await anyio.wait_all_tasks_blocked()
                with anyio.fail_after(10), pytest.raises(anyio.BusyResourceError):
                    await call.recv()
                await call.send(b"x")
                call.half_close()
            assert sorted(got) == [b"0", b"x"]
            async with channel.call("/test/twice") as call:
                with anyio.fail_after(10):
                    await refused.wait()
                    await call.send(b"y")
                    assert await call.recv() == b"done"
            assert got[-1] == b"y"


async def test_several_tasks_can_send(provider: str) -> None:
    async with served(provider) as (channel, _), channel.call("/test/total", timeout=20) as call:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(call.send, bytes(400_000))
        call.half_close()
        assert await call.recv() == b"2000000"


async def test_sending_to_a_call_that_has_ended_says_so(provider: str) -> None:
    async def ends_early(context: rpc.ServerContext) -> bytes:
        return await context.recv()

    async with rpc.Server({**HANDLERS, "/test/early": rpc.stream_unary(ends_early)}) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            async with channel.call("/test/early") as call:
                await call.send(b"x")
                await call.end()
                with pytest.raises(anyio.BrokenResourceError, match="The server has ended the call with OK"):
                    await call.send(b"y")
                assert await call.recv() == b"x"
            async with channel.call("/test/none") as call:
                await call.end()
                with pytest.raises(rpc.RpcError, match="UNIMPLEMENTED"):
                    await call.send(b"y")
            async with channel.call("/test/mirror") as call:
                call.half_close()
                with pytest.raises(anyio.ClosedResourceError, match=r"half_close\(\) was called"):
                    await call.send(b"y")
            assert await channel.unary("/test/echo", b"x") == b"x"
            assert len(server.core.transports) == 1


async def test_a_message_that_has_left_was_sent_also_if_the_call_ends_at_once(provider: str) -> None:
    async def ends_early(context: rpc.ServerContext) -> bytes:
        return await context.recv()

    async def reads_nothing(context: rpc.ServerContext) -> bytes:
        return b"done"

    handlers = {"/test/early": rpc.stream_unary(ends_early), "/test/nothing": rpc.stream_unary(reads_nothing)}
    async with rpc.Server(handlers) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        async with channel_to(listener.address.port or 0, provider=provider) as channel:
            calls = [channel.call("/test/early") for _ in range(50)]
            async with anyio.create_task_group() as group:
                for call in calls:  # they wait for the connection; many answers have arrived when a task goes on
                    group.start_soon(call.send, b"x")
            assert [await call.recv() for call in calls] == [b"x"] * 50
            async with channel.call("/test/nothing") as call:
                with pytest.raises(anyio.BrokenResourceError, match="The server has ended the call with OK"):
                    await call.send(bytes(3 << 20))  # longer than the window: the rest waits for the server
                assert await call.recv() == b"done"


async def test_initial_metadata_goes_once_and_first(provider: str) -> None:
    async def late(request: bytes, context: rpc.ServerContext) -> Any:
        context.send_headers([("a", "b")])
        with pytest.raises(RuntimeError, match="The initial metadata was sent already"):
            context.send_headers([("a", "c")])
        yield request
        with pytest.raises(RuntimeError, match="before the first message"):
            context.send_headers([("a", "c")])

    async with rpc.Server({"/test/late": rpc.unary_stream(late)}) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        channel = channel_to(listener.address.port or 0, provider=provider)
        async with channel, channel.call("/test/late") as call:
            await call.send(b"x")
            assert await call.headers() == (("a", "b"),)
            assert [each async for each in call] == [b"x"]


async def test_use_in_another_thread_names_the_channel_or_the_server(provider: str) -> None:
    caught: list[BaseException] = []

    async with served(provider) as (channel, server), channel.call("/test/mirror") as call:
        await channel.unary("/test/echo", b"")

        async def unary() -> None:
            await channel.unary("/test/echo", b"")

        def elsewhere() -> None:
            for use in (unary, call.recv, server.stop, lambda: server.listen(OWN_HOST, 0)):
                with pytest.raises(WrongLoopError) as raised:
                    anyio.run(use)
                caught.append(raised.value)

        await anyio.to_thread.run_sync(elsewhere)
        assert await channel.unary("/test/echo", b"x") == b"x"
    named = ["the channel to 127.0.0.1"] * 2 + ["this server"] * 2
    assert [str(error).startswith(name) for error, name in zip(caught, named, strict=True)] == [True] * 4


def test_use_in_a_later_loop_names_the_channel() -> None:
    channels: list[rpc.Channel] = []

    async def first() -> None:
        async with rpc.Server(HANDLERS) as server:
            listener = await server.listen(OWN_HOST, 0)
            channels.append(rpc.Channel(f"{OWN_HOST}:{listener.address.port}"))
            await channels[0].unary("/test/echo", b"")

    async def second() -> None:
        await channels[0].unary("/test/echo", b"")

    anyio.run(first)
    with pytest.raises(
        WrongLoopError, match="belongs to an event loop that has ended: create a channel for each event loop"
    ):
        anyio.run(second)
