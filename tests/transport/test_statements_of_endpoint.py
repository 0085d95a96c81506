"""Statements of fi_endpoint(3) about more than a name; each test begins with the statement."""

# Doubles: calls of libfabric are recorded, and some of fi_ep_bind left out.

from functools import partial
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    Access,
    Bind,
    Caps,
    Counter,
    Domain,
    EndpointType,
    EpAttr,
    Fabric,
    FabricAttr,
    Hints,
    OpFlags,
    Order,
    Progress,
    RemoteAccessError,
    RemoteRegion,
    getinfo,
)
from aiofabric._ffi import constants, ffi, lib
from tests.fixtures.children import Child, Parent, run_in_child
from tests.fixtures.internals import handle_of
from tests.fixtures.peers import peers, skip_without, where
from tests.fixtures.providers import HOST, Pair
from tests.fixtures.sides import Open
from tests.fixtures.waiting import until

BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE
RMA = Caps.MSG | Caps.RMA


# -- enabling


@pytest.mark.anyio
async def test_an_accepted_endpoint_is_opened_with_the_info_of_its_request() -> None:
    """fi_endpoint: an endpoint that accepts is opened with the fi_info of the FI_CONNREQ event."""
    accepted: dict[bytes, aiofabric.MessageEndpoint] = {}

    async def talk(name: bytes) -> None:
        async with await aiofabric.connect(listener.address, provider="tcp", param=name) as endpoint:
            await endpoint.send(name)
            assert await endpoint.recv() == name
            await endpoint.recv()

    async with aiofabric.listen(HOST, 0, provider="tcp") as listener, anyio.create_task_group() as tasks:
        for name in (b"first", b"second"):
            tasks.start_soon(talk, name)
        requests = [await listener.accept_request() for _ in range(2)]
        for request in reversed(requests):
            accepted[request.param] = await request.accept()
        for name, endpoint in accepted.items():
            assert await endpoint.recv() == name
            await endpoint.send(name)
        for endpoint in accepted.values():
            await endpoint.send(b"the end")
            await endpoint.aclose()


