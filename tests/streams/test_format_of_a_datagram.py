"""The datagrams of a stream, without a provider: what is sent, what is dropped, and which peers are remembered."""

# Doubles: the limit of known peers is lowered.
# Privates: that limit is a constant of the module.

from typing import Any

import anyio
import pytest

from aiofabric import Address, MessageTooLongError
from aiofabric.streams import ConnectedDatagramStream, DatagramStatistics, DatagramStream, datagram

pytestmark = [pytest.mark.anyio, pytest.mark.once]

HERE, PEER, OTHER = (Address.from_ip("127.0.0.1", port) for port in (1, 2, 3))
SIX = Address.from_ip("::1", 2)


class Vector:
    """The known peers; a peer is its address."""

    def __init__(self) -> None:
        self.peers: list[Any] = []

    def insert(self, address: Any) -> Any:
        if address not in self.peers:
            self.peers.append(address)
        return address

    def __len__(self) -> int:
        return len(self.peers)

    def __iter__(self) -> Any:
        return iter(self.peers)


class Endpoint:
    """An endpoint for datagrams that the test fills."""

    info: Any = None
    local_address = HERE
    max_message_size = 100

    def __init__(self) -> None:
        self.vector = Vector()
        self.closed = False
        self.sent: list[tuple[bytes, Any]] = []
        self.arrived: list[bytes] = []
        self.looked_up: list[Any] = []
        self.removed: list[Any] = []

    async def send(self, data: bytes, *, to: Any) -> None:
        self.sent.append((bytes(data), to))

    async def recv(self) -> bytes:
        return self.arrived.pop(0)

    async def add_peer(self, host: str, port: int) -> Any:
        self.looked_up.append((host, port))
        return self.vector.insert(PEER)

    def remove_peer(self, peer: Any) -> None:
        self.removed.append(peer)
        self.vector.peers.remove(peer)

    def close(self) -> None:
        self.closed = True


def framed(source: Address, data: bytes, *, mark: int = 0xAF, size: int | None = None) -> bytes:
    return bytes((mark, len(source.raw) if size is None else size)) + source.raw + data


@pytest.fixture
def endpoint() -> Any:
    return Endpoint()


# -- sending


async def test_each_datagram_has_the_address_of_its_sender(endpoint: Any) -> None:
    stream = DatagramStream(endpoint)
    await stream.send((b"data", PEER))
    await stream.sendto(bytearray(b"more"), PEER)
    assert endpoint.sent == [(framed(HERE, b"data"), PEER), (framed(HERE, b"more"), PEER)]
    assert stream.statistics() == DatagramStatistics(sent=2, received=0, dropped=0)


async def test_a_datagram_is_as_long_as_the_rest_of_a_message(endpoint: Any) -> None:
    stream = DatagramStream(endpoint)
    most = 100 - 2 - len(HERE.raw)
    assert stream.max_datagram_size == most
    await stream.send((bytes(most), PEER))
    with pytest.raises(MessageTooLongError, match=f"has {most + 1} bytes; at most {most} can be sent"):
        await stream.send((bytes(most + 1), PEER))
    assert [len(data) for data, _ in endpoint.sent] == [100]


async def test_a_place_is_an_address_numbers_or_a_name(endpoint: Any) -> None:
    stream = DatagramStream(endpoint)
    for place in (PEER, ("127.0.0.1", 2), ("localhost", 2)):
        await stream.send((b"x", place))
    await stream.sendto(b"x", "127.0.0.1", 2)
    await stream.sendto(b"x", "127.0.0.1")
    assert [to for _, to in endpoint.sent] == [PEER] * 4 + [Address.from_ip("127.0.0.1", 0)]
    assert endpoint.looked_up == [("localhost", 2)]


async def test_the_oldest_peer_of_too_many_is_forgotten(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagram, "_PEERS_MOST", 2)
    stream = DatagramStream(endpoint)
    places = [Address.from_ip("127.0.0.1", port) for port in (10, 11, 12)]
    for place in (*places[:2], *places[:2]):
        await stream.send((b"x", place))
    assert endpoint.removed == []
    await stream.send((b"x", places[2]))
    assert endpoint.removed == places[:1]


async def test_a_closed_stream_sends_nothing(endpoint: Any) -> None:
    stream = DatagramStream(endpoint)
    await stream.aclose()
    assert endpoint.closed
    with pytest.raises(anyio.ClosedResourceError):
        await stream.send((b"x", PEER))
    assert not endpoint.sent


async def test_a_connected_stream_sends_to_its_peer(endpoint: Any) -> None:
    stream = ConnectedDatagramStream(endpoint, PEER)
    await stream.send(b"data")
    assert endpoint.sent == [(framed(HERE, b"data"), PEER)]


# -- receiving


async def test_a_datagram_may_be_empty(endpoint: Any) -> None:
    stream = DatagramStream(endpoint)
    endpoint.arrived = [framed(PEER, b""), framed(OTHER, b"data")]
    assert [await stream.receive() for _ in range(2)] == [(b"", ("127.0.0.1", 2)), (b"data", ("127.0.0.1", 3))]
    assert stream.statistics() == DatagramStatistics(sent=0, received=2, dropped=0)


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\xaf",
        framed(PEER, b"")[:-1],
        framed(PEER, b"data", mark=0xAE),
        framed(PEER, b"data", size=len(PEER.raw) + 1),
        framed(PEER, b"data", size=0),
        framed(SIX, b"data", size=len(PEER.raw)),
    ],
)
async def test_a_message_of_another_kind_is_dropped(wrong: bytes, endpoint: Any) -> None:
    stream = DatagramStream(endpoint)
    endpoint.arrived = [wrong, framed(PEER, b"data")]
    assert (await stream.receive())[0] == b"data"
    assert stream.statistics() == DatagramStatistics(sent=0, received=1, dropped=1)


async def test_a_connected_stream_receives_from_its_peer(endpoint: Any) -> None:
    stream = ConnectedDatagramStream(endpoint, PEER)
    endpoint.arrived = [framed(OTHER, b"not this"), framed(PEER, b"this")]
    assert await stream.receive() == b"this"
    assert stream.statistics() == DatagramStatistics(sent=0, received=1, dropped=1)
