"""Hazard: bytes from a peer that a decoder does not expect. They are decoded, or refused with the decoder's own error.

``make fuzz`` runs for FUZZ_SECONDS. In the ordinary run, each decoder gets some 100 inputs.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aiofabric
from aiofabric import Address, AddressFormat, FabricError, RemoteRegion
from aiofabric._core import MessageReader
from aiofabric.address import is_numeric, split_uri
from aiofabric.channel import frames as channel_frames
from aiofabric.cm.preface import Preface
from aiofabric.cm.workarounds import half_open_clients
from aiofabric.streams import listen_stream
from aiofabric.transport.virtual import protocol
from aiofabric.transport.virtual.oob_socket import Frame, OobSocket
from aiofabric.transport.virtual.protocol import QUERY, QUERY_REPLY
from tests.channel.scripted import Channel
from tests.cq.manual import ManualDriver

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
SLOW_EXAMPLES = max(5, EXAMPLES // 20)  # of what opens connections

pytestmark = [pytest.mark.once, pytest.mark.timeout(60 + EXAMPLES // 10)]
fuzz = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
fuzz_slowly = settings(max_examples=SLOW_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def near(*valid: bytes) -> st.SearchStrategy[bytes]:
    """Any bytes, and nearly valid ones: a valid encoding with some bytes replaced, removed or appended."""

    def damaged(original: bytes, places: list[tuple[int, int]], end: int, more: bytes) -> bytes:
        data = bytearray(original)
        for place, value in places:
            if data:
                data[place % len(data)] = value
        return bytes(data[: len(data) - end % (len(data) + 1)]) + more

    places = st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)), max_size=4)
    return st.binary(max_size=300) | st.builds(
        damaged, st.sampled_from(valid), places, st.just(0) | st.integers(0, 64), st.just(b"") | st.binary(max_size=64)
    )


@fuzz
@given(near(Preface(1, 2, 3).follow(b"the program's"), Preface().follow(b"")))
def test_the_preface(data: bytes) -> None:
    param, preface = Preface.split(data)
    assert data.startswith(param)
    assert (preface is None) == (param == data) or len(param) < len(data)


@fuzz
@given(near(RemoteRegion(1 << 40, 7, 4096).pack(), RemoteRegion(0, (1 << 64) - 1, 0, bytes(30)).pack()))
def test_a_remote_region(data: bytes) -> None:
    with suppress(ValueError):
        region = RemoteRegion.unpack(data)
        assert RemoteRegion.unpack(region.pack()) == region
        assert region.address + region.length <= 1 << 64


HELLO = protocol.Hello(1, 1, 5, 9, 1, 4096, 8, 0, b"address", b"param").pack()


@fuzz
@given(near(HELLO))
def test_the_hello_of_a_virtual_connection(data: bytes) -> None:
    with suppress(ValueError):
        assert protocol.Hello.unpack(data).pack() == data


CHANNEL_HELLO = channel_frames.Hello(recv_size=65540, window=1 << 20).pack()


@fuzz
@given(near(CHANNEL_HELLO), st.sampled_from([channel_frames.BYTES, channel_frames.MESSAGES]))
def test_the_hello_of_a_channel(data: bytes, kind: int) -> None:
    with suppress(ConnectionAbortedError):
        assert channel_frames.Hello.unpack(data, kind=kind).payload > 0


@fuzz
@given(near(bytes(32), b"\0\0\0\x10" + bytes(44)))
def test_the_request_of_a_half_open_client(data: bytes) -> None:
    one, other = socket.socketpair()
    with one, other:
        if data:
            one.send(data)
        complete = half_open_clients.is_request(data)
        assert not complete or len(data) >= 32


TEXTS = ["fi_sockaddr_in://127.0.0.1:7471", "fi_sockaddr_in6://[fe80::1%lo]:80", "fi_sockaddr://[::1]", "fi_shm://1:2"]


@fuzz
@given(st.text(max_size=60) | near(*(text.encode() for text in TEXTS)).map(lambda data: data.decode("latin-1")))
def test_an_address_in_words(text: str) -> None:
    split_uri(text), is_numeric(text)
    with suppress(ValueError, OSError):  # OSError: no such interface
        address = Address.from_str(text)
        assert Address.from_str(str(address)) == address or "\0" in text or not text.isascii()


@fuzz
@given(st.sampled_from(list(AddressFormat)), near(Address.from_ip("::1", 5).raw, Address.from_ip("1.2.3.4", 5).raw))
def test_an_address_of_any_bytes(format: AddressFormat, raw: bytes) -> None:
    address = Address(format, raw)
    hash(address)
    assert address == Address(format, address.raw)
    with suppress(ValueError):  # a socket address that is cut off
        str(address), address.host, address.port


CHANNEL_FRAMES = [
    channel_frames.header(kind, granted) + data for kind in range(6) for granted in (0, 500) for data in (b"", b"data")
]


@fuzz
@given(
    st.lists(
        near(*CHANNEL_FRAMES) | st.sampled_from(["take", "into", "send", "post", "end", "watch", "feed"]), max_size=30
    )
)
def test_frames_of_the_byte_channel(steps: list[Any]) -> None:
    """They are data that can be taken once, or they end the channel with the protocol's error."""
    peer, sent, received = Channel(), bytearray(), bytearray()
    room = memoryview(bytearray(50))

    def take() -> None:
        with suppress(FabricError, anyio.ClosedResourceError):
            received.extend(peer.channel.try_recv(70) or b"")

    for step in steps:
        if isinstance(step, bytes):
            if not step[:1].strip(b"\0") and peer.channel.statistics().receive_credits >= 0:
                sent += step[channel_frames.HEADER_SIZE :]
            peer.comes(step)
            continue
        with suppress(FabricError, anyio.ClosedResourceError):
            if step == "take":
                take()
            elif step == "into":
                received += room[: peer.channel.try_recv_into(room) or 0]
            elif step == "send":
                peer.channel.try_send(b"small")
            elif step == "post":
                peer.post(bytearray(1500))
            elif step == "end":
                peer.channel.shutdown_write()
            elif step == "watch":
                peer.channel.watch(take)
            else:
                peer.channel.feed_to(received.extend, None, None, None)
    while not peer.channel.ended and peer.channel.readable:
        take()
    assert sent.startswith(received)
    assert peer.endpoint.aborts <= 1


