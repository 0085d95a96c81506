"""An exception of a program's iterator of requests, or of its serializer, reaches the task that waits for the call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric.rpc import grpc as aio
from tests.fixtures.waiting import until
from tests.rpc.grpc.generated import pb2
from tests.rpc.grpc.service import Interop, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.anyio


class Foreign(BaseException):
    """No Exception."""


ERRORS = [
    ValueError("on purpose"),
    Foreign("on purpose"),
    aio.AioRpcError(grpc.StatusCode.NOT_FOUND, aio.Metadata(), aio.Metadata(), "on purpose"),
]


class Watched(Interop):
    """Counts the handlers that have ended."""

    def __init__(self) -> None:
        self.ended = 0

    async def Input(self, request_iterator: Any, context: Any) -> Any:
        try:
            return await super().Input(request_iterator, context)
        finally:
            self.ended += 1

    async def Duplex(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for response in super().Duplex(request_iterator, context):
                yield response
        finally:
            self.ended += 1


async def ends_with(call: Any, how: str) -> BaseException:
    """The exception that a task gets which waits for the call."""
    try:
        async with asyncio.timeout(10):
            if how == "await":
                await call
            elif how == "async for":
                async for _ in call:
                    pass
            else:
                while await call.read() is not aio.EOF:
                    pass
    except BaseException as error:
        return error
    raise AssertionError


HOWS = [("Input", "await"), ("Duplex", "async for"), ("Duplex", "read")]


@pytest.mark.parametrize(("method", "how"), HOWS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["async generator", "generator"])
async def test_what_an_iterator_of_requests_raises_reaches_the_caller(
    method: str, how: str, error: BaseException, kind: str
) -> None:
    async def asynchronous() -> AsyncIterator[Any]:
        yield pb2.Request(sizes=[1])
        raise error

    def synchronous() -> Iterator[Any]:
        yield pb2.Request(sizes=[1])
        raise error

    servicer = Watched()
    async with connected(aio, servicer) as stub:
        call = getattr(stub, method)(asynchronous() if kind == "async generator" else synchronous())
        assert await ends_with(call, how) is error
        assert (await call.code(), call.done(), call.cancelled()) == (grpc.StatusCode.INTERNAL, True, False)
        assert "on purpose" in await call.details()
        await until(lambda: servicer.ended == 1)
        assert (await stub.Unary(pb2.Request(size=1))).body == b"\0"


@pytest.mark.parametrize(("method", "how"), HOWS)
@pytest.mark.parametrize("requests", [5, object()], ids=["int", "object"])
async def test_requests_that_are_no_iterable_reach_the_caller_as_a_type_error(
    method: str, how: str, requests: Any
) -> None:
    async with connected(aio) as stub:
        error = await ends_with(getattr(stub, method)(requests), how)
        assert isinstance(error, TypeError)
        assert "The requests of a call must be an iterable" in str(error)


@pytest.mark.parametrize(("method", "how"), HOWS)
async def test_a_serializer_that_raises_in_a_stream_reaches_the_caller(method: str, how: str) -> None:
    async with connected(aio) as stub:
        requests = [pb2.Request(sizes=[1]), "no message", pb2.Request(sizes=[1])]
        error = await ends_with(getattr(stub, method)(iter(requests)), how)
        assert isinstance(error, TypeError)


async def test_a_task_group_ends_with_what_the_iterator_raised() -> None:
    async def requests() -> AsyncIterator[Any]:
        yield pb2.Request(sizes=[1])
        raise ValueError("on purpose")

    async with connected(aio) as stub:

        async def use() -> None:
            await stub.Input(requests())

        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.TaskGroup() as group:
                group.create_task(use())
        assert raised.group_contains(ValueError, match="on purpose")


async def test_a_serializer_that_raises_behind_interceptors_reaches_the_caller() -> None:
    class Interceptor(aio.StreamUnaryClientInterceptor):  # type: ignore[misc, name-defined, unused-ignore]
        async def intercept_stream_unary(self, continuation: Any, details: Any, request_iterator: Any) -> Any:
            return await continuation(details, request_iterator)

    async with connected(aio, interceptors=[Interceptor()]) as stub:
        call = stub.Input()
        await call.write("no message")
        assert isinstance(await ends_with(call, "await"), TypeError)


async def test_a_cancelled_call_stays_cancelled_whatever_its_iterator_raises_then() -> None:
    entered = asyncio.Event()

    async def requests() -> AsyncIterator[Any]:
        try:
            yield pb2.Request(sizes=[1])
            entered.set()
            await asyncio.Event().wait()
        finally:
            raise ValueError("on purpose")

    async with connected(aio) as stub:
        call = stub.Duplex(requests())
        await entered.wait()
        call.cancel()
        assert type(await ends_with(call, "read")) is asyncio.CancelledError
        assert call.cancelled()


async def test_responses_of_a_call_that_the_server_has_ended_can_be_read_although_requests_are_left() -> None:
    class Early(Interop):
        async def Duplex(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
            for size in (1, 2, 3):
                yield pb2.Response(body=bytes(size))

    stopped = asyncio.Event()

    async def requests() -> AsyncIterator[Any]:
        try:
            while True:
                yield pb2.Request(sizes=[1])
                await asyncio.sleep(0.001)
        finally:
            stopped.set()

    async with connected(aio, Early()) as stub:
        call = stub.Duplex(requests())
        async with asyncio.timeout(10):
            await stopped.wait()  # the status has come, and the iterator was cancelled
            assert [len(response.body) async for response in call] == [1, 2, 3]
        assert await call.code() is grpc.StatusCode.OK
