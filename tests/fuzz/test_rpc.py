"""Hazard: bytes from an RPC peer. Each fabric message is handled, or ends the connection with a reason."""

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiofabric.rpc.protocol.connection import Limits
from aiofabric.rpc.protocol.frames import Flag, Kind, frame
from aiofabric.rpc.protocol.preface import Preface
from tests.fuzz.test_decoders import EXAMPLES, fuzz, near
from tests.rpc.protocol.network import Network

pytestmark = [pytest.mark.once, pytest.mark.timeout(60 + EXAMPLES // 10)]


def traffic() -> Iterator[bytes]:
    """Valid fabric messages of both sides."""
    network = Network()
    made = network.call("/s/m", (("k", "v"), ("k-bin", b"\0")), message=b"x", deadline=2000.0)
    network.settle()
    for size in (10, 20_000, 600_000):
        made.post(bytes(size))
        network.settle()
    served = network.served[made.id]
    served.send_headers((("h", "w"),))
    served.post(bytes(100))
    served.finish(3, "text", (("t", "u"),))
    network.settle()
    network.server.drain()
    network.settle()
    for _, data in network.recorded:
        if len(data) < 1000:
            yield data
    yield frame(Kind.MESSAGE, 1, struct.pack("<Q", 9) + b"xx", flags=Flag.FIRST | Flag.MORE | Flag.RENDEZVOUS)


def opened() -> Network:
    network = Network()
    network.call("/s/m", (("k", "v"),), message=b"x")
    network.settle()
    return network


@fuzz
@given(st.lists(near(*traffic()), max_size=6))
def test_a_server_handles_anything(messages: list[bytes]) -> None:
    server = opened().server
    for data in messages:
        server.receive(memoryview(data), 1000.0)
    assert server.failed is None or not server.calls
    assert server.budget.used < 1 << 20


@fuzz
@given(st.lists(near(*traffic()), max_size=6))
def test_a_client_handles_anything(messages: list[bytes]) -> None:
    client = opened().client
    for data in messages:
        client.receive(memoryview(data), 1000.0)
    assert client.failed is None or not client.calls


@fuzz
@given(near(Limits().preface().pack()[16:], Preface(credentials=b"x" * 20).pack()[16:]))
def test_the_preface_of_rpc(payload: bytes) -> None:
    network = Network()
    network.server.receive(memoryview(frame(Kind.PREFACE, 0, payload)), 1000.0)
    assert network.server.failed is None or network.server.failed.reason in (1, 4)
