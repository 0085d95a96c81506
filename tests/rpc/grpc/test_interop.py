"""gRPC's interoperability cases, between a client and a server in two processes.

`doc/interop-test-descriptions.md` of gRPC's repository describes them. A case has the name that it has there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric.rpc import grpc as aio
from tests.fixtures.children import Child
from tests.fixtures.loops import LOOPS
from tests.fixtures.providers import CARRIERS, over
from tests.rpc.grpc import interop_server
from tests.rpc.grpc.generated import pb2, pb2_grpc
from tests.rpc.grpc.service import ECHO_BINARY, ECHO_TEXT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = pytest.mark.anyio

provider = over(CARRIERS)

REQUESTS = [27182, 8, 1828, 45904]
RESPONSES = [31415, 9, 2653, 58979]
LARGE_UP, LARGE_DOWN = 271828, 314159
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"


@pytest.fixture(scope="module")
def targets() -> Iterator[Callable[..., str]]:
    """The target of the server for a provider and a loop; each server has a process of its own."""
    backends: list[Any] = [loop.values[0] for loop in LOOPS[:2]]
    servers = {
        (name, str(backend)): Child(interop_server.serve, name, backend=backend)
        for name in CARRIERS
        for backend in backends
    }
    known: dict[Any, str] = {}

    def target_of(*key: Any) -> str:
        if key not in known:
            known[key] = servers[key].receive()
        return known[key]

    yield target_of
    for key in known:
        servers[key].tell("stop")
        servers[key].result()
    for server in servers.values():
        server.close()


@pytest.fixture
async def channel(targets: Callable[..., str], provider: str, anyio_backend: Any) -> AsyncIterator[Any]:
    target = targets(provider, str(anyio_backend))
    async with aio.insecure_channel(target, options=[("aiofabric.provider", provider)]) as channel:
        yield channel


@pytest.fixture
def stub(channel: Any) -> Any:
    return pb2_grpc.InteropStub(channel)


async def code_of(call: Any) -> grpc.StatusCode:
    """The code with which a call fails."""
    with pytest.raises(aio.AioRpcError) as raised:
        await call
    code: grpc.StatusCode = raised.value.code()
    assert await call.code() is code
    return code


async def test_empty_unary(stub: Any) -> None:
    assert await stub.Nothing(pb2.Empty()) == pb2.Empty()


async def test_large_unary(stub: Any) -> None:
    response = await stub.Unary(pb2.Request(body=bytes(LARGE_UP), size=LARGE_DOWN))
    assert response == pb2.Response(body=bytes(LARGE_DOWN))


async def test_client_streaming(stub: Any) -> None:
    total = await stub.Input(iter([pb2.Request(body=bytes(size)) for size in REQUESTS]))
    assert total.size == 74922


async def test_server_streaming(stub: Any) -> None:
    assert [len(response.body) async for response in stub.Output(pb2.Request(sizes=RESPONSES))] == RESPONSES


async def test_ping_pong(stub: Any) -> None:
    call = stub.Duplex()
    for up, down in zip(REQUESTS, RESPONSES, strict=True):
        await call.write(pb2.Request(body=bytes(up), sizes=[down]))
        assert len((await call.read()).body) == down
    await call.done_writing()
    assert await call.read() is aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_empty_stream(stub: Any) -> None:
    call = stub.Duplex()
    await call.done_writing()
    assert await call.read() is aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_cancel_after_begin(stub: Any) -> None:
    call = stub.Input()
    assert call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED
    assert call.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_cancel_after_first_response(stub: Any) -> None:
    call = stub.Duplex()
    await call.write(pb2.Request(body=bytes(REQUESTS[0]), sizes=[RESPONSES[0]]))
    assert len((await call.read()).body) == RESPONSES[0]
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.read()
    assert await call.code() is grpc.StatusCode.CANCELLED


async def test_timeout_on_sleeping_server(stub: Any) -> None:
    call = stub.Duplex(timeout=0.001)
    with suppress(aio.AioRpcError, asyncio.InvalidStateError):  # the deadline may pass before the request leaves
        await call.write(pb2.Request(body=bytes(REQUESTS[0])))
    with pytest.raises(aio.AioRpcError):
        await call.read()
    assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_custom_metadata(stub: Any) -> None:
    initial, trailing = (ECHO_TEXT, "test_initial_metadata_value"), (ECHO_BINARY, b"\xab\xab\xab")
    unary = stub.Unary(pb2.Request(body=bytes(LARGE_UP), size=LARGE_DOWN), metadata=(initial, trailing))
    assert len((await unary).body) == LARGE_DOWN
    duplex = stub.Duplex(metadata=(initial, trailing))
    await duplex.write(pb2.Request(sizes=[LARGE_DOWN]))
    assert len((await duplex.read()).body) == LARGE_DOWN
    await duplex.done_writing()
    assert await duplex.read() is aio.EOF
    for call in (unary, duplex):
        assert tuple(await call.initial_metadata()) == (initial,)
        assert tuple(await call.trailing_metadata()) == (trailing,)


async def test_status_code_and_message(stub: Any) -> None:
    status = pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], text="test status message")
    unary = stub.Unary(pb2.Request(status=status))
    assert await code_of(unary) is grpc.StatusCode.UNKNOWN
    duplex = stub.Duplex()
    await duplex.write(pb2.Request(status=status))
    await duplex.done_writing()
    with pytest.raises(aio.AioRpcError):
        await duplex.read()
    for call in (unary, duplex):
        assert await call.code() is grpc.StatusCode.UNKNOWN
        assert await call.details() == "test status message"


async def test_special_status_message(stub: Any) -> None:
    call = stub.Unary(pb2.Request(status=pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], text=SPECIAL)))
    assert await code_of(call) is grpc.StatusCode.UNKNOWN
    assert await call.details() == SPECIAL


async def test_unimplemented_method(stub: Any) -> None:
    assert await code_of(stub.Unimplemented(pb2.Empty())) is grpc.StatusCode.UNIMPLEMENTED


async def test_unimplemented_service(channel: Any) -> None:
    call = pb2_grpc.MissingStub(channel).Nothing(pb2.Empty())
    assert await code_of(call) is grpc.StatusCode.UNIMPLEMENTED
