"""Frames that no correct peer sends end the connection with a reason, and raise no other exception."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiofabric.rpc.protocol.connection import Limits
from aiofabric.rpc.protocol.frames import HEADER, Flag, Kind, frame
from tests.rpc.protocol.network import Network

pytestmark = pytest.mark.once

NO_TIME = struct.pack("<Q", (1 << 64) - 1)


LARGE_BLOCK = struct.pack("<HHH5sI", 1, 65535, 5, b"x-bin", 16384) + bytes(16384)


def opened() -> Network:
    """A connection with one open call, on which the client has sent one message and the server nothing."""
    network = Network()
    network.call("/s/m", (("k", "v"),), message=b"x")
    network.settle()
    return network


SERVER_MUST_REFUSE = {
    "half a header": b"\x05\x00\x00",
    "a payload that is longer than the message": HEADER.pack(Kind.MESSAGE, 0, 0, 100, 1) + b"x",
    "an unknown kind": frame(0x55, 1),
    "a second preface": Limits().preface().pack(),
    "a call that never began": frame(Kind.MESSAGE, 7, b"x"),
    "END for a call that never began": frame(Kind.END, 7),
    "CANCEL for a call that never began": frame(Kind.CANCEL, 7),
    "a status, which only servers send": frame(Kind.STATUS, 1),
    "an id that is not larger": frame(Kind.START, 1, NO_TIME),
    "an index that was not defined": frame(Kind.START, 2, NO_TIME, field=9),
    "a START without time": frame(Kind.START, 2, b"\0\0", field=0),
    "a START that is longer than its parts": frame(Kind.START, 2, NO_TIME + b"xxx", field=0),
    "metadata that is longer than START": frame(
        Kind.START, 2, NO_TIME + struct.pack("<I", 99), flags=Flag.METADATA, field=0
    ),
    "metadata with a bad key": frame(
        Kind.START, 2, NO_TIME + struct.pack("<IHHH2sI", 12, 1, 65535, 2, b"A\n", 0), flags=Flag.METADATA, field=0
    ),
    "metadata with a bad value": frame(
        Kind.START, 2, NO_TIME + struct.pack("<IHHI1s", 9, 1, 0, 1, b"\n"), flags=Flag.METADATA, field=0
    ),
    "a method that is not UTF-8": frame(Kind.START, 2, NO_TIME + b"\x02\0\xff\xff", field=65535),
    "END twice": frame(Kind.END, 1) + frame(Kind.END, 1),
    "a message after END": frame(Kind.END, 1) + frame(Kind.MESSAGE, 1, b"x"),
    "a piece without a first one": frame(Kind.MESSAGE, 1, b"x", flags=Flag.MORE),
    "a first piece that is all": frame(Kind.MESSAGE, 1, struct.pack("<Q", 1) + b"x", flags=Flag.FIRST | Flag.MORE),
    "a first piece without data": frame(Kind.MESSAGE, 1, struct.pack("<Q", 9), flags=Flag.FIRST | Flag.MORE),
    "END with a piece that is not the last": frame(
        Kind.MESSAGE, 1, struct.pack("<Q", 9) + b"xx", flags=Flag.FIRST | Flag.MORE
    )
    + frame(Kind.MESSAGE, 1, b"xx", flags=Flag.MORE | Flag.END),
    "a first piece without a size": frame(Kind.MESSAGE, 1, b"x", flags=Flag.FIRST | Flag.MORE),
    "pieces that are longer than announced": frame(
        Kind.MESSAGE, 1, struct.pack("<Q", 3) + b"xx", flags=Flag.FIRST | Flag.MORE
    )
    + frame(Kind.MESSAGE, 1, b"xx"),
    "pieces that are shorter than announced": frame(
        Kind.MESSAGE, 1, struct.pack("<Q", 9) + b"xx", flags=Flag.FIRST | Flag.MORE
    )
    + frame(Kind.MESSAGE, 1, b"xx"),
    "END within a message": frame(Kind.MESSAGE, 1, struct.pack("<Q", 9) + b"xx", flags=Flag.FIRST | Flag.MORE)
    + frame(Kind.END, 1),
    "PROCEED for nothing": frame(Kind.PROCEED, 1),
    "credits that were not spent": frame(Kind.CREDIT, 1, struct.pack("<I", 1)),
    "a grant without a number": frame(Kind.CREDIT, 1),
    "a definition with a gap": frame(Kind.DEFINE, 0, b"/s/x", field=5),
    "a definition in an unknown table": frame(Kind.DEFINE, 0, b"/s/x", flags=9, field=1),
    "definitions beyond the table": b"".join(
        frame(Kind.DEFINE, 0, b"x" * 1000, field=number) for number in range(1, 50)
    ),
    "a definition that is not UTF-8": frame(Kind.DEFINE, 0, b"\xff", field=1),
    "more than the credits": b"".join(frame(Kind.MESSAGE, 1, b"x" * 16000) for _ in range(5)),
}


@pytest.mark.parametrize("data", SERVER_MUST_REFUSE.values(), ids=SERVER_MUST_REFUSE)
def test_a_server_refuses(data: bytes) -> None:
    network = opened()
    network.server.receive(memoryview(data), network.now)
    assert network.server.failed is not None
    assert not network.server.calls
    assert network.server.budget.used == 0
    network.send()
    assert network.to_client[-1][0] == Kind.GOAWAY


CLIENT_MUST_REFUSE = {
    "HEADERS twice": frame(Kind.HEADERS, 1, b"\0\0") * 2,
    "HEADERS after a message": frame(Kind.MESSAGE, 1, b"x") + frame(Kind.HEADERS, 1, b"\0\0"),
    "a status for a call that never began": frame(Kind.STATUS, 9),
    "a status that is longer than its parts": frame(Kind.STATUS, 1, b"xx"),
    "OK within a message": frame(Kind.MESSAGE, 1, struct.pack("<Q", 9) + b"xx", flags=Flag.FIRST | Flag.MORE)
    + frame(Kind.STATUS, 1),
    "incomplete metadata of a status": frame(Kind.STATUS, 1, struct.pack("<I", 99), flags=Flag.METADATA),
    "START, which only clients send": frame(Kind.START, 2, NO_TIME),
    "END with a message": frame(Kind.MESSAGE, 1, b"x", flags=Flag.END),
    "initial metadata beyond the limit": frame(Kind.HEADERS, 1, LARGE_BLOCK),
    "trailing metadata beyond the limit": frame(
        Kind.STATUS, 1, struct.pack("<I", len(LARGE_BLOCK)) + LARGE_BLOCK, flags=Flag.METADATA
    ),
    "a text of a status that is too long": frame(
        Kind.STATUS, 1, struct.pack("<I", 8193) + bytes(8193), flags=Flag.DETAILS, field=5
    ),
    "a text of a status that is not there": frame(Kind.STATUS, 1, struct.pack("<I", 9), flags=Flag.DETAILS, field=5),
    "a large message in a status": frame(Kind.STATUS, 1, bytes(16385), flags=Flag.MESSAGE),
    "a large message in a status with a code": frame(Kind.STATUS, 1, bytes(16385), flags=Flag.MESSAGE, field=5),
}


@pytest.mark.parametrize("kind", [Kind.START, Kind.DEFINE, Kind.MESSAGE, Kind.STATUS, Kind.GOAWAY, Kind.PING])
def test_both_sides_refuse_a_frame_before_the_preface(kind: Kind) -> None:
    network = Network()
    for side in (network.server, network.client):
        side.receive(memoryview(frame(kind, 1, NO_TIME)), network.now)
        assert "before the preface" in str(side.failed)


def test_a_frame_that_may_be_ignored_is_ignored_before_the_preface_too() -> None:
    network = Network()
    for side in (network.server, network.client):
        side.receive(memoryview(frame(0x80 | 0x55, 1, b"later")), network.now)
        assert side.failed is None


def test_a_goaway_of_a_client_with_a_reason_ends_its_calls() -> None:
    network = opened()
    (call,) = network.server.calls.values()
    network.server.receive(memoryview(frame(Kind.GOAWAY, 0, b"broken", field=1)), network.now)
    assert not network.server.calls
    assert call.over
    assert network.server.failed is not None
    network.server.receive(memoryview(frame(Kind.START, 2, NO_TIME, field=0)), network.now)
    assert not network.server.calls


def test_a_long_text_of_a_status_is_cut_between_characters() -> None:
    network = opened()
    (made,) = network.client.calls.values()
    network.served[1].finish(5, "x" + "\u00fc" * 5000)
    network.settle()
    assert made.status is not None
    assert made.status.details == "x" + "\u00fc" * 4095


@pytest.mark.parametrize("data", CLIENT_MUST_REFUSE.values(), ids=CLIENT_MUST_REFUSE)
def test_a_client_refuses(data: bytes) -> None:
    network = opened()
    (made,) = network.client.calls.values()
    network.client.receive(memoryview(data), network.now)
    assert network.client.failed is not None
    assert made.status is not None
    assert made.status.code == 14


def test_an_unknown_kind_that_may_be_ignored_is_ignored() -> None:
    network = opened()
    network.server.receive(memoryview(frame(0x80 | 0x55, 1, b"later")), network.now)
    assert network.server.failed is None


def test_frames_for_a_call_that_is_over_are_ignored() -> None:
    network = opened()
    network.served[1].finish(5, "gone")
    late = [frame(Kind.MESSAGE, 1, b"x"), frame(Kind.END, 1), frame(Kind.CANCEL, 1)]
    late += [frame(Kind.CREDIT, 1, b"\1\0\0\0"), frame(Kind.PROCEED, 1)]
    for data in late:
        network.server.receive(memoryview(data), network.now)
    assert network.server.failed is None


@settings(max_examples=500, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_arbitrary_bytes_never_raise(messages: list[bytes]) -> None:
    network = opened()
    for data in messages:
        network.server.receive(memoryview(data), network.now)
        network.client.receive(memoryview(data), network.now)


kinds = st.sampled_from([*Kind, 0x55, 0xD5])


@settings(max_examples=1000, deadline=None)
@given(
    st.lists(
        st.builds(
            frame,
            kinds,
            st.integers(0, 3),
            st.binary(max_size=40),
            flags=st.integers(0, 255),
            field=st.sampled_from([0, 1, 2, 65535]),
        ),
        max_size=8,
    )
)
def test_arbitrary_frames_never_raise(frames: list[bytes]) -> None:
    network = opened()
    for data in frames:
        network.server.receive(memoryview(data), network.now)
        network.client.receive(memoryview(data), network.now)
    network.send()
    for data in network.to_server:
        network.server.receive(memoryview(data), network.now)
