"""Calls with many requests or responses, in both styles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.rpc.grpc.generated import pb2, pb2_grpc
from tests.rpc.grpc.programs.marks import outcome, program, status
from tests.rpc.grpc.service import Interop, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SIZES = [31415, 9, 2653, 58979]


@program
async def responses_by_iterating(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Output(pb2.Request(sizes=SIZES))
        sizes = [len(response.body) async for response in call]
        return sizes, await status(call), [each async for each in call]


@program
async def responses_by_reading(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Output(pb2.Request(sizes=SIZES))
        sizes = []
        while (response := await call.read()) is not aio.EOF:
            sizes.append(len(response.body))
        return sizes, [await call.read() is aio.EOF for _ in range(3)], await status(call)


@program
async def an_empty_response_is_not_the_end(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Output(pb2.Request(sizes=[0, 0]))
        return [(await call.read()) is aio.EOF for _ in range(3)]


@program
async def an_error_after_responses(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Output(pb2.Request(sizes=[1, 2], status=pb2.Status(code=8, text="enough")))
        sizes: list[int] = []

        async def read_all() -> None:
            async for response in call:
                sizes.append(len(response.body))  # noqa: PERF401 - they stay when it raises

        return await outcome(read_all(), text=True), sizes, await status(call), await outcome(call.read())


@program
async def requests_from_iterators(aio: Any) -> Any:
    async def generate() -> AsyncIterator[Any]:
        for size in SIZES:
            yield pb2.Request(body=bytes(size))

    requests = [pb2.Request(body=bytes(size)) for size in SIZES]
    async with connected(aio) as stub:
        totals = [
            (await stub.Input(each)).size for each in (generate(), requests, iter(requests), (r for r in requests))
        ]
        call = stub.Input(requests)
        await call
        return totals, await status(call), (await stub.Input([])).size


@program
async def requests_by_writing(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Input()
        for size in SIZES:
            await call.write(pb2.Request(body=bytes(size)))
        await call.done_writing()
        await call.done_writing()
        late = await outcome(call.write(pb2.Request()))
        return (await call).size, late, await outcome(call.write(pb2.Request())), await status(call)


@program
async def ping_pong(aio: Any) -> Any:
    async with connected(aio) as stub:
        call, sizes = stub.Duplex(), []
        for size in SIZES:
            await call.write(pb2.Request(sizes=[size], body=bytes(size // 2)))
            sizes.append(len((await call.read()).body))
        await call.done_writing()
        return sizes, await call.read() is aio.EOF, await status(call)


@program
async def both_ways_by_iterating(aio: Any) -> Any:
    async def generate() -> AsyncIterator[Any]:
        for size in SIZES:
            await asyncio.sleep(0)
            yield pb2.Request(sizes=[size, 1])

    async with connected(aio) as stub:
        call = stub.Duplex(generate())
        return [len(response.body) async for response in call], await status(call)


@program
async def a_cancel_closes_the_iterator(aio: Any) -> Any:
    async def generate() -> AsyncIterator[Any]:
        try:
            yield pb2.Request(sizes=[1])
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            closed.set()
            raise

    closed = asyncio.Event()
    async with connected(aio) as stub:
        call = stub.Duplex(generate())
        first = len((await call.read()).body)
        cancelled = call.cancel()
        await asyncio.wait_for(closed.wait(), 10)
        return first, cancelled, await outcome(call.read()), (await status(call))[:2]


@program
async def a_cancel_between_responses(aio: Any) -> Any:
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
        call = stub.Output(pb2.Request())
        await call.read()
        cancels = call.cancel(), call.cancel()
        error = await outcome(call.read())
        await asyncio.wait_for(ended.wait(), 10)
        return cancels, error, call.cancelled(), (await status(call))[:2]


@program
async def handlers_that_read_and_write(aio: Any) -> Any:
    class Reads(pb2_grpc.InteropServicer):
        async def Duplex(self, request_iterator: Any, context: Any) -> Any:
            while (request := await context.read()) is not aio.EOF:
                await context.write(pb2.Response(body=request.body))
            await context.write(pb2.Response(body=b"end"))

        async def Output(self, request: Any, context: Any) -> Any:
            for size in request.sizes:
                await context.write(pb2.Response(body=bytes(size)))

        async def Input(self, request_iterator: Any, context: Any) -> Any:
            first = await context.read()
            rest = [len(request.body) async for request in request_iterator]
            return pb2.Total(size=len(first.body) + sum(rest))

    async with connected(aio, Reads()) as stub:
        duplex = [r.body async for r in stub.Duplex(iter([pb2.Request(body=b"1"), pb2.Request(body=b"2")]))]
        output = [len(r.body) async for r in stub.Output(pb2.Request(sizes=[3, 1]))]
        return duplex, output, (await stub.Input(iter([pb2.Request(body=b"123")] * 3))).size


@program
async def a_server_that_ends_before_the_requests_do(aio: Any) -> Any:
    class Hasty(Interop):
        async def Input(self, request_iterator: Any, context: Any) -> Any:
            await context.read()
            return pb2.Total(size=1)

    async with connected(aio, Hasty()) as stub:
        call = stub.Input()
        await call.write(pb2.Request(body=b"1"))
        total = (await call).size
        return total, await outcome(call.write(pb2.Request())), await outcome(call.done_writing()), await status(call)


@program
async def a_deadline_of_a_stream(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Output(pb2.Request(sizes=[1, 1, 1], wait_ms=400), timeout=0.7)
        first = len((await call.read()).body)
        return first, (await outcome(call.read()))[1], (await call.code()).name


@program
async def waiting_for_the_connection(aio: Any) -> Any:
    async with connected(aio) as stub:
        call = stub.Output(pb2.Request(sizes=[7]))
        await call.wait_for_connection()
        return [len(response.body) async for response in call]


@program
async def large_messages(aio: Any) -> Any:
    size = 1 << 20
    async with connected(aio) as stub:
        output = [len(r.body) async for r in stub.Output(pb2.Request(sizes=[size] * 8))]
        total = await stub.Input(iter([pb2.Request(body=bytes(size))] * 8))
        return output, total.size
