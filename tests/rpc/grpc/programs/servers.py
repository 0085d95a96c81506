"""Servers: sync handlers, stopping, limits, states of channels."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from tests.rpc.grpc.generated import pb2, pb2_grpc
from tests.rpc.grpc.programs.marks import outcome, pairs, program, status
from tests.rpc.grpc.service import ECHO_TEXT, Interop, connected, started

if TYPE_CHECKING:
    from collections.abc import Iterator


class Sync(pb2_grpc.InteropServicer):
    """Handlers of grpcio's synchronous kind."""

    def Unary(self, request: Any, context: Any) -> Any:
        if request.HasField("status"):
            context.abort(grpc.StatusCode.ABORTED, request.status.text)
        context.send_initial_metadata(((ECHO_TEXT, "sync"),))
        context.set_trailing_metadata((("t", "sync"),))
        if request.size == 99:
            context.set_code(grpc.StatusCode.OUT_OF_RANGE)
            context.set_details("99")
        if request.size == 98:
            raise ValueError("98")
        return pb2.Response(body=bytes(request.size))

    def Output(self, request: Any, context: Any) -> Iterator[Any]:
        for size in request.sizes:
            time.sleep(0.001)
            yield pb2.Response(body=bytes(size))

    def Input(self, request_iterator: Any, context: Any) -> Any:
        return pb2.Total(size=sum(len(request.body) for request in request_iterator))

    def Duplex(self, request_iterator: Any, context: Any) -> Iterator[Any]:
        for request in request_iterator:
            yield pb2.Response(body=request.body)


@program
async def sync_handlers(aio: Any) -> Any:
    seen: list[Any] = []
    with ThreadPoolExecutor(4) as pool:
        for each in (pool, None):
            async with connected(aio, Sync(), migration_thread_pool=each) as stub:
                call = stub.Unary(pb2.Request(size=3))
                seen.append(len((await call).body))
                seen.append(await status(call))
                seen.append([len(response.body) async for response in stub.Output(pb2.Request(sizes=[1, 2, 3]))])
                seen.append((await stub.Input(iter([pb2.Request(body=b"12")] * 4))).size)
                seen.append([r.body async for r in stub.Duplex(iter([pb2.Request(body=b"1"), pb2.Request(body=b"2")]))])
                seen.append(await outcome(stub.Unary(pb2.Request(status=pb2.Status(text="sync"))), text=True))
                seen.append(await outcome(stub.Unary(pb2.Request(size=99)), text=True))
                seen.append(await outcome(stub.Unary(pb2.Request(size=98)), text=True))
    return seen


