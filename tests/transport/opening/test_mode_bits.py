"""Mode bits, with which providers ask for the application's help: shown with doubles, because no provider here sets
them.
"""

# Privates: a pool of the native core without an endpoint.
# Doubles: no provider here sets these mode bits.

from dataclasses import replace
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Address, Caps, EndpointType, Info, MessageTooLongError, Mode, NotSupportedError, address_vector
from aiofabric._core import PoolBuffer, PoolCore
from aiofabric._ffi import constants, ffi, lib
from aiofabric.cq.operation import State
from aiofabric.cq.queue import CompletionQueue, ErrorEntry
from aiofabric.transport.connectionless import open as opening
from aiofabric.transport.opening import selection
from tests.cq.manual import Endpoint
from tests.fixtures.internals import handle_of
from tests.fixtures.native_endpoint import NativeEndpoint
from tests.fixtures.peers import peers
from tests.fixtures.through_python import ask_queues_through_python, inject_through_python, post_receives_through

PREFIX = 40  # bytes, as verbs and efa datagrams have


class Prefixed:
    """udp as a provider that puts 40 bytes of its own before each message, and checks that they are there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        send, recv, read, find = lib.fi_send, lib.fi_recv, CompletionQueue.read, selection.find

        def prefixed_send(ep: Any, buf: Any, length: int, desc: Any, *rest: Any) -> int:
            assert length >= PREFIX, "no room for the provider's header"
            assert bytes(ffi.buffer(buf, PREFIX)) == bytes(PREFIX)
            return send(ep, buf + PREFIX, length - PREFIX, desc, *rest)

        def prefixed_recv(ep: Any, buf: Any, length: int, desc: Any, *rest: Any) -> int:
            assert length >= PREFIX, "no room for the provider's header"
            ffi.memmove(buf, b"\xee" * PREFIX, PREFIX)
            return recv(ep, buf + PREFIX, length - PREFIX, desc, *rest)

        def prefixed_read(queue: CompletionQueue, window: int = 0) -> Any:
            entries = read(queue, window)
            if entries is None:
                return None
            received = constants.FI_RECV
            return [(*e[:2], e[2] + PREFIX, *e[3:]) if e[1] & received else e for e in entries]

        async def prefixed_find(*args: Any, **options: Any) -> Info:
            info = await find(*args, **options)
            attr = replace(info.ep_attr, msg_prefix_size=PREFIX)
            object.__setattr__(info, "ep_attr", attr)
            object.__setattr__(info, "mode", info.mode | Mode.MSG_PREFIX)
            return info

        def no_inject(*_: Any) -> int:
            raise AssertionError("an injected message would have no prefix")

        monkeypatch.setattr(lib, "fi_send", prefixed_send)
        post_receives_through(monkeypatch, prefixed_recv)
        inject_through_python(monkeypatch)
        monkeypatch.setattr(lib, "fi_inject", no_inject)
        ask_queues_through_python(monkeypatch)
        monkeypatch.setattr(CompletionQueue, "read", prefixed_read)
        monkeypatch.setattr(opening, "find", prefixed_find)


@pytest.fixture
def prefixed(monkeypatch: pytest.MonkeyPatch) -> Prefixed:
    return Prefixed(monkeypatch)


@pytest.mark.exercises("FI_MSG_PREFIX")
@pytest.mark.anyio
async def test_messages_behind_a_prefix(prefixed: Prefixed) -> None:
    async with (
        aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", provider="udp", recv_size=1000) as one,
        aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", provider="udp", recv_size=1000) as other,
    ):
        peer = await one.add_peer(other.local_address)
        assert other.recv_size == 1000
        await one.send(b"short", to=peer)
        assert await other.recv() == b"short"
        await one.send([b"in ", b"pieces ", bytes(500)], to=peer)
        assert await other.recv() == b"in pieces " + bytes(500)
        await one.send(bytes(1000), to=peer)
        async with other.recv_view() as view:
            assert bytes(view) == bytes(1000)
        await one.send(b"", to=peer)
        room = bytearray(10)
        assert await other.recv_into(room) == 0
        assert one.try_send(b"x", to=peer) is False
        with pytest.raises(MessageTooLongError):
            await one.send(bytes(one.max_message_size + 1), to=peer)


@pytest.mark.anyio
async def test_direct_receives_have_no_room_for_a_prefix(prefixed: Prefixed) -> None:
    with pytest.raises(NotSupportedError, match="its own bytes before each message"):
        async with aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", provider="udp", recv_size=None):
            pass


@pytest.mark.exercises("FI_RX_CQ_DATA")
def test_a_peer_s_write_that_used_a_receive_up_has_it_posted_again() -> None:
    """FI_RX_CQ_DATA: the write's data comes as the completion of a receive in which there is nothing."""
    endpoint = Endpoint()
    endpoint.source.unmatched.rx_cq_data = True
    transfer = endpoint.submit("receive")
    address = transfer.slot.address
    endpoint.queue.complete(address, flags=constants.FI_REMOTE_WRITE | constants.FI_REMOTE_CQ_DATA, data=7)
    endpoint.driver.settle_down()
    assert transfer.state is State.POSTED
    assert endpoint.posted == [address, address]
    endpoint.queue.complete(address, flags=constants.FI_RECV, length=3)
    endpoint.driver.settle_down()
    assert (transfer.state, transfer.length) == (State.FINISHED, 3)
    endpoint.close()