@pytest.mark.parametrize(
    ("name", "kind", "lacks_vector"),
    [("udp", "DGRAM", "FI_ENOAV"), ("tcp;ofi_rxm", "RDM", "FI_EOPBADSTATE"), ("shm", "RDM", "FI_ENOAV")],
)
def test_an_endpoint_without_its_queue_or_its_address_vector_is_not_enabled(
    name: str, kind: str, lacks_vector: str
) -> None:
    """fi_enable: FI_ENOCQ, FI_ENOAV, FI_EOPBADSTATE; of libfabric, and as the error of opening."""
    ended = run_in_child(
        """
        import asyncio, os, sys
        from pathlib import Path
        from aiofabric import *
        from aiofabric._ffi import constants as C, ffi, lib

        name, kind, lacks_vector = sys.argv[1:]
        hints = Hints(fabric_attr=FabricAttr(prov_name=name), ep_attr=EpAttr(type=EndpointType[kind]))
        info = getinfo(None if name == "shm" else "127.0.0.1", hints=hints)[0]
        domain = Domain(info)
        queue, vector = CompletionQueue(domain), AddressVector(domain)

        def enabled(*bound):
            out = ffi.new("struct fid_ep **")
            assert lib.fi_endpoint(domain.native, info.native, out, ffi.NULL) == 0
            for each, flags in bound:
                assert lib.fi_ep_bind(out[0], each.native, flags) == 0
            return lib.fi_enable(out[0])

        both = queue, C.FI_TRANSMIT | C.FI_RECV
        assert enabled((vector, 0)) == -C.FI_ENOCQ
        assert enabled(both) == -getattr(C, lacks_vector)
        assert enabled(both, (vector, 0)) == 0

        async def error_without(kept):
            lib.fi_ep_bind = lambda ep, fid, flags: bind(ep, fid, flags) if kept(flags) else 0
            try:
                async with open_endpoint(EndpointType[kind], None if name == "shm" else "127.0.0.1", provider=name):
                    pass
            except FabricError as error:
                return error.call, error.errno

        bind = lib.fi_ep_bind
        assert asyncio.run(error_without(lambda flags: True)) is None
        lib.fi_close = lambda fid: 0  # 1.17's rxm would crash
        assert asyncio.run(error_without(lambda flags: not flags)) == ("fi_enable", C.FI_ENOCQ)
        assert asyncio.run(error_without(lambda flags: flags)) == ("fi_enable", getattr(C, lacks_vector))
        for left in Path("/dev/shm").glob(f"{os.getpid()}:*"):  # of the endpoint, which is not closed
            left.unlink()
        os._exit(0)
        """,
        name,
        kind,
        lacks_vector,
    )
    assert ended.status == 0, ended


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of three functions from now on: name and arguments."""
    found: list[tuple[Any, ...]] = []

    def record(name: str, call: Any, *arguments: Any) -> Any:
        found.append((name, *arguments))
        return call(*arguments)

    for name in ("fi_ep_bind", "fi_setopt", "fi_enable"):
        monkeypatch.setattr(lib, name, partial(record, name, getattr(lib, name)))
    return found


@pytest.mark.anyio
@pytest.mark.parametrize("provider", ["tcp", "sockets"])
async def test_a_shared_context_is_bound_before_its_endpoint_is_enabled(
    provider: str, calls: list[tuple[Any, ...]]
) -> None:
    """fi_endpoint: with FI_SHARED_CONTEXT an endpoint is bound to the shared context before it is enabled."""
    attr = EpAttr(type=EndpointType.MSG, rx_ctx_cnt=aiofabric.SHARED_CONTEXT)
    info = getinfo(HOST, hints=Hints(fabric_attr=FabricAttr(prov_name=provider), ep_attr=attr))[0]
    with Domain(info) as domain, aiofabric.SharedReceive(domain) as shared:
        with pytest.raises(aiofabric.FabricConnectionRefusedError):
            await aiofabric.connect(HOST, 9, domain=domain, shared_receive=shared)
        [end] = [number for number, (name, *_) in enumerate(calls) if name == "fi_enable"]
        context = ffi.cast("struct fid *", shared.native)
        assert [name for name, *arguments in calls[:end] if context in arguments[1:]] == ["fi_ep_bind"]


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["tcp;ofi_rxm", "tcp"])
async def test_the_least_room_of_a_buffer_is_set_before_its_endpoint_is_enabled(
    name: str, calls: list[tuple[Any, ...]]
) -> None:
    """FI_OPT_MIN_MULTI_RECV: rxm and shm of 2.5 ignore it afterwards."""
    caps = Caps.MSG | Caps.MULTI_RECV
    skip_without(name, caps)
    options: dict[str, Any] = {"provider": name, "caps": caps, "multi_recv": 1 << 20, "recv_size": 30_000}
    try:
        async with aiofabric.open_endpoint(EndpointType.RDM, HOST, **options):
            pass
    except aiofabric.NotSupportedError as error:
        pytest.skip(str(error))
    [end] = [number for number, (name, *_) in enumerate(calls) if name == "fi_enable"]
    assert [arguments[2] for name, *arguments in calls[:end] if name == "fi_setopt"] == [
        constants.FI_OPT_MIN_MULTI_RECV
    ]


# -- progress


async def be_read(parent: Parent, name: str) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, where(name), provider=name, caps=RMA) as endpoint:
        assert endpoint.info.domain_attr.data_progress == Progress.MANUAL
        parent.tell(endpoint.local_address)
        peer = await endpoint.add_peer(await parent.areceive())
        with endpoint.domain.register(bytearray(b"secret" * 10_000), access=BOTH, endpoint=endpoint) as region:
            await endpoint.send(region.remote.pack(), to=peer)
            await endpoint.recv()
            parent.tell("its queue is not read")
            parent.receive()  # no task of the loop runs meanwhile
            parent.tell("its queue is read again")
            await endpoint.recv()


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["tcp;ofi_rxm", "udp;ofi_rxd"])
async def test_an_endpoint_with_manual_progress_moves_when_its_queue_is_read(child: Any, name: str) -> None:
    """FI_PROGRESS_MANUAL: a target that does not read its queue answers no read."""
    skip_without(name, RMA)
    got: list[bytes] = []
    target: Child = child(be_read, name)
    async with aiofabric.open_endpoint(EndpointType.RDM, where(name), provider=name, caps=RMA) as endpoint:
        peer = await endpoint.add_peer(await target.areceive())
        target.tell(endpoint.local_address)
        remote = RemoteRegion.unpack(await endpoint.recv())
        await endpoint.send(b"sit", to=peer)
        assert await target.areceive() == "its queue is not read"

        async def read() -> None:
            got.append(await endpoint.read(remote, to=peer))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.sleep(0.1)  # there is no state to wait for, because nothing may happen
            assert not got
            target.tell("go on")
            assert await target.areceive() == "its queue is read again"
        assert got == [b"secret" * 10_000]
        await endpoint.send(b"enough", to=peer)
        await target.aresult()


# -- cancelling


@pytest.mark.anyio
async def test_a_cancelled_receive_takes_no_message(rdm: str) -> None:
    """fi_cancel: a pending operation completes with FI_ECANCELED."""
    async with peers(rdm) as (one, other, there, _):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(other.recv_tagged, 5, max_bytes=10))
                await until(lambda: other.statistics().receives == 1)
                scope.cancel()
        statistics = other.statistics()
        assert (statistics.receives, statistics.abandoned) == (0, 0)  # the provider has answered
        await one.send_tagged(b"afterwards", 5, to=there)
        with anyio.fail_after(5):
            assert await other.recv_tagged(5, max_bytes=10) == b"afterwards"


@pytest.mark.anyio
async def test_a_cancel_concerns_one_receive(rdm: str) -> None:
    """fi_cancel: the context names the operation."""
    got: dict[int, bytes] = {}
    scopes = [anyio.CancelScope() for _ in range(3)]

    async def receive(number: int) -> None:
        with scopes[number]:
            got[number] = await other.recv_tagged(5, max_bytes=10)

    async with peers(rdm) as (one, other, there, _), anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(receive, number)
            await until(lambda number=number: other.statistics().receives == number + 1)  # type: ignore[misc]
        scopes[1].cancel()
        await until(lambda: other.statistics().receives == 2)
        assert not got
        for text in (b"first", b"second"):
            await one.send_tagged(text, 5, to=there)
        await until(lambda: len(got) == 2)
    assert got == {0: b"first", 2: b"second"}


# -- counters


@pytest.mark.anyio
async def test_an_operation_that_fails_is_counted_as_an_error() -> None:
    """fi_ep_bind: a counter's error value is incremented if an operation completes in error."""
    skip_without("sockets", RMA)
    hints = Hints(caps=RMA, fabric_attr=FabricAttr(prov_name="sockets"), ep_attr=EpAttr(type=EndpointType.RDM))
    with Domain(getinfo(HOST, hints=hints)[0]) as domain, Counter(domain) as counter:
        async with peers("sockets", RMA, domain=domain, counters={counter: Bind.WRITE}) as (one, other, peer, _):
            with other.domain.register(bytearray(8), access=BOTH) as region:
                await one.write(b"good", region.remote[:4], to=peer)
                assert (counter.read(), counter.read_error()) == (1, 0)
                nothing = RemoteRegion(region.remote.address, region.remote.key + 1, 8)
                with pytest.raises(RemoteAccessError):
                    await one.write(b"bad", nothing[:3], to=peer)
                assert (counter.read(), counter.read_error()) == (1, 1)


