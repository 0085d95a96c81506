"""Promise: an argument of a wrong type or value is named, with what was given and what to do; nothing is sent."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import aiofabric
from aiofabric import Access, EndpointType, MessageEndpoint, MessageTooLongError, RemoteAccessError, RemoteRegion
from tests.fixtures.providers import Pair, over, require

pytestmark = pytest.mark.anyio
provider = over(["tcp"])

REGION = RemoteRegion(0, 1, 9, access=Access.REMOTE_READ)
WRONG: dict[str, tuple[Callable[[MessageEndpoint], Awaitable[object]], type[Exception], str]] = {
    "small remote data": (
        lambda end: end.send(b"x", remote_data=-1),
        ValueError,
        r"remote_data=-1 does not fit: this provider carries 64 bits, 0 to 2\*\*64 - 1$",
    ),
    "large remote data": (
        lambda end: end.send(b"x", remote_data=1 << 64),
        ValueError,
        "remote_data=18446744073709551616 does not fit",
    ),
    "remote data": (
        lambda end: end.send(b"x", remote_data="1"),  # type: ignore[arg-type]
        TypeError,
        "remote_data must be an int or None, not '1'$",
    ),
    "flags of a send": (
        lambda end: end.send(b"x", flags="x"),  # type: ignore[arg-type]
        TypeError,
        "flags must be OpFlags, such as OpFlags.DELIVERY_COMPLETE, not 'x'$",
    ),
    "flags of a read": (
        lambda end: end.read(REGION, flags="x"),  # type: ignore[arg-type]
        TypeError,
        "flags must be OpFlags, such as OpFlags.DELIVERY_COMPLETE, not 'x'$",
    ),
    "access": (
        lambda end: end.write(b"x", REGION),
        RemoteAccessError,
        r"nothing was sent\. Let the peer register the memory with access=Access.REMOTE_WRITE$",
    ),
}


@pytest.mark.parametrize("what", WRONG)
async def test_of_a_connection(pair: Pair, what: str) -> None:
    call, error, words = WRONG[what]
    async with pair() as (active, passive):
        with pytest.raises(error, match=words):
            await call(active)
        await active.send(b"next")
        assert await passive.recv() == b"next"


async def test_flags_of_an_alias(pair: Pair) -> None:
    async with pair() as (active, _):
        with pytest.raises(TypeError, match=r"flags must be OpFlags, such as OpFlags.DELIVERY_COMPLETE, not 'x'$"):
            active.alias("x")  # type: ignore[arg-type]


@pytest.mark.parametrize("param", ["x", 3])
async def test_private_data(provider: str, param: Any) -> None:
    with pytest.raises(TypeError, match=f"param must be bytes, the private data for the other side, not {param!r}$"):
        await aiofabric.connect("127.0.0.1", 1, provider=provider, param=param)


async def test_of_a_connectionless_endpoint() -> None:
    require("udp")
    wrong: Any = "x"
    with pytest.raises(TypeError, match=r"caps must be Caps, such as Caps.MSG \| Caps.RMA, or None, not 'x'$"):
        async with aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", caps=wrong):
            pass
    async with aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", provider="udp") as end:
        peer = await end.add_peer(end.local_address)
        with pytest.raises(TypeError, match=r"^3 is no Peer; add_peer\(\), insert\(\) and Message.source return one$"):
            end.remove_peer(3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^a DatagramEndpoint may have many peers: name the peer with to="):
            await end.send(b"x")
        with pytest.raises(TypeError, match=r"^3 is no Peer: name the peer with to=, as add_peer"):
            await end.send(b"x", to=3)  # type: ignore[arg-type]
        with pytest.raises(MessageTooLongError, match=r"at most 1472 bytes\. Send it in smaller pieces$"):
            await end.send(bytes(2000), to=peer)


@pytest.mark.once
@pytest.mark.parametrize("packed", ["x" * 25, 3, None])
def test_of_a_packed_region(packed: Any) -> None:
    with pytest.raises(TypeError, match=r"unpack\(\) takes the bytes that pack\(\) returned, not "):
        RemoteRegion.unpack(packed)
