"""Streams of record batches arrive whole, without a copy, in bounded memory. Hostile peers end only themselves."""

from __future__ import annotations

import gc
import logging
import re
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import pyarrow
import pytest

import aiofabric
from aiofabric.features import Quirk
from aiofabric.integrations.arrow import ArrowProtocolError, StreamServer, open_stream, serve_streams
from aiofabric.integrations.arrow.connection import StreamHello, add_peer, readable_region, tagged_endpoint
from aiofabric.integrations.arrow.protocol import ADDRESSES, PACKED, body_tag, encode_addresses, encode_freed
from aiofabric.integrations.arrow.uri import StreamUri
from tests.fixtures.children import ChildFailed
from tests.fixtures.leaks import descriptors
from tests.fixtures.libraries import another
from tests.fixtures.peers import quirks_of
from tests.fixtures.providers import CARRIERS, HOST, RXM, connected_pair, over
from tests.fixtures.waiting import until
from tests.integrations.arrow_batches import KINDS, NUMBERS, stored
from tests.integrations.arrow_peers import (
    FIRST,
    SMALL,
    TABLE,
    for_ever,
    serve_for_ever,
    serve_table,
    serve_until_killed,
    take_for_ever,
)
from tests.integrations.test_arrow_protocol import BATCH, HOSTILE, SCHEMA, frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.fixtures.children import Child, Parent

pytestmark = pytest.mark.anyio

provider = over([*CARRIERS, RXM] if RXM not in CARRIERS else CARRIERS)

on_asyncio = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])


@asynccontextmanager
async def serving(found: Any, provider: str, **options: Any) -> AsyncIterator[StreamServer]:
    async with serve_streams(lambda ticket: found, HOST, 0, provider=provider, **options) as server:
        yield server


async def all_of(uri: str, provider: str, **options: Any) -> list[pyarrow.RecordBatch]:
    return [batch async for batch in open_stream(uri, provider=provider, **options)]


# -- what arrives


@pytest.mark.parametrize("expose", [True, False], ids=["read", "sent"])
async def test_a_table_of_another_process_arrives_without_a_copy(
    provider: str, expose: bool, child: Callable[..., Child]
) -> None:
    server = child(serve_table, HOST, provider, expose)
    uri = await server.areceive()
    before = pyarrow.total_allocated_bytes()
    batches = await all_of(uri, provider)
    received = pyarrow.total_allocated_bytes() - before
    server.tell("the end")
    assert pyarrow.Table.from_batches(batches) == TABLE
    assert len(batches) == 4
    size = sum(buffer.size for batch in batches for buffer in stored(batch))
    assert size <= received < size + 4096, "pyarrow has allocated the memory of the bodies, and no other"
    assert all(buffer.address % 8 == 0 for batch in batches for buffer in stored(batch))
    assert await server.aresult() < size // 100, "the server's pyarrow has allocated metadata, and no column"


@on_asyncio
@pytest.mark.parametrize("expose", [True, False], ids=["read", "sent"])
async def test_a_table_of_a_process_with_another_libfabric_arrives(expose: bool, child: Callable[..., Child]) -> None:
    """libfabric 1.x and 2.x meet over rxm. The suite runs on each, so each is the client once."""
    server = child(serve_table, HOST, "tcp", expose, library=another())
    with anyio.fail_after(20):
        batches = await all_of(await server.areceive(), "tcp")
    assert pyarrow.Table.from_batches(batches) == TABLE


@pytest.mark.parametrize("expose", [True, False], ids=["read", "sent"])
async def test_batches_of_every_kind_arrive(provider: str, expose: bool) -> None:
    def find(ticket: bytes) -> Any:
        return KINDS[ticket.decode()]

    async with serve_streams(find, HOST, 0, provider=provider, expose=expose) as server:
        for kind, batches in KINDS.items():
            assert await all_of(server.uri(kind), provider, validate=True) == batches, kind


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
async def test_compressed_batches_arrive(provider: str, compression: str) -> None:
    async with serving(KINDS["flat"] * 2, provider, compression=compression) as server:
        assert await all_of(server.uri(), provider) == KINDS["flat"] * 2