# -- order, and buffers


@pytest.mark.anyio
async def test_a_read_returns_what_was_written_before_it(sides: Open) -> None:
    """FI_ORDER_RAW: a read is carried out after the writes that were posted before it."""
    async with sides() as (one, other, to, _):
        if Order.RAW not in one.info.tx_attr.msg_order:
            pytest.skip("this provider does not keep the order")
        memory, got = bytearray(100_000), bytearray(100_000)
        with other.domain.register(memory, access=BOTH, endpoint=other) as region:
            for number in range(1, 20):
                async with anyio.create_task_group() as tasks:
                    for size in (100_000, 10):
                        write = partial(one.write, bytes([number]) * size, region.remote[:size], **to)
                        tasks.start_soon(write)
                        await anyio.lowlevel.checkpoint()
                    tasks.start_soon(partial(one.read_into, got, region.remote, **to))
                assert got == bytes([number]) * 100_000


@pytest.mark.anyio
@pytest.mark.parametrize("provider", ["tcp", "sockets"])
async def test_an_injected_buffer_is_the_caller_s_at_once(pair: Pair) -> None:
    """FI_INJECT, inject_size: data of at most this size was copied when the call returns.

    tcp copies small messages without the flag, too.
    """
    async with pair(recv_size=None) as (active, passive):
        sizes = [1, 50, active.max_inject]
        assert active.try_send(bytes(active.max_inject + 1)) is False
        for _ in range(16):  # more than the kernel has room for, as there is no receive: what follows has to wait
            active.send_nowait(bytes(1 << 20))
        for size in sizes:
            data = bytearray(b"1" * size)
            assert active.try_send(data)
            data[:] = b"2" * size
        async with anyio.create_task_group() as tasks:
            for size in sizes:
                data = bytearray(b"1" * size)
                tasks.start_soon(partial(active.send, data, flags=OpFlags.INJECT, remote_data=size))
                await anyio.wait_all_tasks_blocked()
                data[:] = b"2" * size
            for _ in range(16):
                assert len(await passive.recv(1 << 20)) == 1 << 20
            for size in sizes * 2:
                assert await passive.recv(1000) == b"1" * size


