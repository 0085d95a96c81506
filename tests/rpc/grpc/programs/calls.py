"""Unary calls: results, statuses, metadata, deadlines, cancels, callbacks."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import grpc

from tests.rpc.grpc.generated import pb2, pb2_grpc
from tests.rpc.grpc.programs.marks import outcome, pairs, program, status
from tests.rpc.grpc.service import ECHO_BINARY, ECHO_TEXT, Interop, connected, started


@program
async def a_response(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Unary(pb2.Request(size=5))
        before = call.done(), call.cancelled(), call.time_remaining()
        response = await call
        return before, response.body, response is await call, await status(call), call.cancel(), call.cancelled()


@program
async def an_abort(aio: Any) -> Any:
    class Aborts(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            try:
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: ürgh", (("why", "none"),))
            finally:
                seen.extend([context.code(), context.details(), context.trailing_metadata()])
                ended.set()

    seen: list[Any] = []
    ended = asyncio.Event()
    async with connected(aio, Aborts()) as stub:
        call = stub.Unary(pb2.Request())
        error = await outcome(call, text=True)
        await asyncio.wait_for(ended.wait(), 10)  # the status may reach the client before `abort` raises
        return error, await outcome(call, text=True), await status(call), [str(each) for each in seen]


@program
async def an_exception_of_the_handler(aio: Any) -> Any:
    class Raises(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            raise ValueError("of the handler")

    async with connected(aio, Raises()) as stub:
        return await outcome(stub.Unary(pb2.Request()), text=True)


@program
async def a_status_without_an_exception(aio: Any) -> Any:
    class Sets(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            context.set_code(grpc.StatusCode.DATA_LOSS)
            context.set_details("lost")
            context.set_trailing_metadata((("left", "nothing"),))

    async with connected(aio, Sets()) as stub:
        return await outcome(stub.Unary(pb2.Request()), text=True)


@program
async def metadata_both_ways(aio: Any) -> Any:
    metadata = ((ECHO_TEXT, "text"), (ECHO_BINARY, b"\0\xab\xff"))
    async with connected(aio) as stub:
        call = stub.Unary(pb2.Request(), metadata=metadata)
        initial = await call.initial_metadata()
        await call
        return pairs(initial), await status(call), initial == aio.Metadata(metadata[0])


@program
async def metadata_as_the_handler_reads_it(aio: Any) -> Any:
    class Reads(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            seen.append(sorted(pairs(context.invocation_metadata()) or ()))  # HTTP/2 groups equal keys
            seen.append([(item.key, item.value) for item in context.invocation_metadata() if item.key == "a"])
            return pb2.Response()

    seen: list[Any] = []
    async with connected(aio, Reads()) as stub:
        for metadata in ((("a", "1"), ("b-bin", b"\1"), ("a", "2")), aio.Metadata(("a", "3"), ("c", "4")), None):
            await stub.Unary(pb2.Request(), metadata=metadata)
    return seen


@program
async def a_deadline(aio: Any) -> Any:
    class Sleeps(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            remaining.append(0 < context.time_remaining() < 2)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.set()
                raise

    remaining: list[bool] = []
    ended = asyncio.Event()
    async with connected(aio, Sleeps()) as stub:
        call = stub.Unary(pb2.Request(), timeout=1)
        error = await outcome(call, text=True)
        await asyncio.wait_for(ended.wait(), 10)
        return error, remaining, (await status(call))[:2], call.cancelled(), call.done()


@program
async def a_deadline_that_has_passed(aio: Any) -> Any:
    async with connected(aio) as stub:
        return await outcome(stub.Unary(pb2.Request(), timeout=-1))


@program
async def a_cancel(aio: Any) -> Any:
    class Sleeps(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.set()
                raise

    begun, ended = asyncio.Event(), asyncio.Event()
    async with connected(aio, Sleeps()) as stub:
        call = stub.Unary(pb2.Request())
        await begun.wait()
        cancels = call.cancel(), call.cancel()
        error = await outcome(call)
        await asyncio.wait_for(ended.wait(), 10)
        return cancels, error, await status(call)


@program
async def a_cancelled_task(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Unary(pb2.Request(wait_ms=60_000))

        async def wait() -> None:
            await call

        task = asyncio.create_task(wait())
        await asyncio.sleep(0.05)
        task.cancel()
        return await outcome(task), (await status(call))[:2], call.cancelled()


@program
async def a_timeout_of_asyncio(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Unary(pb2.Request(wait_ms=60_000))
        return await outcome(asyncio.wait_for(call, 0.1)), call.cancelled(), (await status(call))[:2]


@program
async def callbacks_of_a_call(aio: Any) -> Any:
    seen: list[Any] = []
    ended = asyncio.Event()
    async with connected(aio) as stub:
        call = stub.Unary(pb2.Request())
        call.add_done_callback(lambda done: seen.append(("early", done is call, done.done())))
        await call
        call.add_done_callback(lambda done: seen.append(("late", done is call, done.done())))
        call.add_done_callback(lambda _: ended.set())
        await asyncio.wait_for(ended.wait(), 10)
    return seen


@program
async def many_at_once(aio: Any) -> Any:
    async with connected(aio) as stub:
        responses = await asyncio.gather(*(stub.Unary(pb2.Request(size=size)) for size in range(200)))
        return [len(response.body) for response in responses]


@program
async def an_error_that_is_pickled(aio: Any) -> Any:
    async with connected(aio) as stub:
        try:
            await stub.Unary(pb2.Request(status=pb2.Status(code=5, text="gone")))
        except grpc.RpcError as error:
            copy = pickle.loads(pickle.dumps(error))
            return isinstance(error, grpc.aio.AioRpcError), copy.code().name, copy.details()


@program
async def no_server(aio: Any) -> Any:
    async with started(aio) as (_, target):
        pass
    async with aio.insecure_channel(target) as channel:
        call = pb2_grpc.InteropStub(channel).Unary(pb2.Request())
        return await outcome(call), await outcome(call.wait_for_connection()), (await call.code()).name


@program
async def messages_that_are_too_long(aio: Any) -> Any:
    options = [("grpc.max_receive_message_length", 1000)]
    async with started(aio, options=options) as (_, target):
        async with aio.insecure_channel(target) as channel:
            up = await outcome(pb2_grpc.InteropStub(channel).Unary(pb2.Request(body=bytes(2000))))
        async with aio.insecure_channel(target, options=options) as channel:
            down = await outcome(pb2_grpc.InteropStub(channel).Unary(pb2.Request(size=2000)))
    async with connected(aio) as stub:
        default = await outcome(stub.Unary(pb2.Request(body=bytes(5 << 20))))
        return up, down, default, len((await stub.Unary(pb2.Request(size=4_000_000))).body)


@program
async def compression_arguments(aio: Any) -> Any:
    class Compresses(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            context.set_compression(grpc.Compression.Gzip)
            context.disable_next_message_compression()
            return pb2.Response(body=request.body)

    async with (
        started(aio, Compresses(), compression=grpc.Compression.Deflate) as (_, target),
        aio.insecure_channel(target, compression=grpc.Compression.Gzip) as channel,
    ):
        stub = pb2_grpc.InteropStub(channel)
        call = stub.Unary(pb2.Request(body=b"x" * 100), compression=grpc.Compression.NoCompression)
        return len((await call).body), await status(call)
