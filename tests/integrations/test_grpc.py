"""grpclib's client against its server over a fabric, with stubs that its plugin makes of echo.proto."""

# Privates: grpclib shows neither a channel's protocol nor its address.

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from grpclib.config import Configuration
from grpclib.exceptions import GRPCError, StreamTerminatedError

from aiofabric.integrations.grpclib import Channel, Server
from tests.fixtures.certificates import NAME, Tls

pytestmark = pytest.mark.asyncio

PIECE = 256 * 1024  # of an endless stream: its window is full soon
LARGE = 3 * 1024 * 1024 + 1  # below grpclib's 4 MiB


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The compiled modules: messages, and grpclib's service."""
    made = tmp_path_factory.mktemp("stubs")
    plugin = Path(sys.executable).parent / "protoc-gen-grpclib_python"
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{Path(__file__).parent}"),
            *(f"--plugin=protoc-gen-grpclib_python={plugin}", f"--python_out={made}", f"--grpclib_python_out={made}"),
            "echo.proto",
        ],
        check=True,
        timeout=30,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(made)
        yield import_module("echo_grpc")


class Service:
    """The implementation of `Echo`; ``cancelled`` is set when the server's side of Never ends."""

    def __init__(self, stubs: Any) -> None:
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        self.Data = stubs.echo_pb2.Data

        class Echo(stubs.EchoBase):  # type: ignore[misc]
            async def Unary(_, stream: Any) -> None:
                await stream.send_message(await stream.recv_message())

            async def Repeat(_, stream: Any) -> None:
                data = await stream.recv_message()
                for number in range(data.count):
                    await stream.send_message(self.Data(content=data.content, count=number))

            async def Join(_, stream: Any) -> None:
                parts = [data.content async for data in stream]
                await stream.send_message(self.Data(content=b"".join(parts), count=len(parts)))

            async def Chat(_, stream: Any) -> None:
                async for data in stream:
                    await stream.send_message(data)

            async def Forever(_, stream: Any) -> None:
                data = await stream.recv_message()
                try:
                    while True:
                        await stream.send_message(data)
                finally:
                    self.cancelled.set()

            async def Never(_, stream: Any) -> None:
                await stream.recv_message()
                self.begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()

        self.echo = Echo()


@asynccontextmanager
async def serving(stubs: Any, provider: str, tls: Tls | None = None) -> AsyncIterator[tuple[Service, Any, Any]]:
    """The service, a stub of it, and the class of messages."""
    service = Service(stubs)
    options: dict[str, Any] = {}
    if tls is not None:
        tls.server.set_alpn_protocols(["h2"])
        tls.client.set_alpn_protocols(["h2"])
        options = {"ssl": tls.client, "config": Configuration(ssl_target_name_override=NAME)}
    async with Server([service.echo], provider=provider) as server:
        await server.start("127.0.0.1", 0, ssl=tls.server if tls else None)
        assert server.address is not None
        async with Channel(*server.address, provider=provider, **options) as channel:
            yield service, stubs.EchoStub(channel), service.Data