def generated() -> Iterator[pyarrow.RecordBatch]:
    for number in range(20):
        yield pyarrow.record_batch({"number": range(number, number + 5000)})


async def asynchronous() -> AsyncIterator[pyarrow.RecordBatch]:
    for batch in generated():
        await anyio.lowlevel.checkpoint()
        yield batch


SOURCES: dict[str, Callable[[], Any]] = {
    "a table": lambda: pyarrow.Table.from_batches(generated()),
    "a batch": lambda: next(generated()),
    "a reader": lambda: pyarrow.Table.from_batches(generated()).to_reader(),
    "a list": lambda: list(generated()),
    "a generator": generated,
    "an async generator": asynchronous,
    "an empty table": lambda: pyarrow.table({"number": pyarrow.array([], pyarrow.int64())}),
}


@on_asyncio
@pytest.mark.parametrize("source", SOURCES)
async def test_sources_of_every_kind_are_streamed(provider: str, source: str) -> None:
    async def find(ticket: bytes) -> Any:
        await anyio.lowlevel.checkpoint()
        return SOURCES[source]()

    async with serve_streams(find, HOST, 0, provider=provider) as server:
        found = await all_of(server.uri(), provider)
        expected = [next(generated())] if source == "a batch" else [] if "empty" in source else list(generated())
        assert found == expected


async def test_the_schema_is_known_before_the_first_batch(provider: str) -> None:
    async with serving(NUMBERS, provider) as server:
        stream = open_stream(server.uri(), provider=provider)
        with pytest.raises(RuntimeError, match="schema"):
            _ = stream.schema
        async with stream:
            assert stream.schema == NUMBERS.schema
            assert [batch async for batch in stream] == [NUMBERS]
        with pytest.raises(RuntimeError, match="before"):
            async with stream:
                pass


async def test_several_clients_read_the_same_memory(provider: str) -> None:
    async with serving(TABLE, provider, max_chunksize=20_000) as server:
        found: list[list[pyarrow.RecordBatch]] = []

        async def client() -> None:
            found.append(await all_of(server.uri(), provider))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(client)
        assert [pyarrow.Table.from_batches(batches) == TABLE for batches in found] == [True] * 3
        await until(lambda: server.clients == 0)


# -- bounds


@pytest.mark.parametrize("limits", [{"window": 4}, {"window": 128, "max_shown_bytes": 3 * 40_000}], ids=str)
async def test_a_slow_client_stops_the_server(provider: str, limits: dict[str, int]) -> None:
    made = taken = ahead = 0

    def source() -> Iterator[pyarrow.RecordBatch]:
        nonlocal made, ahead
        for made in range(1, 61):
            ahead = max(ahead, made - taken)
            yield next(generated())

    async with serving(source(), provider, **limits) as server:
        async for _ in open_stream(server.uri(), provider=provider, read_ahead=2):
            taken += 1
            await anyio.lowlevel.checkpoint()
    assert (made, taken) == (60, 60)
    assert ahead <= 4 + 2 + 1  # in the window, received, and made next


async def test_a_batch_that_is_too_large_is_refused(provider: str) -> None:
    async with serving(NUMBERS, provider) as server:
        with pytest.raises(ArrowProtocolError, match="at most 1000 are accepted"):
            await all_of(server.uri(), provider, max_batch_bytes=1000)
        await until(lambda: server.clients == 0)
        assert await all_of(server.uri(), provider) == [NUMBERS]