# -- closing


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The objects of C that libfabric closes from now on, in this order."""
    found: list[Any] = []

    def close(fid: Any) -> int:
        code: int = native_close(fid)
        if code == 0:
            found.append(ffi.cast("void *", fid))
        return code

    native_close = lib.fi_close
    monkeypatch.setattr(lib, "fi_close", close)
    return found


@pytest.mark.anyio
async def test_contexts_keep_a_scalable_endpoint_open(closed: list[Any]) -> None:
    """fi_close: FI_EBUSY if a scalable endpoint has open contexts."""
    async with aiofabric.open_scalable_endpoint(HOST, provider="sockets", receive=2, transmit=2) as endpoint:
        contexts = (*endpoint.transmit, *endpoint.receive)
        assert lib.fi_close(ffi.cast("struct fid *", handle_of(endpoint).fid)) == -constants.FI_EBUSY
        assert not any(context.closed for context in contexts)
        expected = [ffi.cast("void *", handle_of(each).fid) for each in (*reversed(contexts), endpoint)]
        endpoint.close()
    assert [each for each in closed if each in expected] == expected


@pytest.mark.anyio
async def test_aliases_are_closed_before_their_endpoint(closed: list[Any]) -> None:
    """fi_ep_alias: an endpoint is released after its aliases."""
    async with aiofabric.open_endpoint(EndpointType.RDM, HOST, provider="sockets") as endpoint:
        aliases = [endpoint.alias(OpFlags.COMPLETION) for _ in range(2)]
        expected = [ffi.cast("void *", handle_of(each).fid) for each in (*reversed(aliases), endpoint)]
        endpoint.close()
    assert [each for each in closed if each in expected] == expected


@pytest.mark.parametrize("provider", ["tcp", "shm", "sockets"])
def test_a_fabric_is_closed_after_all_that_is_on_it(provider: str, closed: list[Any]) -> None:
    """fi_fabric(3): what was opened on a fabric is closed before it."""
    kind = EndpointType.MSG if provider == "tcp" else EndpointType.RDM
    hints = Hints(ep_attr=EpAttr(type=kind), fabric_attr=FabricAttr(prov_name=provider))
    info = getinfo(where(provider), hints=hints)[0]
    fabric = Fabric(info)
    domain = Domain(info, fabric=fabric)
    counter = Counter(domain)
    expected = [ffi.cast("void *", each.native) for each in (counter, domain, fabric)]
    fabric.close()
    assert [each for each in closed if each in expected] == expected
    assert domain.closed
    assert counter.closed
