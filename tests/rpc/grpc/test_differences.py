"""Differences from grpc.aio: the table of docs/howto/grpc-aio.md, and mistakes that grpc.aio accepts."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric.errors import WrongLoopError
from aiofabric.rpc import grpc as aio
from tests.fixtures.children import run_in_child
from tests.rpc.grpc.generated import pb2, pb2_grpc
from tests.rpc.grpc.service import Interop, connected, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "request_", ["text", None, 17, pb2.Response(body=b"x"), pb2.Empty()], ids=lambda each: repr(each)[:9]
)
async def test_a_request_of_another_type_is_a_type_error(request_: Any) -> None:
    async with connected(aio) as stub:
        with pytest.raises(TypeError):
            await stub.Unary(request_)
        stream = stub.Input()
        with pytest.raises(TypeError):
            await stream.write(request_)
        stream.cancel()
        with pytest.raises(TypeError):
            await stub.Input(iter([request_]))
        with pytest.raises(TypeError):
            await stub.Output(request_).read()


async def test_a_message_of_another_type_is_named() -> None:
    async with connected(aio) as stub:
        with pytest.raises(
            TypeError, match=r"must be of the type aiofabric\.interop\.Request, not aiofabric\.interop\.Response"
        ):
            await stub.Unary(pb2.Response())


async def test_a_timeout_of_zero_is_a_millisecond() -> None:
    async with connected(aio) as stub:
        await stub.Unary(pb2.Request())
        codes = [await stub.Unary(pb2.Request(), timeout=0).code() for _ in range(50)]
        assert grpc.StatusCode.OK in codes  # as on grpc.aio; a busy machine needs more time for some
        assert await stub.Unary(pb2.Request(wait_ms=10_000), timeout=0).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await stub.Unary(pb2.Request(), timeout=-1).code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_several_responses_to_a_unary_call_end_it() -> None:
    async with started(aio) as (_, target), aio.insecure_channel(target) as channel:
        method = f"/{pb2.DESCRIPTOR.services_by_name['Interop'].full_name}/Output"
        for sizes in ([1, 2], [1] * 1000):
            call = channel.unary_unary(method, pb2.Request.SerializeToString, pb2.Response.FromString)
            with pytest.raises(aio.AioRpcError, match="The server sent more than one response") as raised:
                await call(pb2.Request(sizes=sizes), timeout=20)
            assert raised.value.code() is grpc.StatusCode.INTERNAL
        call = channel.unary_unary(method, pb2.Request.SerializeToString, pb2.Response.FromString)
        assert len((await call(pb2.Request(sizes=[3]), timeout=20)).body) == 3


async def test_an_abort_with_ok_is_an_error() -> None:
    class Aborts(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            await context.abort(grpc.StatusCode.OK, "fine")

    async with connected(aio, Aborts()) as stub:
        with pytest.raises(aio.AioRpcError) as raised:
            await stub.Unary(pb2.Request())
        assert raised.value.code() is grpc.StatusCode.UNKNOWN


@pytest.mark.parametrize("seconds", [float("inf"), 1e20, 1e9])
async def test_a_very_long_timeout_is_none(seconds: float) -> None:
    async with connected(aio) as stub:
        assert (await stub.Unary(pb2.Request(size=1), timeout=seconds)).body == b"\0"


async def test_a_timeout_that_is_no_number_has_passed() -> None:
    async with connected(aio) as stub:
        with pytest.raises(aio.AioRpcError, match="DEADLINE_EXCEEDED"):
            await stub.Unary(pb2.Request(), timeout=float("nan"))
        with pytest.raises(TypeError):
            await stub.Unary(pb2.Request(), timeout="5")


async def test_a_handler_that_cancels_itself_ends_its_call() -> None:
    class Cancels(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            raise asyncio.CancelledError

    async with connected(aio, Cancels()) as stub:
        with pytest.raises(aio.AioRpcError) as raised:
            await stub.Unary(pb2.Request())
        assert raised.value.code() is grpc.StatusCode.UNKNOWN


async def test_tasks_may_write_at_the_same_time() -> None:
    async with connected(aio) as stub:
        call = stub.Duplex()
        await asyncio.gather(*(call.write(pb2.Request(sizes=[size])) for size in range(5)))
        responses = await asyncio.gather(*(call.read() for _ in range(5)))
        await call.done_writing()
        assert sorted(len(response.body) for response in responses) == [0, 1, 2, 3, 4]
        assert await call.code() is grpc.StatusCode.OK


async def test_a_port_cannot_be_added_after_the_start() -> None:
    async with started(aio) as (server, _):
        with pytest.raises(RuntimeError, match="before the server starts"):
            server.add_insecure_port("127.0.0.1:0")


async def test_a_port_is_not_shared() -> None:
    async with started(aio) as (_, target):
        with pytest.raises(RuntimeError, match="Failed to bind"):
            aio.server(options=[("grpc.so_reuseport", 1)]).add_insecure_port(target)


async def test_a_forgotten_stream_is_cancelled() -> None:
    class Endless(Interop):
        async def Output(self, request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                while True:
                    yield pb2.Response(body=bytes(100))
                    await asyncio.sleep(0.001)
            finally:
                ended.set()

    ended = asyncio.Event()
    async with connected(aio, Endless()) as stub:
        async for _ in stub.Output(pb2.Request()):
            break
        gc.collect()
        await asyncio.wait_for(ended.wait(), 10)


async def test_tls_is_refused() -> None:
    channel = aio.secure_channel("127.0.0.1:1", grpc.ssl_channel_credentials())
    with pytest.raises(NotImplementedError, match="TLS"):
        channel.unary_unary("/a/b")(b"")
    await channel.close()
    with pytest.raises(RuntimeError, match="TLS"):
        aio.server().add_secure_port("127.0.0.1:0", grpc.local_server_credentials())


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("unix:/tmp/socket", "scheme unix"),
        ("xds:///service", "scheme xds"),
        ("a:b:c", "IPv6"),
        ("127.0.0.1:65536", "at most 65535"),
        ("", "host:port"),
    ],
)
async def test_a_target_that_cannot_be_says_why(target: str, text: str) -> None:
    async with aio.insecure_channel(target) as channel:
        with pytest.raises(aio.AioRpcError) as raised:
            await channel.unary_unary("/a/b")(b"")
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert text in str(raised.value.details())


async def test_a_target_without_a_port_has_that_of_grpc() -> None:
    async with aio.insecure_channel("127.0.0.1") as channel:
        with pytest.raises(aio.AioRpcError, match=":443"):
            await channel.unary_unary("/a/b")(b"")


async def test_a_channel_of_another_loop_is_refused() -> None:
    raised: list[BaseException] = []

    async def use(stub: Any) -> None:
        await stub.Nothing(pb2.Empty())

    def run(stub: Any) -> None:
        try:
            asyncio.run(use(stub))
        except BaseException as error:
            raised.append(error)

    async with connected(aio) as stub:
        await stub.Nothing(pb2.Empty())
        thread = threading.Thread(target=run, args=(stub,))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert [type(error) for error in raised] == [WrongLoopError]
        await stub.Nothing(pb2.Empty())  # nothing is broken


async def test_an_error_says_whether_the_call_may_have_run() -> None:
    class Dies(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            begun.set()
            await asyncio.sleep(60)

    begun = asyncio.Event()
    async with started(aio, Dies()) as (server, target), aio.insecure_channel(target) as channel:
        stub = pb2_grpc.InteropStub(channel)
        call = stub.Unary(pb2.Request())
        await begun.wait()
        await server.stop(None)
        errors = []
        for each in (call, stub.Unary(pb2.Request())):
            with pytest.raises(aio.CallFailedError) as raised:
                await each
            errors.append((raised.value.code(), raised.value.may_have_run))
    assert errors == [(grpc.StatusCode.UNAVAILABLE, True), (grpc.StatusCode.UNAVAILABLE, False)]


async def test_an_invalid_service_config_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        aio.insecure_channel("127.0.0.1:1", options=[("grpc.service_config", "{")])


async def test_grpc_on_one_side_is_refused_at_once() -> None:
    """A peer that speaks HTTP/2 gets an error, and the server serves on."""
    ended = run_in_child(
        """
        import asyncio
        import grpc.aio
        from aiofabric.rpc import grpc as ours
        from tests.rpc.grpc.generated import pb2, pb2_grpc
        from tests.rpc.grpc.service import started

        async def call(aio, target):
            async with aio.insecure_channel(target) as channel:
                try:
                    await pb2_grpc.InteropStub(channel).Unary(pb2.Request(), timeout=10)
                    return "OK"
                except grpc.aio.AioRpcError as error:
                    return error.code().name

        async def main():
            async with started(ours) as (_, target):
                print(await call(grpc.aio, target), await call(ours, target))
            async with started(grpc.aio) as (_, target):
                print(await call(ours, target), await call(grpc.aio, target))

        asyncio.run(main())
        """
    )
    assert ended.out.split() == ["UNAVAILABLE", "OK", "UNAVAILABLE", "OK"], ended.err


async def test_the_shim_stands_in_for_grpc_aio() -> None:
    ended = run_in_child(
        """
        from aiofabric.rpc.grpc.shim import stand_in

        stand_in()

        import asyncio
        import grpc.experimental.aio
        from grpc import aio
        from tests.rpc.grpc.generated import pb2
        from tests.rpc.grpc.service import connected

        async def main():
            async with connected(aio) as stub:
                return len((await stub.Unary(pb2.Request(size=5))).body)

        print(aio.insecure_channel.__module__, grpc.experimental.aio is aio, asyncio.run(main()))
        """
    )
    assert ended.out.split() == ["aiofabric.rpc.grpc.client.channel", "True", "5"], ended.err


async def test_without_grpcio_the_error_names_the_extra() -> None:
    ended = run_in_child(
        """
        import sys
        sys.modules["grpc"] = None
        import aiofabric.rpc
        try:
            import aiofabric.rpc.grpc
        except ImportError as error:
            print(error)
        """
    )
    assert "pip install '.[rpc-grpc]'" in ended.out, ended.err


async def test_the_runtime_imports_neither_grpc_nor_protobuf() -> None:
    ended = run_in_child(
        """
        import sys
        from aiofabric.rpc import Channel, Server
        print([name for name in sys.modules if name in ("grpc", "google.protobuf")])
        """
    )
    assert ended.out.strip() == "[]", ended.err


@pytest.mark.parametrize("address", [50051, None, ("127.0.0.1", 0)])
async def test_an_address_that_is_no_text_is_refused(address: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a str such as '127\.0\.0\.1:50051', not"):
        aio.server().add_insecure_port(address)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "it has no port: add one, such as 127.0.0.1:50051, or 127.0.0.1:0 for any free one"),
        ("[::1]", "it has no port"),
        ("unix:/tmp/socket", "the scheme unix is not supported: use a host and a port"),
        ("unix-abstract:name", "the scheme unix-abstract is not supported"),
    ],
)
async def test_an_address_without_a_port_is_refused(address: str, reason: str) -> None:
    with pytest.raises(RuntimeError, match=rf"Failed to bind to address {re.escape(address)}: {re.escape(reason)}"):
        aio.server().add_insecure_port(address)


async def test_a_done_callback_that_would_have_to_be_awaited_is_refused() -> None:
    refused: list[str] = []

    async def callback(_: Any) -> None:
        """Never called."""

    async def handler(request: bytes, context: Any) -> bytes:
        with pytest.raises(TypeError, match="so it must be a plain function"):
            context.add_done_callback(callback)
        refused.append("server")
        return request

    class Interceptor(aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            return await continuation(details, request)

    server = aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("a", {"b": grpc.unary_unary_rpc_method_handler(handler)}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for interceptors in ([], [Interceptor()]):
        async with aio.insecure_channel(f"127.0.0.1:{port}", interceptors=interceptors) as channel:
            call = channel.unary_unary("/a/b")(b"x")
            for wrong, text in ((callback, "so it must be a plain function"), (5, "must be a function, not 5")):
                with pytest.raises(TypeError, match=text):
                    call.add_done_callback(wrong)
            assert await call == b"x"
    assert refused == ["server"] * 2
    await server.stop(None)


@pytest.mark.filterwarnings("error")
async def test_a_channel_that_is_dropped_ends_its_connection_when_its_calls_have_ended() -> None:
    async with started(aio) as (server, target):
        stub = pb2_grpc.InteropStub(aio.insecure_channel(target))
        call = stub.Unary(pb2.Request())
        del stub
        gc.collect()
        await call
        assert len(server._core.transports) == 1
        del call
        gc.collect()
        async with asyncio.timeout(10):
            while server._core.transports:  # noqa: ASYNC110 - the state is of another task
                await asyncio.sleep(0.001)
