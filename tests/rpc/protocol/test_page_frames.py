"""Frames made by hand: the decoder that was written from the protocol's page, and the server, refuse the same ones."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.rpc.protocol.page_decoder import Decoder
from tests.rpc.protocol.page_recorder import Recorder, frame, preface

if TYPE_CHECKING:
    from tests.rpc.protocol.page_decoder import Frame

pytestmark = pytest.mark.once

NO_TIME = struct.pack("<Q", (1 << 64) - 1)


def decoded(side: str, *frames: bytes) -> list[Frame]:
    """The frames of one side behind its preface, with the call 1 in progress."""
    decoder = Decoder(side)
    decoder.decode(preface())
    if side == "client":
        decoder.decode(frame(2, 0, b"/s/m") + frame(3, 1, NO_TIME))
    return [each for data in frames for each in decoder.decode(data)]


@pytest.mark.parametrize("side", ["client", "server"])
def test_remote_memory_is_decoded_from_handmade_bytes(side: str) -> None:
    region = struct.pack("<QQQH", 5, 0x7F00_0000_0000, 1 << 20, 3) + b"key"
    offered, _, released = decoded(
        side,
        frame(14, 1, region, flags=3),
        frame(7, 1) if side == "server" else frame(8, 1),
        frame(15, 1, struct.pack("<Q", 5)),
    )
    assert offered == {
        "kind": "REGION",
        "id": 1,
        "read": True,
        "write": True,
        "number": 5,
        "address": 0x7F00_0000_0000,
        "length": 1 << 20,
        "key": b"key",
    }
    assert released == {"kind": "RELEASE", "id": 1, "number": 5}


def test_a_later_version_may_append_to_the_preface_and_send_other_kinds() -> None:
    (known,) = Decoder("client").decode(preface(more=b"later"))
    assert known["credentials"] == b""
    assert decoded("client", frame(0x90, 7, b"?")) == []


SIZE_OF_9 = struct.pack("<Q", 9)
FORBIDDEN = {
    "half a header": b"\5\0\0",
    "a frame across fabric messages": frame(5, 1, b"xx")[:-1],
    "an unknown kind": frame(0x55),
    "a second preface": preface(),
    "a kind of the other side": frame(7, 1),
    "an id that is not larger": frame(3, 1, NO_TIME),
    "a call that never began": frame(5, 2, b"x"),
    "an index without a definition": frame(3, 2, NO_TIME, field=1),
    "indexes with a gap": frame(2, 0, b"/s/x", field=3),
    "a third table": frame(2, 0, b"/s/x", flags=2),
    "a name that is not UTF-8": frame(2, 0, b"\xff", field=1),
    "START without time": frame(3, 2, b"\0"),
    "START that is longer than its parts": frame(3, 2, NO_TIME + b"x"),
    "a bad key": frame(3, 2, NO_TIME + struct.pack("<IHHH1sI", 11, 1, 65535, 1, b"A", 0), flags=4),
    "a bad value": frame(3, 2, NO_TIME + struct.pack("<IHHH1sI1s", 12, 1, 65535, 1, b"a", 1, b"\n"), flags=4),
    "bytes behind the pairs": frame(3, 2, NO_TIME + struct.pack("<IHH", 4, 0, 0), flags=4),
    "a message after END": frame(6, 1) + frame(5, 1, b"x"),
    "END within a message": frame(5, 1, SIZE_OF_9 + b"x", flags=0x30) + frame(6, 1),
    "MORE without FIRST": frame(5, 1, b"x", flags=0x20),
    "FIRST without MORE": frame(5, 1, SIZE_OF_9 + b"x", flags=0x10),
    "an empty piece": frame(5, 1, SIZE_OF_9 + b"x", flags=0x30) + frame(5, 1, b"", flags=0x20),
    "too few bytes": frame(5, 1, SIZE_OF_9 + b"x", flags=0x30) + frame(5, 1, b"x"),
    "too many bytes": frame(5, 1, SIZE_OF_9 + b"x", flags=0x30) + frame(5, 1, b"x" * 9, flags=0x20),
    "CREDIT of nothing": frame(9, 1, b"\0\0\0\0"),
}


@pytest.mark.parametrize("data", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_the_page_forbids_is_refused_by_its_decoder(data: bytes) -> None:
    with pytest.raises(ValueError):
        decoded("client", data)


def test_a_piece_before_proceed_is_refused() -> None:
    with pytest.raises(ValueError, match="PROCEED"):
        decoded("client", frame(5, 1, SIZE_OF_9 + b"x", flags=0x70), frame(5, 1, b"x", flags=0x20))


@pytest.mark.parametrize("data", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_the_page_forbids_is_refused_by_the_server(data: bytes) -> None:
    network = Recorder()
    network.open_call()
    network.server.receive(memoryview(data), network.now)
    assert network.server.failed is not None


@pytest.mark.parametrize("data", [preface(b"http"), preface(lowest=2), preface(window=65535), frame(3, 1, NO_TIME)])
def test_another_first_frame_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Decoder("client").decode(data)
    network = Recorder()
    network.server.receive(memoryview(data), network.now)
    assert network.server.failed is not None
