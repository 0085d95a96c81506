"""Interceptors of clients and of servers."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import grpc

from tests.rpc.grpc.generated import pb2
from tests.rpc.grpc.programs.marks import outcome, pairs, program, status
from tests.rpc.grpc.service import Interop, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@program
async def the_order_of_client_interceptors(aio: Any) -> Any:
    class Notes(aio.UnaryUnaryClientInterceptor):
        def __init__(self, name: str) -> None:
            self.name = name

        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            seen.append((self.name, details.method, details.timeout, type(details.metadata).__name__))
            details.metadata.add("order", self.name)
            call = await continuation(details, request)
            seen.append((self.name, (await call.code()).name))
            return call

    class Echoes(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            await context.send_initial_metadata([pair for pair in context.invocation_metadata() if pair[0] == "order"])
            return pb2.Response(body=bytes(request.size))

    seen: list[Any] = []
    async with connected(aio, Echoes(), interceptors=[Notes("first"), Notes("second")]) as stub:
        call = stub.Unary(pb2.Request(size=1), timeout=5, metadata=(("a", "b"),))
        response = await call
        return seen, len(response.body), pairs(await call.initial_metadata()), (await status(call))[:2]


@program
async def an_interceptor_that_repeats(aio: Any) -> Any:
    class Repeats(aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            for _ in range(3):
                call = await continuation(details, request)
                codes.append((await call.code()).name)
                if codes[-1] == "OK":
                    break
            return call

    class Recovers(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            if len(codes) < 2:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            return pb2.Response(body=b"now")

    codes: list[str] = []
    async with connected(aio, Recovers(), interceptors=[Repeats()]) as stub:
        return (await stub.Unary(pb2.Request())).body, codes


@program
async def an_interceptor_that_answers(aio: Any) -> Any:
    class Answers(aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            return pb2.Response(body=b"cached")

    async with connected(aio, interceptors=[Answers()]) as stub:
        call = stub.Unary(pb2.Request())
        return (await call).body, call.cancel(), call.cancelled(), call.done(), await status(call)


@program
async def an_interceptor_that_raises(aio: Any) -> Any:
    class Raises(aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            raise ValueError("of the interceptor")

    async with connected(aio, interceptors=[Raises()]) as stub:
        call = stub.Unary(pb2.Request())
        return await outcome(call, text=True), call.done(), call.cancelled()


@program
async def interceptors_of_streams(aio: Any) -> Any:
    class Output(aio.UnaryStreamClientInterceptor):
        async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
            call = await continuation(details, request)

            async def doubled() -> AsyncIterator[Any]:
                async for response in call:
                    yield pb2.Response(body=response.body * 2)

            return doubled()

    class Input(aio.StreamUnaryClientInterceptor):
        async def intercept_stream_unary(self, continuation: Any, details: Any, request_iterator: Any) -> Any:
            async def longer() -> AsyncIterator[Any]:
                async for request in request_iterator:
                    yield pb2.Request(body=request.body + b"+")

            return await continuation(details, longer())

    class Duplex(aio.StreamStreamClientInterceptor):
        async def intercept_stream_stream(self, continuation: Any, details: Any, request_iterator: Any) -> Any:
            return await continuation(details, request_iterator)

    async with connected(aio, interceptors=[Output(), Input(), Duplex()]) as stub:
        output = [len(response.body) async for response in stub.Output(pb2.Request(sizes=[1, 2]))]
        call = stub.Input()
        for _ in range(3):
            await call.write(pb2.Request(body=b"1"))
        await call.done_writing()
        total = (await call).size
        duplex = stub.Duplex()
        await duplex.write(pb2.Request(sizes=[4, 5]))
        sizes = [len((await duplex.read()).body) for _ in range(2)]
        await duplex.done_writing()
        return output, total, sizes, await duplex.read() is aio.EOF, await status(duplex), await status(call)


@program
async def a_cancel_within_interceptors(aio: Any) -> Any:
    class Waits(aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            await asyncio.sleep(60)

    async with connected(aio, interceptors=[Waits()]) as stub:
        call = stub.Unary(pb2.Request())
        await asyncio.sleep(0)
        cancelled = call.cancel()
        return cancelled, await outcome(call), call.cancelled(), call.done(), await status(call)


@program
async def server_interceptors(aio: Any) -> Any:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    class Notes(aio.ServerInterceptor):
        def __init__(self, name: str) -> None:
            self.name = name

        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            seen.append((self.name, details.method, ("k", "v") in details.invocation_metadata, variable.get()))
            variable.set(self.name)
            return await continuation(details)

    class Reads(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            return pb2.Response(body=variable.get().encode())

    seen: list[Any] = []
    async with connected(aio, Reads(), server_interceptors=[Notes("first"), Notes("second")]) as stub:
        bodies = [(await stub.Unary(pb2.Request(), metadata=(("k", "v"),))).body for _ in range(2)]
        return bodies, seen


@program
async def a_server_interceptor_that_refuses(aio: Any) -> Any:
    class Guards(aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            if ("token", "right") in details.invocation_metadata:
                return await continuation(details)

            async def refuse(request: Any, context: Any) -> None:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")

            return grpc.unary_unary_rpc_method_handler(refuse)

    async with connected(aio, Interop(), server_interceptors=[Guards()]) as stub:
        right = await outcome(status(stub.Unary(pb2.Request(), metadata=(("token", "right"),))))
        return right, await outcome(stub.Unary(pb2.Request()), text=True)


@program
async def a_server_interceptor_that_wraps_the_handler(aio: Any) -> Any:
    class Wraps(aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            handler = await continuation(details)
            if handler is None or handler.request_streaming or handler.response_streaming:
                return handler

            async def wrapped(request: Any, context: Any) -> Any:
                response = await handler.unary_unary(request, context)
                return pb2.Response(body=response.body + b"!")

            return grpc.unary_unary_rpc_method_handler(
                wrapped, handler.request_deserializer, handler.response_serializer
            )

    async with connected(aio, Interop(), server_interceptors=[Wraps()]) as stub:
        body = (await stub.Unary(pb2.Request(size=1))).body
        sizes = [len(response.body) async for response in stub.Output(pb2.Request(sizes=[1]))]
        return body, sizes, await outcome(stub.Unimplemented(pb2.Empty()), text=True)


@program
async def a_server_interceptor_that_raises(aio: Any) -> Any:
    class Raises(aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            raise ValueError("of the interceptor")

    async with connected(aio, Interop(), server_interceptors=[Raises()]) as stub:
        return await outcome(stub.Unary(pb2.Request()))
