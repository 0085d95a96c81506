"""Mistakes: each must be an exception at the place where it is made, or a status that says why."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from tests.rpc.grpc.generated import pb2, pb2_grpc
from tests.rpc.grpc.programs.marks import outcome, program, status
from tests.rpc.grpc.service import Interop, connected, started


async def _raised(function: Any) -> str:
    try:
        function()
    except BaseException as error:
        return type(error).__name__
    return "nothing"


async def _called(begin: Any) -> None:
    await begin()


@program
async def both_styles_in_one_call(aio: Any) -> Any:
    async with connected(aio) as stub:
        reads = stub.Output(pb2.Request(sizes=[1, 2, 3], wait_ms=20))
        await reads.read()
        iterates = stub.Output(pb2.Request(sizes=[1, 2, 3], wait_ms=20))
        await anext(aiter(iterates))
        writes = stub.Input(iter([]))
        return [
            await _raised(lambda: aiter(reads)),
            await outcome(iterates.read()),
            await outcome(writes.write(pb2.Request())),
            await outcome(writes.done_writing()),
        ]


@program
async def a_closed_channel(aio: Any) -> Any:
    async with started(aio) as (_, target):
        channel = aio.insecure_channel(target)
        stub = pb2_grpc.InteropStub(channel)
        await stub.Nothing(pb2.Empty())
        await channel.close()
        await channel.close()
        return [
            await _raised(lambda: stub.Nothing(pb2.Empty())),
            await _raised(lambda: stub.Output(pb2.Request())),
            await _raised(lambda: stub.Input()),
            await outcome(channel.wait_for_state_change(grpc.ChannelConnectivity.SHUTDOWN)),
            await outcome(channel.channel_ready()),
            channel.get_state().name,
        ]


@program
async def wrong_metadata(aio: Any) -> Any:
    async with connected(aio) as stub:
        return [
            await outcome(_called(lambda metadata=metadata: stub.Unary(pb2.Request(), metadata=metadata)))
            for metadata in ((("k", 1),), ((1, "v"),))
        ]


@program
async def wrong_responses(aio: Any) -> Any:
    class Wrong(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            return None if request.size else "text"

        async def Output(self, request: Any, context: Any) -> Any:
            yield 17

    async with connected(aio, Wrong()) as stub:
        return [
            await outcome(stub.Unary(pb2.Request())),
            await outcome(stub.Unary(pb2.Request(size=1))),
            await outcome(anext(aiter(stub.Output(pb2.Request())))),
        ]


@program
async def details_that_are_no_text(aio: Any) -> Any:
    class Wrong(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            await context.abort(grpc.StatusCode.NOT_FOUND, 5)

        async def Nothing(self, request: Any, context: Any) -> Any:
            context.set_details(5)
            return pb2.Empty()

    async with connected(aio, Wrong()) as stub:
        return await outcome(stub.Unary(pb2.Request())), await outcome(stub.Nothing(pb2.Empty()))


@program
async def handlers_of_the_wrong_kind(aio: Any) -> Any:
    class Wrong(pb2_grpc.InteropServicer):
        async def Output(self, request: Any, context: Any) -> Any:
            return pb2.Response()

        async def Input(self, request_iterator: Any, context: Any) -> Any:
            for _ in request_iterator:
                pass
            return pb2.Total()

    async with connected(aio, Wrong()) as stub:
        responses = [len(response.body) async for response in stub.Output(pb2.Request())]
        return responses, await outcome(stub.Input([pb2.Request()]))


@program
async def waiters_of_one_call_of_which_one_is_cancelled(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Unary(pb2.Request(wait_ms=60_000))
        waiters = [asyncio.create_task(_called(lambda: call)) for _ in range(3)]
        await asyncio.sleep(0.02)
        waiters[0].cancel()
        return [type(each).__name__ for each in await asyncio.gather(*waiters, return_exceptions=True)]


@program
async def a_handler_that_swallows_its_abort(aio: Any) -> Any:
    class Swallows(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            with suppress(BaseException):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
            return pb2.Response(body=b"yes")

    async with connected(aio, Swallows()) as stub:
        return await outcome(stub.Unary(pb2.Request()), text=True)


@program
async def wrong_servers(aio: Any) -> Any:
    async with started(aio) as (server, target):
        return [
            await _raised(lambda: aio.server(interceptors=[object()])),
            await _raised(lambda: aio.server(maximum_concurrent_rpcs=0)),
            await _raised(lambda: aio.insecure_channel(target, interceptors=[object()])),
            await _raised(lambda: aio.insecure_channel(target, options=[("a",)])),
            await _raised(lambda: aio.insecure_channel(target, options=[("a", None)])),
            await _raised(lambda: aio.server().add_insecure_port("nonsense")),
            await outcome(aio.server().stop(None)),
            await outcome(server.wait_for_termination(0.01)),
        ]


@program
async def call_credentials_without_tls(aio: Any) -> Any:
    credentials = grpc.access_token_call_credentials("token")
    async with connected(aio) as stub:
        return await _raised(lambda: stub.Unary(pb2.Request(), credentials=credentials))


@program
async def a_handler_that_shields_itself(aio: Any) -> Any:
    class Stubborn(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.2)
                ended.set()
            return pb2.Response()

    begun, ended = asyncio.Event(), asyncio.Event()
    async with connected(aio, Stubborn()) as stub:
        call = stub.Unary(pb2.Request())
        await begun.wait()
        call.cancel()
        error, early = await outcome(call), not ended.is_set()
        await asyncio.wait_for(ended.wait(), 10)
        return error, early, (await status(call))[:2]


@program
async def writes_after_a_cancel(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Duplex()
        await call.write(pb2.Request(sizes=[1]))
        await call.read()
        call.cancel()
        return await outcome(call.write(pb2.Request())), await outcome(call.done_writing()), await outcome(call.read())