def test_a_receive_that_cannot_be_posted_again_fails() -> None:
    endpoint = Endpoint()
    endpoint.source.unmatched.rx_cq_data = True
    transfer = endpoint.submit("receive")
    endpoint.answers.append(-constants.FI_EINVAL)
    endpoint.queue.complete(transfer.slot.address, flags=constants.FI_REMOTE_WRITE)
    endpoint.driver.settle_down()
    assert transfer.state is State.FINISHED
    assert isinstance(transfer.error, aiofabric.FabricError)
    endpoint.close()


def test_a_receive_that_was_used_up_as_its_endpoint_closed_is_not_posted_again() -> None:
    """Flushed completions are read after fi_close: a new post would write to freed memory."""
    endpoint = Endpoint()
    endpoint.source.unmatched.rx_cq_data = True
    transfer = endpoint.submit("receive")
    endpoint.native_open = False
    endpoint.queue.complete(transfer.slot.address, flags=constants.FI_REMOTE_WRITE)
    endpoint.driver.settle_down()
    assert len(endpoint.posted) == 1
    endpoint.submissions.end(lambda: anyio.ClosedResourceError("closed"))
    assert isinstance(transfer.error, anyio.ClosedResourceError)
    endpoint.close()


def test_without_the_mode_a_peer_s_write_touches_no_receive() -> None:
    """tcp leaves an earlier transfer's context in such a completion."""
    endpoint = Endpoint()
    transfer = endpoint.submit("receive")
    endpoint.queue.complete(transfer.slot.address, flags=constants.FI_REMOTE_WRITE)
    endpoint.driver.settle_down()
    assert transfer.state is State.POSTED
    assert len(endpoint.posted) == 1
    endpoint.close()


def test_a_pooled_receive_that_was_used_up_goes_back_to_its_pool() -> None:
    posts: list[int] = []

    def recv(buf: int, length: int, context: int) -> int:
        posts.append(length)
        return 0

    native = NativeEndpoint(recv)
    endpoint = Endpoint()
    pool = PoolCore(endpoint, endpoint.source, 64, 1)
    pool._prepare(native.address, 0, 64, 1, (0, 0), False)
    buffer = PoolBuffer(pool, 0, 0, endpoint.source.slots.acquire())
    pool._enter(buffer, 0, 0)
    pool.post()
    assert (buffer.posted, pool.posted) == (True, 1)
    buffer.consumed()
    assert (buffer.posted, pool.posted, posts) == (True, 1, [64, 64])
    assert not pool.inbox
    endpoint.close()


@pytest.mark.exercises("FI_ASYNC_IOV")
@pytest.mark.anyio
async def test_arrays_of_buffers_stay_untouched_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """FI_ASYNC_IOV: the provider may read the array later, so the array must still exist."""
    seen: list[Any] = []
    sendv = lib.fi_sendv

    def late_reader(ep: Any, iov: Any, *rest: Any) -> int:
        seen.append(ffi.cast("uintptr_t", iov))
        return sendv(ep, iov, *rest)

    inject_through_python(monkeypatch)
    monkeypatch.setattr(lib, "fi_sendv", late_reader)
    async with peers("tcp;ofi_rxm", Caps.MSG, recv_size=1 << 20) as (one, other, peer, _):
        await one.send(b"connect", to=peer)
        await other.recv()
        route = handle_of(one).route_to(peer)
        transfer = route.post([bytes(100_000), bytes(100_000)])
        pins, iov = transfer.pins
        assert ffi.cast("uintptr_t", iov) == seen[0]
        assert (iov[0].iov_base, iov[1].iov_len) == (pins[0], 100_000)
        assert len(await other.recv()) == 200_000
        await route.drained()