@fuzz
@given(st.lists(near(b"\0\0\0\0\3\0\0\0abc\xc8\0\0\0" + bytes(200)), max_size=6), st.integers(0, 300))
def test_messages_behind_their_lengths(pieces: list[bytes], longest: int) -> None:
    peer, taken = Channel(), bytearray()
    reader = MessageReader(peer.channel, longest)
    came = b""
    with suppress(OverflowError, FabricError, anyio.ClosedResourceError):
        for piece in pieces:
            if peer.channel.statistics().receive_credits < len(piece):
                break
            came += piece
            peer.comes(channel_frames.PLAIN + piece)
            while (message := reader.take()) is not None:
                assert len(message) <= longest
                taken += len(message).to_bytes(4, "little") + message
    assert came.startswith(taken)


@fuzz
@given(st.lists(near(b"\xaf\x1b\x01\0\x03abc", b"\xaf\x1b\x05\0\0"), max_size=6))
def test_frames_of_the_out_of_band_socket(pieces: list[bytes]) -> None:
    driver = ManualDriver()
    one, other = socket.socketpair()
    line = OobSocket(other, driver)
    got: list[Frame] = []
    line.on_frame = got.append
    with one:
        for piece in pieces:
            if piece and not line.closed:
                one.send(piece)
                driver.settle_down()
    line.close()
    assert all(len(frame.body) <= 2048 for frame in got)


NO_CONNECTION = 1 << 23  # ids count from 0


def run_quietly(main: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Run on a loop whose exception handler records uncaught exceptions: there must be none."""
    errors: list[dict[str, Any]] = []

    async def noted() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        with anyio.fail_after(20):
            await main(errors)

    anyio.run(noted)
    assert errors == []


@fuzz_slowly
@given(st.lists(near(b"\0\0\0\0data", b"\1\0\1\0", b"\2\0\0\0", b"\3\0\0\0"), min_size=1, max_size=8))
def test_frames_of_a_channel(pieces: list[bytes]) -> None:
    async def main(_: object) -> None:
        ended = anyio.Event()

        async def serve(stream: Any) -> None:
            async with stream:
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while True:
                        await stream.receive()
            ended.set()

        async with listen_stream("127.0.0.1", 0, provider="tcp") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            hello = channel_frames.Hello(recv_size=65540, window=1 << 20).pack()
            async with await aiofabric.connect(listener.address, provider="tcp", param=hello) as raw:
                with suppress(FabricError, anyio.ClosedResourceError):
                    for piece in pieces:
                        await raw.send(piece)
            await ended.wait()
            tasks.cancel_scope.cancel()

    run_quietly(main)


@fuzz_slowly
@given(
    st.lists(
        st.tuples(st.integers(0, (1 << 47) - 1) | st.sampled_from([QUERY, QUERY_REPLY]), near(b"\2" + bytes(20))),
        min_size=1,
        max_size=8,
    )
)
def test_tagged_messages_of_virtual_connections(messages: list[tuple[int, bytes]]) -> None:
    """From a peer of the fabric, for connections that do not exist: those that do exist notice nothing.

    Tags are no secrets: what names an existing connection is taken for its peer's (docs/topics/security.md).
    """

    async def main(_: object) -> None:
        provider = "tcp;ofi_rxm"
        async with (
            aiofabric.listen("127.0.0.1", 0, provider=provider) as listener,
            aiofabric.open_endpoint(aiofabric.EndpointType.RDM, "127.0.0.1", provider=provider) as raw,
            anyio.create_task_group() as tasks,
        ):

            async def serve() -> None:
                async with await (await listener.accept_request()).accept() as endpoint:
                    async for message in endpoint:
                        await endpoint.send(message)

            tasks.start_soon(serve)
            async with await aiofabric.connect(listener.address, provider=provider) as honest:
                peer = await raw.add_peer(listener.fabric_address)
                for tag, body in messages:
                    with suppress(FabricError):
                        await raw.send_tagged(body, tag | NO_CONNECTION, to=peer)
                for number in range(3):
                    await honest.send(b"%d" % number)
                    assert await honest.recv() == b"%d" % number
            tasks.cancel_scope.cancel()

    run_quietly(main)