@program
async def a_stop_with_grace(aio: Any) -> Any:
    class Slow(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            begun.set()
            return await super().Unary(request, context)

    begun = asyncio.Event()
    async with started(aio, Slow()) as (server, target), aio.insecure_channel(target) as channel:
        call = pb2_grpc.InteropStub(channel).Unary(pb2.Request(size=1, wait_ms=200))
        await begun.wait()
        stopped = asyncio.create_task(server.stop(10))
        body = (await call).body
        await asyncio.wait_for(stopped, 10)
        return body, await server.wait_for_termination(10)


@program
async def a_stop_without_grace(aio: Any) -> Any:
    class Slow(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            begun.set()
            return await super().Unary(request, context)

    begun = asyncio.Event()
    async with started(aio, Slow()) as (server, target), aio.insecure_channel(target) as channel:
        call = pb2_grpc.InteropStub(channel).Unary(pb2.Request(wait_ms=60_000))
        await begun.wait()
        await server.stop(None)
        return await outcome(call), await outcome(server.start())


@program
async def the_shortest_grace_wins(aio: Any) -> Any:
    class Slow(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            begun.set()
            return await super().Unary(request, context)

    begun = asyncio.Event()
    async with started(aio, Slow()) as (server, target), aio.insecure_channel(target) as channel:
        call = pb2_grpc.InteropStub(channel).Unary(pb2.Request(wait_ms=60_000))
        await begun.wait()
        stops = [server.stop(grace) for grace in (60, 0.1, 30)]
        await asyncio.wait_for(asyncio.gather(*stops), 20)
        return await outcome(call)


async def _call(aio: Any, port: int) -> Any:
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        return (await pb2_grpc.InteropStub(channel).Unary(pb2.Request(size=1), timeout=20)).body


@program
async def a_wait_for_the_end_of_a_server_that_has_not_started(aio: Any) -> Any:
    server = aio.server()
    pb2_grpc.add_InteropServicer_to_server(Interop(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    early = await server.wait_for_termination(0.01)
    waiting = asyncio.create_task(server.wait_for_termination())
    await asyncio.sleep(0)
    await server.start()
    body = await _call(aio, port)
    await server.stop(None)
    return early, body, await asyncio.wait_for(waiting, 10)


@program
async def a_stop_before_the_start_has_no_effect(aio: Any) -> Any:
    server = aio.server()
    pb2_grpc.add_InteropServicer_to_server(Interop(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.stop(None)
    early = await server.wait_for_termination(0.01)
    await server.start()
    body = await _call(aio, port)
    await server.stop(None)
    return early, body, await server.wait_for_termination(10)


@program
async def a_limit_on_calls(aio: Any) -> Any:
    class Slow(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            running.append(1)
            if len(running) == 2:
                begun.set()
            return await super().Unary(request, context)

    running: list[int] = []
    begun = asyncio.Event()
    async with connected(aio, Slow(), maximum_concurrent_rpcs=2) as stub:
        calls = [stub.Unary(pb2.Request(wait_ms=60_000)) for _ in range(2)]
        await begun.wait()
        refused = await outcome(stub.Unary(pb2.Request()))
        for call in calls:
            call.cancel()
        return refused


@program
async def a_server_that_starts_late(aio: Any) -> Any:
    async with started(aio) as (_, target):
        pass
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]
    async with aio.insecure_channel(target, options=options) as channel:
        call = pb2_grpc.InteropStub(channel).Unary(pb2.Request(size=2), wait_for_ready=True, timeout=20)
        await asyncio.sleep(0.2)
        server = aio.server()
        pb2_grpc.add_InteropServicer_to_server(Interop(), server)
        server.add_insecure_port(target)
        await server.start()
        try:
            return len((await call).body)
        finally:
            await server.stop(None)


@program
async def the_states_of_a_channel(aio: Any) -> Any:
    async with started(aio) as (_, target):
        channel = aio.insecure_channel(target)
        states = [channel.get_state(), channel.get_state(try_to_connect=True)]
        await asyncio.wait_for(channel.channel_ready(), 10)
        states.append(channel.get_state())
        waiting = asyncio.create_task(channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
        await asyncio.sleep(0)
        await channel.close()
        await asyncio.wait_for(waiting, 10)
        states.append(channel.get_state())
        return [state.name for state in states]


@program
async def a_channel_that_closes_under_calls(aio: Any) -> Any:
    async with started(aio) as (_, target):
        channel = aio.insecure_channel(target)
        stub = pb2_grpc.InteropStub(channel)
        await stub.Nothing(pb2.Empty())
        cut = stub.Unary(pb2.Request(wait_ms=60_000))
        await asyncio.sleep(0.05)
        await channel.close()
        graceful = aio.insecure_channel(target)
        served = pb2_grpc.InteropStub(graceful).Unary(pb2.Request(wait_ms=200))
        await asyncio.sleep(0.05)
        await graceful.close(10)
        return await outcome(cut), cut.cancelled(), (await served).body


@program
async def generic_and_registered_handlers(aio: Any) -> Any:
    async def reverse(request: bytes, context: Any) -> bytes:
        return request[::-1]

    class Any_(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(reverse) if details.method.startswith("/any/") else None

    server = aio.server()
    server.add_generic_rpc_handlers((Any_(),))
    server.add_registered_method_handlers("set", {"Reverse": grpc.unary_unary_rpc_method_handler(reverse)})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            return [
                await outcome(channel.unary_unary(method)(b"abc"), text=True)
                for method in ("/any/thing", "/set/Reverse", "/other/Reverse")
            ]
    finally:
        await server.stop(None)


@program
async def callbacks_and_state_of_a_context(aio: Any) -> Any:
    class Notes(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            seen.append((context.done(), context.cancelled(), context.code(), context.time_remaining()))
            seen.append(context.peer().startswith(("ipv4:127.0.0.1:", "ipv6:")))
            seen.append((context.peer_identities(), context.auth_context()))
            context.add_done_callback(lambda done: seen.append(done.done()))
            context.add_done_callback(lambda _: ended.set())
            return pb2.Response()

    seen: list[Any] = []
    ended = asyncio.Event()
    async with connected(aio, Notes()) as stub:
        await stub.Unary(pb2.Request())
        await asyncio.wait_for(ended.wait(), 10)
        return seen


@program
async def an_unread_initial_metadata(aio: Any) -> Any:
    class Late(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            await context.send_initial_metadata((("a", "1"),))
            seen.append(await outcome(context.send_initial_metadata((("a", "2"),))))
            return pb2.Response()

    seen: list[Any] = []
    async with connected(aio, Late()) as stub:
        call = stub.Unary(pb2.Request())
        await call
        return seen, pairs(await call.initial_metadata())