@pytest.mark.exercises("FI_CONTEXT", "FI_CONTEXT2")
@pytest.mark.anyio
async def test_the_context_of_an_operation_is_the_provider_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a struct fi_context2 may be written over from the posting of an operation to its end."""

    def scribbling(call: Any) -> Any:
        def post(*arguments: Any) -> int:
            rc: int = call(*arguments)
            ffi.memmove(arguments[-1], b"\xa5" * ffi.sizeof("struct fi_context2"), ffi.sizeof("struct fi_context2"))
            return rc

        return post

    monkeypatch.setattr(lib, "fi_send", scribbling(lib.fi_send))
    post_receives_through(monkeypatch, scribbling(lib.fi_recv))
    async with peers("tcp;ofi_rxm", Caps.MSG, recv_size=1 << 20, recv_count=2) as (one, other, peer, _):
        for number in range(8):
            await one.send(bytes([number]) * 100_000, to=peer)
            assert await other.recv() == bytes([number]) * 100_000


class Naming:
    """udp as a provider that grants FI_SOURCE_ERR: it reports such messages as errors, with an address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address = b""  # of the unknown peer
        self._strange: list[Any] = []
        read, read_error, find = CompletionQueue.read, CompletionQueue.read_error, selection.find

        def naming_read(queue: CompletionQueue, window: int = 0) -> Any:
            entries = list(read(queue, window) or ())
            known = [e for e in entries if not (e[1] & constants.FI_RECV and e[6] == constants.FI_ADDR_NOTAVAIL)]
            self._strange += [e for e in entries if e not in known]
            return known or (None if self._strange else ())

        def naming_read_error(queue: CompletionQueue) -> ErrorEntry | None:
            if not self._strange:
                return read_error(queue)
            context, flags, length, buffer, data, tag, source = self._strange.pop(0)
            words = ("", source, buffer, data, self.address)
            return ErrorEntry(context, flags, length, 0, tag, constants.FI_EADDRNOTAVAIL, 0, *words)

        async def naming_find(*args: Any, **options: Any) -> Info:
            info = await find(*args, **options)
            object.__setattr__(info, "caps", info.caps | Caps.SOURCE_ERR)
            return info

        ask_queues_through_python(monkeypatch)
        monkeypatch.setattr(CompletionQueue, "read", naming_read)
        monkeypatch.setattr(CompletionQueue, "read_error", naming_read_error)
        monkeypatch.setattr(opening, "find", naming_find)


@pytest.mark.exercises("FI_SOURCE_ERR", "FI_EADDRNOTAVAIL")
@pytest.mark.anyio
@pytest.mark.parametrize("recv_size", [1000, None], ids=["pooled", "direct"])
async def test_an_unknown_peer_s_address_comes_along(recv_size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    naming, room = Naming(monkeypatch), (1000,) if recv_size is None else ()
    async with (
        aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", provider="udp") as unknown,
        aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", provider="udp", recv_size=recv_size) as host,
    ):
        naming.address = unknown.local_address.raw
        peer = await unknown.add_peer(host.local_address)
        with anyio.fail_after(5):
            for words in (b"who am I?", b"and now?"):
                await unknown.send(words, to=peer)
                message = await host.recv(*room)
                assert message == words
                assert message.source is not None
                assert message.source.address == unknown.local_address
            await host.send(b"I know you", to=message.source)
            assert await unknown.recv() == b"I know you"


@pytest.mark.anyio
async def test_unknown_peers_without_address_or_number_have_no_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(address_vector, "_UNKNOWN_MOST", 2)
    nobody = constants.FI_ADDR_NOTAVAIL
    async with aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", provider="udp") as ep:
        ports = [Address.from_ip("127.0.0.1", port).raw for port in (1, 2, 3)]
        assert ep.vector.introduce(b"") == ep.vector.introduce(b"what?") == nobody
        numbers = [ep.vector.introduce(raw) for raw in ports]
        assert nobody not in numbers[:2]
        assert numbers[2] == nobody  # as many as may be
        ep.remove_peer(next(iter(ep.vector)))
        assert ep.vector.introduce(ports[2]) != nobody


@pytest.mark.exercises("FI_SOURCE_ERR")
def test_the_address_is_read_from_the_error_s_data(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = ffi.new("char[]", b"sixteen bytes!!")

    def readerr(cq: Any, entry: Any, flags: int) -> int:
        entry.err, entry.flags, entry.len, entry.data = constants.FI_EADDRNOTAVAIL, constants.FI_RECV, 5, 7
        entry.err_data, entry.err_data_size = raw, 15
        return 1

    monkeypatch.setattr(lib, "fi_cq_readerr", readerr)
    info = aiofabric.getinfo(hints=aiofabric.Hints(fabric_attr=aiofabric.FabricAttr(prov_name="udp")))[0]
    with aiofabric.Fabric(info) as fabric, aiofabric.Domain(info, fabric) as domain, CompletionQueue(domain) as queue:
        entry = queue.read_error()
    assert entry is not None
    assert (entry.address, entry.length, entry.data) == (b"sixteen bytes!!", 5, 7)


@pytest.mark.exercises("FI_SOURCE_ERR")
def test_a_receive_from_an_unknown_peer_succeeds_where_it_has_a_number() -> None:
    endpoint = Endpoint()
    endpoint.source.unmatched.introduce = {b"somewhere": 42}.__getitem__
    known, unknown = endpoint.submit("receive"), endpoint.submit("receive")
    flags = constants.FI_RECV
    endpoint.queue.fail(known.slot.address, constants.FI_EADDRNOTAVAIL, flags=flags, length=3, address=b"somewhere")
    endpoint.queue.fail(unknown.slot.address, constants.FI_EIO, flags=flags, address=b"somewhere")
    endpoint.driver.settle_down()
    assert (known.error, known.length, known.source) == (None, 3, 42)
    assert unknown.error is not None
    endpoint.close()