async def test_unary_calls_share_one_connection(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (_, stub, data):
        await stub.Unary(data(count=0))
        first = stub.Unary.channel._protocol
        for number in range(10):
            assert (await stub.Unary(data(count=number))).count == number
        assert stub.Unary.channel._protocol is first


async def test_the_busy_poll_window_is_the_programs_choice(stubs: Any, carrier: str) -> None:
    service = Service(stubs)
    async with Server([service.echo], provider=carrier, busy_poll=0.0) as server:
        await server.start("127.0.0.1", 0)
        assert server.address is not None
        async with Channel(*server.address, provider=carrier, busy_poll=0.0) as channel:
            assert (await stubs.EchoStub(channel).Unary(service.Data(count=3))).count == 3
        async with Channel(*server.address, provider=carrier, busy_poll=-1.0) as channel:
            with pytest.raises(ValueError, match="busy_poll"):
                await stubs.EchoStub(channel).Unary(service.Data(count=3))


async def test_the_server_streams(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (_, stub, data):
        assert [each.count for each in await stub.Repeat(data(count=100))] == list(range(100))


async def test_the_client_streams(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (_, stub, data):
        joined = await stub.Join([data(content=b"%d" % number) for number in range(10)])
    assert (joined.content, joined.count) == (b"0123456789", 10)


async def test_both_stream_in_turns(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (_, stub, data), stub.Chat.open() as chat:
        for number in range(20):
            await chat.send_message(data(count=number))
            assert (await chat.recv_message()).count == number
        await chat.end()
        assert await chat.recv_message() is None


async def test_large_messages_both_ways(stubs: Any, carrier: str) -> None:
    content = bytes(range(256)) * (LARGE // 256) + b"!"
    async with serving(stubs, carrier) as (_, stub, data):
        assert (await stub.Unary(data(content=content))).content == content


async def test_both_stream_much_at_once(stubs: Any, carrier: str) -> None:
    content = bytes(range(256)) * (PIECE // 256)

    async def send(chat: Any, data: Any) -> None:
        for number in range(64):
            await chat.send_message(data(content=content, count=number))
        await chat.end()

    async with serving(stubs, carrier) as (_, stub, data), stub.Chat.open() as chat:
        await chat.send_request()
        sending = asyncio.create_task(send(chat, data))
        received = [(each.count, each.content == content) async for each in chat]
        await sending
    assert received == [(number, True) for number in range(64)]


async def one(shape: str, stub: Any, data: Any, number: int) -> int:
    """A call, and the number that comes back."""
    digits = b"%03d" % number
    match shape:
        case "unary":
            answer = await stub.Unary(data(content=digits))
        case "server streams":
            answer = (await stub.Repeat(data(content=digits, count=5)))[-1]
        case "client streams":
            answer = await stub.Join([data(content=digits[each : each + 1]) for each in range(3)])
        case _:
            answer = (await stub.Chat([data(), data(content=digits)]))[-1]
    return int(answer.content)


@pytest.mark.parametrize("shape", ["unary", "server streams", "client streams", "both stream"])
async def test_a_hundred_concurrent_calls(shape: str, stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (_, stub, data):
        answers = await asyncio.gather(*(one(shape, stub, data, number) for number in range(100)))
    assert answers == list(range(100))


async def test_calls_over_tls(stubs: Any, carrier: str, tls: Tls) -> None:
    async with serving(stubs, carrier, tls) as (_, stub, data):
        for number in range(3):
            assert (await stub.Unary(data(count=number))).count == number


async def test_a_deadline_ends_the_call_on_both_sides(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (service, stub, data):
        await stub.Unary(data())  # connects: the time is for the call alone
        with pytest.raises((asyncio.TimeoutError, GRPCError)):
            await stub.Never(data(), timeout=0.5)
        await asyncio.wait_for(service.cancelled.wait(), 5)
        assert (await stub.Unary(data(count=1))).count == 1


async def test_a_deadline_ends_a_stream_on_both_sides(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (service, stub, data):
        await stub.Unary(data())  # connects: the time is for the call alone
        # AssertionError: grpclib's own, where the server's end of the deadline comes first and within a message.
        with pytest.raises((asyncio.TimeoutError, GRPCError, AssertionError)):
            await stub.Forever(data(content=bytes(PIECE)), timeout=0.5)
        await asyncio.wait_for(service.cancelled.wait(), 5)
        assert (await stub.Unary(data(count=1))).count == 1


async def test_a_stream_that_its_reader_cancels_ends_at_the_server(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (service, stub, data):
        async with stub.Forever.open() as stream:
            await stream.send_message(data(content=bytes(PIECE)), end=True)
            assert await stream.recv_message() is not None
            await stream.cancel()
        await asyncio.wait_for(service.cancelled.wait(), 5)
        assert (await stub.Unary(data(count=1))).count == 1


async def test_a_cancelled_call_is_cancelled_at_the_server(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (service, stub, data):
        call = asyncio.create_task(stub.Never(data()))
        await asyncio.wait_for(service.begun.wait(), 5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(service.cancelled.wait(), 5)
        assert (await stub.Unary(data(count=1))).count == 1


async def test_a_closed_server_closes_the_connections_of_its_clients(stubs: Any, carrier: str) -> None:
    service = Service(stubs)
    server = Server([service.echo], provider=carrier)
    await server.start("127.0.0.1", 0)
    assert server.address is not None
    async with Channel(*server.address, provider=carrier) as channel:
        assert (await stubs.EchoStub(channel).Unary(service.Data(count=1))).count == 1
        server.close()
        await asyncio.wait_for(server.wait_closed(), 10)


async def test_a_client_that_goes_away_cancels_its_call_at_the_server(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (service, stub, data):
        call = asyncio.create_task(stub.Never(data()))
        await asyncio.wait_for(service.begun.wait(), 5)
        stub.Never.channel.close()
        await asyncio.wait_for(service.cancelled.wait(), 5)
        with pytest.raises((StreamTerminatedError, asyncio.CancelledError)):
            await call


async def test_a_server_that_cannot_start_says_why(stubs: Any) -> None:
    server = Server([Service(stubs).echo], provider="tcp")
    with pytest.raises(OSError, match="not one of this host's"):
        async with server:
            await server.start("192.0.2.1", 0)  # an address that no host has, RFC 5737
    assert server.address is None


async def test_nobody_listening_is_a_connection_error(stubs: Any, carrier: str) -> None:
    async with serving(stubs, carrier) as (_, stub, _):
        channel = stub.Unary.channel
        host, port = channel._host, channel._port
    async with Channel(host, port, provider=carrier) as channel:
        with pytest.raises(ConnectionRefusedError):
            await stubs.EchoStub(channel).Unary(stubs.echo_pb2.Data())
