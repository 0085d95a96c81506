"""DatagramStream: datagrams over the udp provider behave as those of anyio's UDP sockets."""

# Privates: a bound is lowered that no program would reach.
# Doubles: the limit of known peers is lowered.

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.abc import SocketAttribute, UnreliableObjectStream

import aiofabric
from aiofabric import Address, EndpointType, MessageTooLongError, NoProviderError
from aiofabric.streams import (
    ConnectedDatagramStream,
    DatagramStatistics,
    DatagramStream,
    FabricAttribute,
    connect_datagrams,
    datagram,
    open_datagrams,
)
from tests.fixtures.internals import endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

LOCAL = "127.0.0.1"


@pytest.fixture
def provider() -> str:
    return "udp"


def place_of(stream: DatagramStream | ConnectedDatagramStream) -> Any:
    return stream.extra(SocketAttribute.local_address)


@asynccontextmanager
async def two(provider: str) -> AsyncIterator[tuple[DatagramStream, DatagramStream]]:
    one, other = [await open_datagrams(LOCAL, 0, provider=provider) for _ in range(2)]
    async with one, other:
        yield one, other


async def test_the_receiver_of_a_datagram_can_answer(provider: str) -> None:
    async with two(provider) as (one, other):
        for data in (b"", b"x", bytes(range(256)) * 4):
            await one.send((data, place_of(other)))
            assert await other.receive() == (data, place_of(one))
            await other.sendto(data[::-1], *place_of(one))
            assert await one.receive() == (data[::-1], place_of(other))


async def test_they_are_streams_of_anyios(provider: str) -> None:
    async with two(provider) as (one, other), await connect_datagrams(*place_of(one), provider=provider) as third:
        assert isinstance(other, UnreliableObjectStream)
        assert isinstance(third, UnreliableObjectStream)
        await third.send(b"anybody?")
        async for data, (host, port) in one:
            await one.sendto(data.upper(), host, port)
            break
        async for data in third:
            assert data == b"ANYBODY?"
            break


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_any_buffer_as_long_as_a_datagram_may_be(provider: str, kind: type) -> None:
    async with two(provider) as (one, other):
        longest = one.max_datagram_size
        assert longest > 1400
        await one.sendto(kind(b"7" * longest), *place_of(other))
        data, _ = await other.receive()
        assert data == b"7" * longest
        with pytest.raises(MessageTooLongError, match=f"at most {longest}"):
            await one.sendto(kind(bytes(longest + 1)), *place_of(other))


async def test_places_are_names_numbers_and_addresses(provider: str) -> None:
    async with two(provider) as (one, other):
        address = other.extra(FabricAttribute.local_address)
        for place in (address, (LOCAL, address.port), ("localhost", address.port)):
            await one.send((b"x", place))
            assert await other.receive() == (b"x", place_of(one))
        await one.sendto(b"x", address)
        assert await other.receive() == (b"x", place_of(one))
        with pytest.raises(ValueError, match="format"):
            await one.send((b"x", Address.from_str("fi_shm://1234")))


async def test_a_connected_stream_receives_from_its_peer_alone(provider: str) -> None:
    async with two(provider) as (peer, unknown), await connect_datagrams(*place_of(peer), provider=provider) as stream:
        await unknown.sendto(b"psst", *place_of(stream))
        await peer.sendto(b"hello", *place_of(stream))
        assert await stream.receive() == b"hello"
        assert stream.statistics() == DatagramStatistics(sent=0, received=1, dropped=1)


async def test_what_no_stream_sent_is_dropped(provider: str) -> None:
    opened = aiofabric.open_endpoint(EndpointType.DGRAM, LOCAL, provider=provider)
    async with two(provider) as (one, other), opened as raw:
        peer = await raw.add_peer(other.extra(FabricAttribute.local_address))
        name = one.extra(FabricAttribute.local_address).raw
        for garbage in (b"", b"GET / HTTP/1.1", b"\xaf\x10", b"\xaf\x10" + b"\xff" * 20, b"\x00\x10" + name):
            await raw.send(garbage, to=peer)
        await one.sendto(b"real", *place_of(other))
        assert await other.receive() == (b"real", place_of(one))
        assert other.statistics().dropped == 5


async def test_two_connected_streams_at_ports_of_their_choice(provider: str) -> None:
    async with two(provider) as (one, other):  # ports that are free
        ports = [place_of(one)[1], place_of(other)[1]]
    async with (
        await connect_datagrams(LOCAL, ports[1], local_port=ports[0], provider=provider) as left,
        await connect_datagrams(LOCAL, ports[0], local_host=LOCAL, local_port=ports[1], provider=provider) as right,
    ):
        assert left.extra(SocketAttribute.remote_address) == place_of(right) == (LOCAL, ports[1])
        await left.send(b"l")
        await right.send(b"r")
        assert (await left.receive(), await right.receive()) == (b"r", b"l")


