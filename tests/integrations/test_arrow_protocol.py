"""Arrow's Dissociated IPC protocol without I/O: what is malformed is refused before a body is received."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pyarrow
import pytest

from aiofabric.integrations.arrow import ArrowProtocolError
from aiofabric.integrations.arrow.decoding import StreamDecoder
from aiofabric.integrations.arrow.encoding import EncodedMessage, StreamEncoder
from aiofabric.integrations.arrow.metadata import MessageKind, decode_metadata, with_offsets
from aiofabric.integrations.arrow.protocol import (
    ADDRESSES,
    ANY_TYPE,
    MOST_FREED,
    PACKED,
    IncomingStream,
    OutgoingStream,
    body_tag,
    decode_addresses,
    decode_freed,
    decode_progress,
    encode_addresses,
    encode_asked,
    encode_freed,
    encode_taken,
    split_tag,
)
from aiofabric.integrations.arrow.uri import StreamUri
from tests.integrations.arrow_batches import KINDS, NUMBERS, stored

if TYPE_CHECKING:
    from tests.integrations.arrow_batches import Batches

pytestmark = pytest.mark.once

MOST = 1 << 30
LAST = 0xFFFF_FFFF


def encoded(batches: Batches, compression: str | None = None) -> list[EncodedMessage]:
    encoder = StreamEncoder(batches[0].schema, compression)
    return [message for batch in batches for message in encoder.encode(batch)]


SCHEMA, BATCH = encoded([NUMBERS])
DICTIONARY = encoded(KINDS["dictionaries"])[1]


def frame(sequence: int, metadata: bytes, kind: int = 1) -> bytes:
    return struct.pack("<BI", kind, sequence) + metadata


# -- messages


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_every_kind_survive(kind: str, compression: str | None) -> None:
    decoder = StreamDecoder(max_body=MOST)
    found = []
    for message in encoded(KINDS[kind], compression):
        assert sum(map(len, message.pieces)) == message.layout.body_length
        body = bytearray(message.layout.body_length)
        for (offset, length), buffer in zip(message.layout.buffers, message.buffers(), strict=True):
            body[offset : offset + length] = memoryview(buffer).cast("B") if buffer else b""
        batch = decoder.decode(message.metadata, message.layout, pyarrow.py_buffer(body))
        found += [batch] if batch is not None else []
    assert found == KINDS[kind]
    for batch in found:
        batch.validate(full=True)


def test_a_batch_is_encoded_without_a_copy() -> None:
    own = {buffer.address for buffer in stored(NUMBERS) if buffer.size > 10_000}
    sent = {buffer.address for buffer in BATCH.buffers() if isinstance(buffer, pyarrow.Buffer)}
    assert len(own) == 2
    assert own <= sent


def test_deltas_of_dictionaries_are_messages_of_their_own() -> None:
    kinds = [message.layout.kind for message in encoded(KINDS["dictionaries"])]
    dictionary, batch = MessageKind.DICTIONARY_BATCH, MessageKind.RECORD_BATCH
    assert kinds == [MessageKind.SCHEMA, dictionary, batch, dictionary, batch, batch, dictionary, batch]


def test_offsets_may_be_changed() -> None:
    message = BATCH
    moved = with_offsets(message.metadata, message.layout, [8 * at for at in range(len(message.layout.buffers))], MOST)
    layout = decode_metadata(moved, most=MOST)
    assert layout.body_length == MOST
    assert [offset for offset, _ in layout.buffers] == [8 * at for at in range(len(layout.buffers))]
    assert [length for _, length in layout.buffers] == [length for _, length in message.layout.buffers]


# -- metadata of a hostile peer


def test_a_body_that_is_too_long_is_refused() -> None:
    length = BATCH.layout.body_length
    assert decode_metadata(BATCH.metadata, most=length).body_length == length
    with pytest.raises(ArrowProtocolError, match=f"at most {length - 1} are accepted"):
        decode_metadata(BATCH.metadata, most=length - 1)


@pytest.mark.parametrize("length", [-1, -(1 << 63), 0, 8])
def test_buffers_outside_of_the_body_are_refused(length: int) -> None:
    changed = bytearray(BATCH.metadata)
    struct.pack_into("<q", changed, BATCH.layout.body_length_at, length)
    with pytest.raises(ArrowProtocolError, match="bytes"):
        decode_metadata(bytes(changed), most=MOST)


@pytest.mark.parametrize("pair", [(-8, 8), (0, -1), (0, MOST), (1 << 62, 1 << 62), (MOST, 8)])
def test_offsets_and_lengths_are_checked(pair: tuple[int, int]) -> None:
    changed = bytearray(BATCH.metadata)
    struct.pack_into("<qq", changed, BATCH.layout.buffers_at, *pair)
    with pytest.raises(ArrowProtocolError, match="is not in a body"):
        decode_metadata(bytes(changed), most=MOST)


@pytest.mark.parametrize(
    "message", [SCHEMA, BATCH, *encoded(KINDS["dictionaries"])[1:2]], ids=lambda each: each.layout.kind.name
)
def test_metadata_that_is_cut_or_changed_is_read_or_refused(message: EncodedMessage) -> None:
    choice = random.Random(5)
    for _ in range(3000):
        changed = bytearray(message.metadata[: choice.randrange(len(message.metadata) + 1)])
        for _ in range(choice.randrange(4)):
            if changed:
                changed[choice.randrange(len(changed))] = choice.choice([0, 1, 127, 128, 255])
        try:
            layout = decode_metadata(bytes(changed), most=MOST)
        except ArrowProtocolError:
            continue
        assert 0 <= layout.body_length <= MOST
        assert all(0 <= at <= at + size <= layout.body_length for at, size in layout.buffers)


def test_other_messages_of_arrow_are_refused() -> None:
    sink = pyarrow.BufferOutputStream()
    pyarrow.ipc.write_tensor(pyarrow.Tensor.from_numpy(__import__("numpy").zeros(3)), sink)
    tensor = sink.getvalue().to_pybytes()
    with pytest.raises(ArrowProtocolError, match="kind 4"):
        decode_metadata(tensor[8 : 8 + int.from_bytes(tensor[4:8], "little")], most=MOST)


def test_a_compressed_body_that_expands_too_much_is_refused() -> None:
    decoder = StreamDecoder(max_body=1 << 20)
    schema, batch = encoded([NUMBERS], "zstd")
    decoder.decode(schema.metadata, schema.layout, None)
    body = bytearray(b"".join(bytes(piece) for piece in batch.pieces))
    struct.pack_into("<q", body, batch.layout.buffers[1][0], 1 << 50)
    with pytest.raises(ArrowProtocolError, match="at most 1048576 are accepted"):
        decoder.decode(batch.metadata, batch.layout, pyarrow.py_buffer(body))


def test_a_column_without_the_buffers_of_its_length_is_refused() -> None:
    changed = bytearray(BATCH.metadata)
    rows = struct.pack("<q", NUMBERS.num_rows)
    assert changed.count(rows) >= 3  # of the batch and of each column
    changed = changed.replace(rows, struct.pack("<q", 1 << 40))
    decoder = StreamDecoder(max_body=MOST)
    decoder.decode(SCHEMA.metadata, SCHEMA.layout, None)
    layout = decode_metadata(bytes(changed), most=MOST)
    with pytest.raises(ArrowProtocolError, match="pyarrow cannot read"):
        decoder.decode(bytes(changed), layout, pyarrow.py_buffer(bytes(layout.body_length)))


# -- the client's state


def test_messages_are_put_in_order() -> None:
    stream = IncomingStream(max_body=MOST)
    stream.received(frame(2, BATCH.metadata))
    stream.received(frame(3, b"", kind=0))
    assert stream.first() is None
    stream.received(frame(1, BATCH.metadata))
    stream.received(frame(0, SCHEMA.metadata))
    assert not stream.ended
    assert [stream.take().sequence for _ in range(3)] == [0, 1, 2]
    assert stream.ended
    assert stream.taken == 3


def test_sequence_numbers_roll_over() -> None:
    stream = IncomingStream(max_body=MOST, first=LAST)
    server = OutgoingStream(window=5, first=LAST)
    for message in (SCHEMA, BATCH, BATCH):
        _, pieces = server.metadata(message.metadata)
        stream.received(b"".join(pieces))
    stream.received(server.end())
    assert [stream.take().sequence for _ in range(3)] == [LAST, 0, 1]
    assert stream.ended


HOSTILE = {
    "shorter than the prefix": [b"\1\0\0"],
    "an unknown kind": [frame(0, SCHEMA.metadata, kind=2)],
    "no metadata": [frame(0, b"")],
    "a batch first": [frame(0, BATCH.metadata)],
    "a second schema": [frame(0, SCHEMA.metadata), frame(1, SCHEMA.metadata)],
    "a schema later": [frame(1, SCHEMA.metadata)],
    "a number twice": [frame(0, SCHEMA.metadata), frame(1, BATCH.metadata), frame(1, BATCH.metadata)],
    "far ahead": [frame(256, BATCH.metadata)],
    "an earlier number": [frame(LAST, BATCH.metadata)],
    "an end with data": [frame(0, SCHEMA.metadata), frame(1, b"more", kind=0)],
    "an end at once": [frame(0, b"", kind=0)],
    "an end before messages that came": [frame(0, SCHEMA.metadata), frame(2, BATCH.metadata), frame(1, b"", kind=0)],
    "a message behind the end": [frame(0, SCHEMA.metadata), frame(1, b"", kind=0), frame(1, BATCH.metadata)],
    "two ends": [frame(0, SCHEMA.metadata), frame(1, b"", kind=0), frame(2, b"", kind=0)],
}


@pytest.mark.parametrize("frames", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_client_refuses(frames: list[bytes]) -> None:
    stream = IncomingStream(max_body=MOST)
    for each in frames[:-1]:
        stream.received(each)
    with pytest.raises(ArrowProtocolError):
        stream.received(frames[-1])


# -- tags and records


@pytest.mark.parametrize("body_type", [PACKED, ADDRESSES])
@pytest.mark.parametrize("sequence", [0, 1, LAST])
def test_a_tag_has_the_number_and_the_type(sequence: int, body_type: int) -> None:
    tag = body_tag(sequence, body_type)
    assert tag == struct.unpack("<Q", struct.pack("<IBBBB", sequence, 0, 0, 0, body_type))[0]
    assert split_tag(tag) == (sequence, body_type)
    assert tag & ~ANY_TYPE == sequence


@pytest.mark.parametrize("tag", [1 << 32, 1 << 55, 2 << 56, 0xFF << 56])
def test_reserved_bits_and_unknown_types_are_refused(tag: int) -> None:
    with pytest.raises(ArrowProtocolError):
        split_tag(tag)


def test_a_record_has_the_total_and_each_buffer() -> None:
    pairs = [(1 << 60 | at, length) for at, (_, length) in enumerate(BATCH.layout.buffers)]
    record = encode_addresses(pairs)
    numbers = struct.unpack(f"<{len(record) // 8}Q", record)
    assert numbers[:2] == (sum(length for _, length in pairs), len(pairs))
    assert decode_addresses(record, BATCH.layout) == pairs


@pytest.mark.parametrize("change", ["total", "count", "length", "short", "long", "empty"])
def test_a_record_that_disagrees_with_the_metadata_is_refused(change: str) -> None:
    record = bytearray(encode_addresses([(0, length) for _, length in BATCH.layout.buffers]))
    at = {"total": 0, "count": 8, "length": 16 + 8}.get(change)
    if at is not None:
        record[at] ^= 1
    else:
        record = {"short": record[:-16], "long": record + bytes(16), "empty": bytearray()}[change]
    with pytest.raises(ArrowProtocolError, match=r"record|announced"):
        decode_addresses(bytes(record), BATCH.layout)


@pytest.mark.parametrize("message", [b"", b"1234567", bytes(8 * MOST_FREED + 8)])
def test_addresses_are_freed_in_whole_numbers(message: bytes) -> None:
    assert decode_freed(encode_freed([5, 1 << 63])) == [5, 1 << 63]
    with pytest.raises(ArrowProtocolError):
        decode_freed(message)


# -- the server's state


def test_a_server_sends_what_the_window_allows() -> None:
    stream = OutgoingStream(window=2)
    assert stream.has_room
    assert [stream.metadata(b"")[0] for _ in range(2)] == [0, 1]
    assert not stream.has_room
    assert decode_progress(encode_taken(1)) == (1, False)
    stream.was_taken(1)
    assert stream.has_room
    for count in (0, 3, 1 << 63):
        with pytest.raises(ArrowProtocolError, match="taken"):
            stream.was_taken(count)
    with pytest.raises(ArrowProtocolError):
        decode_progress(b"1234567")


def test_a_client_asks_for_bodies_that_were_announced() -> None:
    stream = OutgoingStream(window=2)
    stream.metadata(b"")
    assert decode_progress(encode_asked(1)) == (1, True)
    stream.was_asked(1)
    assert stream.asked == 1
    for count in (0, 2):
        with pytest.raises(ArrowProtocolError, match="asks for"):
            stream.was_asked(count)


def test_memory_is_released_when_its_address_was_freed_as_often_as_it_was_shown() -> None:
    stream = OutgoingStream(window=2)
    for length, token in ((8, "one"), (16, "two")):
        stream.show(4096, length, token)
    stream.show(8192, 1, "three")
    assert stream.shown_bytes == 25
    assert stream.freed([4096]) == []
    assert stream.freed([8192, 4096]) == ["three", "one", "two"]
    assert stream.shown_bytes == 0
    with pytest.raises(ArrowProtocolError, match="not shown"):
        stream.freed([4096])
    stream.show(4096, 8, "four")
    assert stream.release() == ["four"]
    assert stream.shown_bytes == 0


# -- URIs


@pytest.mark.parametrize("free", [None, 0])
@pytest.mark.parametrize("ticket", [b"", b"sales/2024", b"\0\xff ?#%/"])
@pytest.mark.parametrize("host", ["10.0.0.1", "::1", "host.example"])
def test_a_uri_has_the_tags_and_the_ticket(host: str, ticket: bytes, free: int | None) -> None:
    uri = StreamUri(host, 7471, ticket, (1 << 64) - 1, free, None if free is None else 1 << 63)
    assert StreamUri.parse(str(uri)) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "http://host:1/?want_data=1",
        "fabric://host/?want_data=1",
        "fabric://host:1/",
        "fabric://host:99999/?want_data=1",
        "fabric://host:1/?want_data=x",
        f"fabric://host:1/?want_data={1 << 64}",
        "fabric://host:1/?want_data=1&free_data=-1",
        "fabric://host:1/?want_data=1&remote_handle=short",
        "fabric://host:1/?want_data=1&remote_handle=%21",
    ],
)
def test_other_uris_are_refused(uri: str) -> None:
    with pytest.raises(ValueError):
        StreamUri.parse(uri)