async def test_a_schema_that_is_too_large_ends_the_stream(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(KINDS["wide"], provider) as server:
        with pytest.raises(aiofabric.FabricConnectionError, match="max_metadata_bytes"):
            await all_of(server.uri(), provider, max_metadata_bytes=1000)
        await until(lambda: server.clients == 0)
    assert "1005" in caplog.text
    assert "max_metadata_bytes" in caplog.text


@on_asyncio
async def test_further_clients_are_rejected(provider: str) -> None:
    async with serving(TABLE, provider, max_clients=1) as server, open_stream(server.uri(), provider=provider):
        with pytest.raises(aiofabric.FabricConnectionRejectedError):
            await all_of(server.uri(), provider)


# -- ends


async def test_a_client_may_leave_early(provider: str) -> None:
    async with serving(TABLE, provider, max_chunksize=1000) as server:
        async with open_stream(server.uri(), provider=provider) as stream:
            async for _ in stream:
                break
        with pytest.raises(anyio.ClosedResourceError):
            await anext(stream)
        await until(lambda: server.clients == 0)


async def test_a_cancelled_client_leaves_nothing(provider: str) -> None:
    async def slow() -> AsyncIterator[pyarrow.RecordBatch]:
        yield NUMBERS
        await anyio.sleep_forever()

    async with serve_streams(lambda ticket: slow(), HOST, 0, provider=provider) as server:
        async with open_stream(server.uri(), provider=provider) as stream:
            assert await anext(stream) == NUMBERS
            with anyio.move_on_after(0.05):
                await anext(stream)
            with anyio.move_on_after(0.05):  # it was only waiting, so nothing is lost
                await anext(stream)
        await until(lambda: server.clients == 0)


async def test_a_stream_may_be_cancelled_while_bodies_are_received(provider: str) -> None:
    async with serve_streams(lambda ticket: for_ever(), HOST, 0, provider=provider) as server:
        for _ in range(3):
            async with open_stream(server.uri(), provider=provider) as stream:
                with anyio.move_on_after(0.03):
                    async for batch in stream:
                        assert batch.num_rows == FIRST.num_rows
        await until(lambda: server.clients == 0)


async def test_a_source_that_fails_ends_its_stream(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    def find(ticket: bytes) -> Any:
        if ticket != b"known":
            raise KeyError(ticket)
        yield NUMBERS
        raise ZeroDivisionError("in the source")

    async with serve_streams(find, HOST, 0, provider=provider) as server:
        async with open_stream(server.uri("known"), provider=provider) as stream:
            assert await anext(stream) == NUMBERS, "it was sent before"
            with pytest.raises(aiofabric.FabricConnectionError):
                await anext(stream)
        with pytest.raises(aiofabric.FabricConnectionError):
            await all_of(server.uri("unknown"), provider)
        await until(lambda: server.clients == 0)
    assert "in the source" in caplog.text
    assert "KeyError: b'unknown'" in caplog.text


def another_schema() -> Iterator[pyarrow.RecordBatch]:
    yield SMALL
    yield pyarrow.record_batch({"b": ["text"]})


def raises_later() -> Iterator[pyarrow.RecordBatch]:
    yield SMALL
    raise ZeroDivisionError


@pytest.mark.parametrize("expose", [True, False], ids=["read", "sent"])
@pytest.mark.parametrize("source", [another_schema, raises_later])
async def test_a_client_gets_what_was_sent_before_the_failure(
    provider: str, source: Callable[[], Any], expose: bool
) -> None:
    async with serve_streams(lambda ticket: source(), HOST, 0, provider=provider, expose=expose) as server:
        for _ in range(5):
            stream = open_stream(server.uri(), provider=provider)
            with anyio.fail_after(10):
                assert await anext(stream) == SMALL
                with pytest.raises(aiofabric.FabricConnectionError) as caught:
                    await anext(stream)
            assert "The stream ended before its last batch" in str(caught.value)
            assert "log" in str(caught.value)
            assert "in order" not in str(caught.value)
        await until(lambda: server.clients == 0)


@pytest.mark.parametrize("expose", [True, False], ids=["read", "sent"])
async def test_a_slow_client_gets_what_was_sent_before_the_failure(provider: str, expose: bool) -> None:
    failed = anyio.Event()

    async def source() -> AsyncIterator[pyarrow.RecordBatch]:
        for _ in range(5):
            yield SMALL
        failed.set()
        raise ZeroDivisionError

    async with serve_streams(lambda ticket: source(), HOST, 0, provider=provider, expose=expose) as server:
        stream = open_stream(server.uri(), provider=provider, read_ahead=1)
        with anyio.fail_after(10):
            assert await anext(stream) == SMALL
            await failed.wait()
            for _ in range(4):
                assert await anext(stream) == SMALL
            with pytest.raises(aiofabric.FabricConnectionError):
                await anext(stream)


@on_asyncio
async def test_a_client_that_takes_nothing_does_not_hold_a_failed_stream(provider: str) -> None:
    async with (
        serving(raises_later(), provider, failure_timeout=0.05) as server,
        open_stream(server.uri(), provider=provider, read_ahead=1) as stream,
    ):
        await until(lambda: server.clients == 0)
        with anyio.fail_after(10), pytest.raises(aiofabric.FabricConnectionError):
            raise AssertionError([batch async for batch in stream])


@on_asyncio
async def test_the_log_has_the_reason_before_the_client_has_taken_everything(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(raises_later(), "tcp") as server, open_stream(server.uri(), provider="tcp", read_ahead=1):
        await until(lambda: "ZeroDivisionError" in caplog.text)


@on_asyncio
@pytest.mark.parametrize("error", [FileNotFoundError, TimeoutError, ArrowProtocolError, anyio.ClosedResourceError])
async def test_the_log_has_the_reason_of_every_kind(error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    def find(ticket: bytes) -> Any:
        raise error("of the program")

    async with serve_streams(find, HOST, 0, provider="tcp") as server:
        with pytest.raises(aiofabric.FabricConnectionError):
            await all_of(server.uri(), "tcp")
    assert f"{error.__name__}: of the program" in caplog.text
    assert "broke the protocol" not in caplog.text


@pytest.mark.parametrize("found", [5, ["text"], []], ids=str)
async def test_a_source_that_is_none_is_named(provider: str, found: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(found, provider) as server:
        with pytest.raises(aiofabric.FabricConnectionError):
            await all_of(server.uri(), provider)
        await until(lambda: server.clients == 0)
    assert "Error: a stream" in caplog.text


async def test_a_server_that_is_killed_ends_the_stream(carrier: str, child: Callable[..., Child]) -> None:
    """The client's task runs between two checkpoints meanwhile."""
    server = child(serve_for_ever, HOST, carrier)
    uri = await server.areceive()
    stream = open_stream(uri, provider=carrier)
    for _ in range(3):
        assert await anext(stream) == FIRST
    server.kill()
    with pytest.raises(aiofabric.FabricConnectionError):
        assert [batch == NUMBERS async for batch in stream] == []


async def eight_clients(_parent: Parent | None, uri: str, provider: str) -> int:
    """How many of eight streams end with an error of the connection."""
    ended: list[Exception] = []

    async def client() -> None:
        try:
            await all_of(uri, provider)
        except aiofabric.FabricConnectionError as error:
            ended.append(error)

    with anyio.fail_after(15):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(client)
    return len(ended)


@pytest.mark.parametrize("expose", [True, False], ids=["read", "sent"])
async def test_a_server_that_is_killed_leaves_no_client_waiting(
    provider: str, expose: bool, child: Callable[..., Child], caplog: pytest.LogCaptureFixture
) -> None:
    """It ends right after the first batch of one of the clients, which are then at different places. A provider that
    loses a registration would keep its domain open, with its descriptors.
    """
    server = child(serve_until_killed, HOST, provider, expose, 6)
    uri = await server.areceive()
    if expose or Quirk.CUT_MESSAGE_CRASHES not in quirks_of(provider):
        assert await eight_clients(None, uri, provider) == 8
        assert "FI_EBUSY" not in caplog.text
        return
    try:  # tcp of 2.x: a tagged message that is cut crashes the process in 1 of 60 runs
        assert await child(eight_clients, uri, provider).aresult() == 8
    except ChildFailed as error:
        if not re.search("signal SIG(SEGV|ABRT)", str(error)):
            raise


@on_asyncio
async def test_a_client_that_is_killed_frees_the_servers_memory(carrier: str, child: Callable[..., Child]) -> None:
    async with serving(for_ever(), carrier) as server:
        client = child(take_for_ever, carrier, server.uri())
        await client.areceive()
        client.kill()
        await until(lambda: server.clients == 0)


def large(batches: int) -> Iterator[pyarrow.RecordBatch]:
    """Each batch has memory of its own."""
    for _ in range(batches):
        yield pyarrow.record_batch({"number": pyarrow.array(range(50_000))})


def held() -> tuple[int, int]:
    """Memory of pyarrow, in bytes, and descriptors. The error of a stream and its frames are a cycle."""
    gc.collect()
    return pyarrow.total_allocated_bytes(), len(descriptors())


@on_asyncio
async def test_killed_clients_hold_no_memory_and_no_descriptors(carrier: str, child: Callable[..., Child]) -> None:
    async with serve_streams(lambda ticket: large(1000), HOST, 0, provider=carrier) as server:

        async def some(count: int) -> None:
            clients = [child(take_for_ever, carrier, server.uri()) for _ in range(count)]
            for client in clients:
                await client.areceive()
            for client in clients:
                client.close()
            await until(lambda: server.clients == 0)

        await some(1)  # the first one leaves what is opened once
        before = held()
        await some(2)
        await until(lambda: held() == before)


@on_asyncio
@pytest.mark.parametrize("expose", [True, False], ids=["read", "sent"])
async def test_two_large_streams_at_once_leave_nothing(provider: str, expose: bool) -> None:
    async with serve_streams(lambda ticket: large(50), HOST, 0, provider=provider, expose=expose) as server:
        rows: list[int] = []

        async def client() -> None:
            rows.append(sum([batch.num_rows async for batch in open_stream(server.uri(), provider=provider)]))

        await client()  # the first one leaves what is opened once
        await until(lambda: server.clients == 0)
        before = held()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client)
            tasks.start_soon(client)
        await until(lambda: server.clients == 0)
        await until(lambda: held() == before)
        assert rows == [50 * 50_000] * 3


# -- hostile peers


@asynccontextmanager
async def hostile_server(
    provider: str,
    frames: list[bytes],
    bodies: tuple[tuple[bytes, int], ...] = (),
    uri: dict[str, Any] | None = None,
) -> AsyncIterator[str]:
    """The URI of a server that sends these frames and tagged messages, whatever was asked for."""

    async def serve(listener: aiofabric.Listener) -> None:
        async with await (await listener.accept_request()).accept() as connection:
            theirs = StreamHello.unpack(bytes(await connection.recv()))
            async with tagged_endpoint(connection, theirs) as tagged:
                peer = await add_peer(tagged, theirs, connection)
                await connection.send(StreamHello.of(tagged).pack())
                await tagged.recv_tagged(1, source=peer, max_bytes=100)
                for each in frames:
                    await connection.send(each)
                for body, tag in bodies:
                    await tagged.send_tagged(body, tag, to=peer)
                await _ended(connection)

    async with aiofabric.listen(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(serve, listener)
        shown: dict[str, Any] = {"free_data": 2, "handle": 5} if uri is None else uri
        yield str(StreamUri(HOST, listener.address.port or 0, b"", want_data=1, **shown))


@on_asyncio
async def test_a_client_refuses_hostile_metadata() -> None:
    for name, frames in HOSTILE.items():
        async with hostile_server("tcp", frames) as uri:
            with pytest.raises(ArrowProtocolError):
                raise AssertionError(f"{name}: {await all_of(uri, 'tcp')}")


START = [frame(0, SCHEMA.metadata), frame(1, BATCH.metadata)]
RECORD = encode_addresses([(4096, length) for _, length in BATCH.layout.buffers])
BODIES: dict[str, tuple[bytes, int, type[Exception]]] = {
    "too short": (b"short", body_tag(1, PACKED), ArrowProtocolError),
    "too long": (bytes(BATCH.layout.body_length + 1), body_tag(1, PACKED), aiofabric.TruncatedMessageError),
    "of an unknown type": (b"", body_tag(1, 2), ArrowProtocolError),
    "with reserved bits": (b"", body_tag(1, PACKED) | 1 << 40, ArrowProtocolError),
    "a short record": (RECORD[:-8], body_tag(1, ADDRESSES), ArrowProtocolError),
    "another record": (RECORD[8:] + RECORD[:8], body_tag(1, ADDRESSES), ArrowProtocolError),
    "addresses of nothing": (RECORD, body_tag(1, ADDRESSES), aiofabric.FabricError),
}


@on_asyncio
@pytest.mark.parametrize("body", BODIES)
async def test_a_client_refuses_a_hostile_body(body: str) -> None:
    data, tag, error = BODIES[body]
    async with hostile_server("tcp", START, ((data, tag),)) as uri:
        with anyio.fail_after(10), pytest.raises(error):
            await all_of(uri, "tcp")


@on_asyncio
async def test_addresses_without_a_handle_are_refused() -> None:
    async with hostile_server("tcp", START, ((RECORD, body_tag(1, ADDRESSES)),), uri={}) as uri:
        with pytest.raises(ArrowProtocolError, match="remote_handle"):
            await all_of(uri, "tcp")


@on_asyncio
async def test_two_generations_over_another_provider_than_rxm_are_refused_with_the_reason() -> None:
    generation = aiofabric.library_version().major + 1
    async with connected_pair("tcp") as (active, _):
        theirs = StreamHello("sockets", b"", generation=generation)
        async with tagged_endpoint(active, theirs) as tagged:
            with pytest.raises(ArrowProtocolError, match="if it is not rxm, one generation of libfabric"):
                await add_peer(tagged, theirs, active)


RXM_HERE = StreamHello("tcp;ofi_rxm", b"", generation=aiofabric.library_version().major)
HELLOS = ["no hello", "another host", "another libfabric"]
ATTACKS = [*HELLOS, "a long ticket", "takes too much", "asks too much", "no number", "frees nothing", "frees a part"]


async def _hostile_client(uri: StreamUri, provider: str, what: str) -> None:
    connection = await aiofabric.connect(uri.host, uri.port, provider=provider, recv_size=100_000)
    async with connection:
        if what == "no hello":
            await connection.send(b"GET / HTTP/1.1")
        elif what in HELLOS:
            generation, address = aiofabric.library_version().major, aiofabric.Address.from_ip("10.1.2.3", 5).raw
            hello = StreamHello("tcp;ofi_rxm", address, generation=generation + (what == "another libfabric"))
            await connection.send(hello.pack())
            if what == "another libfabric":  # the server asks for another message
                await connection.recv()
                await connection.send(hello.pack())
        else:
            async with tagged_endpoint(connection, RXM_HERE) as tagged:
                await connection.send(StreamHello.of(tagged).pack())
                peer = await add_peer(tagged, StreamHello.unpack(bytes(await connection.recv())), connection)
                if what == "a long ticket":
                    await tagged.send_tagged(bytes(5000), uri.want_data, to=peer)
                else:
                    await tagged.send_tagged(b"", uri.want_data, to=peer)
                if what == "takes too much":
                    await connection.send(struct.pack("<Q", 1 << 40))
                elif what == "asks too much":
                    await connection.send(struct.pack("<Q", 1 << 63 | 1 << 40))
                elif what == "no number":
                    await connection.send(b"1234567")
                elif what == "frees nothing":
                    await tagged.send_tagged(encode_freed([4096]), uri.free_data or 0, to=peer)
                elif what == "frees a part":
                    await tagged.send_tagged(b"1234567", uri.free_data or 0, to=peer)
                await _ended(connection)
                return
        await _ended(connection)


async def _ended(connection: aiofabric.MessageEndpoint) -> None:
    with anyio.fail_after(10), suppress(aiofabric.FabricError, anyio.ClosedResourceError):
        while True:
            await connection.recv()


@on_asyncio
async def test_a_hostile_client_ends_only_its_own_stream(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(TABLE, "tcp", max_chunksize=1000) as server, open_stream(server.uri(), provider="tcp") as good:
        await anext(good)
        for what in ATTACKS:
            await _hostile_client(StreamUri.parse(server.uri()), "tcp", what)
        await until(lambda: server.clients == 1)
        assert len([batch async for batch in good]) == 199
    assert caplog.text.count("broke the protocol") == len(ATTACKS) - 1  # a ticket that is too long is not received


@on_asyncio
async def test_a_client_cannot_read_what_is_shown_to_another() -> None:
    """The key of a buffer depends on a number that only the buffer's client has sent. (shm checks no keys.)"""
    shown: list[tuple[int, int]] = []

    def source() -> Iterator[pyarrow.RecordBatch]:
        buffer = NUMBERS.column(0).buffers()[1]
        shown.append((buffer.address, buffer.size))
        yield NUMBERS

    async with serving(source(), "tcp") as server, open_stream(server.uri(), provider="tcp"):
        uri = StreamUri.parse(server.uri())
        await until(lambda: shown)
        other = await aiofabric.connect(uri.host, uri.port, provider="tcp")
        with pytest.raises(aiofabric.FabricError):
            await other.read_into(bytearray(shown[0][1]), readable_region(uri.handle or 0, *shown[0], virtual=False))
        other.abort()


# -- mistakes


@on_asyncio
async def test_an_error_in_the_block_of_a_server_is_raised_as_itself() -> None:
    with pytest.raises(ZeroDivisionError):
        async with serving(TABLE, "tcp"):
            raise ZeroDivisionError


@on_asyncio
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"window": 0}, ValueError),
        ({"window": 129}, ValueError),
        ({"window": True}, TypeError),
        ({"max_shown_bytes": 0}, ValueError),
        ({"max_clients": 0}, ValueError),
        ({"failure_timeout": -1}, ValueError),
        ({"failure_timeout": "1"}, TypeError),
        ({"compression": "gzip"}, ValueError),
        ({"max_chunksize": 0}, ValueError),
        ({"recv_sizes": 1}, TypeError),
    ],
    ids=str,
)
async def test_wrong_options_of_a_server_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        async with serving(TABLE, "tcp", **options):
            pass
    with pytest.raises(TypeError, match=r"serve_streams\(\) got an unexpected option 'bogus'.*, max_clients"):
        async with serving(TABLE, "tcp", bogus=1):
            pass
    with pytest.raises(TypeError, match="find"):
        async with serve_streams(TABLE, HOST, 0):
            pass


@on_asyncio
async def test_wrong_arguments_of_a_client_are_refused() -> None:
    uri = "fabric://127.0.0.1:1/?want_data=1"
    wrong: list[dict[str, Any]] = [{"read_ahead": 0}, {"max_batch_bytes": 0}, {"read_ahead_bytes": -1}]
    for options in (*wrong, {"max_metadata_bytes": 0}):
        with pytest.raises(ValueError):
            open_stream(uri, **options)
    with pytest.raises(TypeError, match=r"open_stream\(\) got an unexpected option 'colour'.*, read_ahead") as caught:
        open_stream(uri, colour=5)
    assert "recv_size" not in str(caught.value)
    with pytest.raises(TypeError, match=r"open_stream\(\) chooses recv_size itself"):
        open_stream(uri, recv_size=5)
    with pytest.raises(TypeError, match="read_ahead"):
        open_stream(uri, read_ahead=True)
    for ticket, error in ((5, TypeError), (bytes(4097), ValueError)):
        with pytest.raises(error, match="ticket"):
            open_stream(uri, ticket)  # type: ignore[arg-type]
    async with serving(TABLE, "tcp") as server, serve_streams(len, None, 0, provider="tcp") as everywhere:
        for ticket, error in ((5, TypeError), (bytes(4097), ValueError)):
            with pytest.raises(error, match="ticket"):
                server.uri(ticket)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="host="):
            everywhere.uri()
        for host in ("127.0.0.1:5", "", "a/b", "[::1]"):
            with pytest.raises(ValueError, match="without a port"):
                everywhere.uri(host=host)
        assert StreamUri.parse(everywhere.uri(host="::1")).host == "::1"
        assert StreamUri.parse(everywhere.uri(host=HOST)).host == HOST
    with pytest.raises(TypeError, match="str"):
        open_stream(b"fabric://")  # type: ignore[arg-type]
    with pytest.raises(aiofabric.FabricConnectionRefusedError):
        await all_of(uri, "tcp")