async def test_a_connected_stream_without_a_port_of_its_own_gets_a_free_one(provider: str) -> None:
    async with two(provider) as (one, _):
        host, port = place_of(one)
        async with (
            await connect_datagrams(host, port, local_host="127.0.0.2", provider=provider) as chosen,
            await connect_datagrams(host, port, provider=provider) as free,
        ):
            places = [stream.extra(SocketAttribute.local_address) for stream in (chosen, free)]
            assert [place[0] for place in places] == ["127.0.0.2", LOCAL]
            assert all(place[1] not in (0, port) for place in places)


async def test_closed_and_busy_are_anyios(provider: str) -> None:
    async with two(provider) as (one, other):
        with pytest.RaisesGroup(anyio.BusyResourceError):
            async with anyio.create_task_group() as tg:
                tg.start_soon(one.receive)
                tg.start_soon(one.receive)

        async def receive() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await one.receive()

        async with anyio.create_task_group() as tg:
            tg.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            await one.aclose()
        await one.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await one.sendto(b"x", *place_of(other))
        with pytest.raises(anyio.ClosedResourceError):
            await one.receive()
        assert one.extra(FabricAttribute.provider) == provider


async def test_a_cancelled_send_sends_nothing(provider: str) -> None:
    async with two(provider) as (one, other):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await one.sendto(b"never", *place_of(other))
        assert scope.cancelled_caught
        await one.sendto(b"now", *place_of(other))
        assert (await other.receive())[0] == b"now"
        assert one.statistics().sent == 1


async def test_the_peers_of_a_stream_are_bounded(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagram, "_PEERS_MOST", 3)
    async with two(provider) as (one, other):
        for port in (*range(20000, 20010), place_of(other)[1]):
            await one.sendto(b"x", LOCAL, port)
        assert len(endpoint_of(one).vector) == 3
        assert await other.receive() == (b"x", place_of(one))


async def test_a_reader_that_does_not_read_costs_a_bounded_number_of_datagrams(provider: str) -> None:
    async with two(provider) as (one, other):
        for number in range(2000):
            await one.sendto(b"%d" % number + bytes(1000), *place_of(other))
        pool = endpoint_of(other).statistics().pool
        assert pool is not None
        assert pool.filled <= pool.count == 64
        data, _ = await other.receive()
        assert data.startswith(b"0")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_a_place_that_nobody_can_answer_to_is_refused(provider: str, host: str) -> None:
    with pytest.raises(ValueError, match="peers cannot answer"):
        await open_datagrams(host, 0, provider=provider)


async def test_a_provider_without_datagrams(provider: str) -> None:
    with pytest.raises(NoProviderError):
        await open_datagrams(LOCAL, 0, provider="tcp")


async def test_typed_attributes_and_a_domain_of_ones_own(provider: str) -> None:
    async with await open_datagrams(LOCAL, 0, provider=provider) as one:
        domain = endpoint_of(one).domain
        async with await connect_datagrams(*place_of(one), provider=provider, domain=domain) as other:
            assert endpoint_of(other).domain is domain
            assert other.extra(SocketAttribute.remote_address) == place_of(one)
            assert other.extra(SocketAttribute.remote_port) == one.extra(SocketAttribute.local_port)
            assert other.extra(FabricAttribute.remote_address) == one.extra(FabricAttribute.local_address)
            assert other.extra(FabricAttribute.info).fabric_attr.prov_name == provider
            assert one.extra(SocketAttribute.family).name == "AF_INET"


@pytest.mark.parametrize("as_address", [False, True])
async def test_a_connected_stream_has_the_local_host_of_its_choice(provider: str, as_address: bool) -> None:
    host = "127.0.0.2"
    async with two(provider) as (one, _):
        wanted: Any = Address.from_ip(host, 0) if as_address else host
        async with await connect_datagrams(*place_of(one), local_host=wanted, provider=provider) as stream:
            assert place_of(stream)[0] == host
            await stream.send(b"x")
            assert await one.receive() == (b"x", place_of(stream))


async def test_a_stream_with_a_local_host_alone_is_at_that_host(provider: str) -> None:
    async with await open_datagrams("127.0.0.2", provider=provider) as one:
        assert place_of(one)[0] == "127.0.0.2"


async def test_a_cancelled_close_has_closed_a_stream_of_datagrams(provider: str) -> None:
    async with two(provider) as (one, other):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await one.aclose()
        assert scope.cancelled_caught
        with pytest.raises(anyio.ClosedResourceError):
            await one.sendto(b"x", *place_of(other))


@pytest.mark.parametrize(
    ("host", "port", "error", "words"),
    [
        (LOCAL, 0, ValueError, "port 0 names no peer"),
        (LOCAL, None, ValueError, "the port is missing"),
        (None, 7, TypeError, "the address of the peer is missing"),
    ],
)
async def test_a_place_that_names_no_peer_is_refused(
    host: Any, port: Any, error: type[Exception], words: str, provider: str
) -> None:
    with pytest.raises(error, match=words):
        await connect_datagrams(host, port, provider=provider)
