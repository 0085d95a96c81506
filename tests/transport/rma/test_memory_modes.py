"""The addresses and keys of remote memory that getinfo announces: FI_MR_BASIC of a provider, the other modes with
doubles.
"""

# Doubles: no provider here has these registration modes.

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aiofabric
from aiofabric import (
    Access,
    AtomicOp,
    Caps,
    Datatype,
    Domain,
    DomainAttr,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
    MessageEndpoint,
    MrMode,
    NoProviderError,
    NotSupportedError,
    OpFlags,
    RemoteRegion,
)
from aiofabric._ffi import constants, ffi, lib
from aiofabric.memory import pin
from aiofabric.regions import RegionTable
from tests.fixtures.children import run_in_child
from tests.fixtures.internals import handle_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.peers import peers, skip_without
from tests.fixtures.providers import Pair
from tests.fixtures.registrations import want_of_memory
from tests.fixtures.sides import Open

BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE
LEVELS = [OpFlags.INJECT_COMPLETE, OpFlags.TRANSMIT_COMPLETE, OpFlags.DELIVERY_COMPLETE]

anyio_test = pytest.mark.anyio
one_loop = pytest.mark.parametrize("anyio_backend", LOOPS[:1])


def table(mode: MrMode, key_size: int = 8) -> RegionTable:
    attr = SimpleNamespace(mr_mode=int(mode), mr_key_size=key_size)
    return RegionTable(None, SimpleNamespace(domain_attr=attr))  # type: ignore[arg-type]


def address_of(buffer: Any) -> int:
    return int(ffi.cast("uintptr_t", pin(buffer)))


def open_domain() -> Domain:
    return Domain(aiofabric.getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name="tcp")))[0])


@asynccontextmanager
async def connected(hints: Hints) -> AsyncIterator[tuple[MessageEndpoint, MessageEndpoint]]:
    accepted: list[MessageEndpoint] = []

    async def accept(listener: aiofabric.Listener) -> None:
        accepted.append(await (await listener.accept_request()).accept())

    async with aiofabric.listen("127.0.0.1", 0, hints=hints) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(accept, listener)
        one = await aiofabric.connect(listener.address, hints=hints)
    async with one, accepted[0] as other:
        yield one, other


@pytest.mark.once
def test_what_each_mode_means() -> None:
    nothing = table(MrMode(0))
    assert not any((nothing.virtual_addresses, nothing.provider_keys, nothing.local_required, nothing.raw_keys))
    assert not any((nothing.bound_to_endpoint, nothing.busy))
    basic = table(MrMode.BASIC)
    assert basic.virtual_addresses
    assert basic.provider_keys
    assert not basic.local_required
    assert table(MrMode.LOCAL).busy
    assert table(MrMode.ENDPOINT).bound_to_endpoint
    assert table(MrMode.RAW).raw_keys
    assert table(MrMode.VIRT_ADDR).virtual_addresses
    assert table(MrMode.PROV_KEY).provider_keys


@pytest.mark.once
def test_application_keys_use_every_bit_and_never_repeat() -> None:
    keys = [table(MrMode(0)).choose_key() for _ in range(200)]
    assert max(keys) > 1 << 60
    assert len(set(keys)) == 200
    for bit in range(64):
        assert {key >> bit & 1 for key in keys} == {0, 1}
    small = table(MrMode(0), key_size=1)
    assert sorted(small.choose_key() for _ in range(256)) == list(range(256))
    with pytest.raises(aiofabric.FabricError, match="256 regions"):  # it would search for ever
        small.choose_key()
    small.free_key(5)
    assert small.choose_key() == 5


@anyio_test
async def test_basic_registration_has_virtual_addresses_and_the_provider_s_keys(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one way to have tcp name memory as hardware does."""
    asked = []
    regattr = lib.fi_mr_regattr

    def polled(domain: Any, attr: Any, flags: int, out: Any) -> int:
        asked.append(attr[0].requested_key)
        rc: int = regattr(domain, attr, flags, out)
        return rc

    monkeypatch.setattr(lib, "fi_mr_regattr", polled)
    hints = Hints(domain_attr=DomainAttr(mr_mode=MrMode.BASIC), fabric_attr=FabricAttr(prov_name="tcp"))
    memory = bytearray(range(200))
    async with connected(hints) as (one, other):
        assert handle_of(other).regions.virtual_addresses
        with (
            other.domain.register(memory, access=BOTH) as region,
            other.domain.register(bytearray(8), access=BOTH) as another,
        ):
            assert region.remote.address == address_of(memory)
            assert region.key != another.key
            assert asked == [0, 0]
            assert await one.read(region.remote[10:20]) == bytes(range(10, 20))
            await one.write(b"###", region.remote[50:53])
            assert await one.read(region.remote[49:54]) == bytes([49]) + b"###" + bytes([53])
    assert memory[50:53] == b"###"


@anyio_test
async def test_offsets_begin_at_0_and_virtual_addresses_where_the_buffer_is(sides: Open) -> None:
    async with sides() as (one, other, to, _):
        memory = bytearray(range(200))
        with other.domain.register(memory, access=BOTH, endpoint=other) as region:
            virtual = MrMode.VIRT_ADDR in other.info.domain_attr.mr_mode
            assert region.remote.address == (address_of(memory) if virtual else 0)
            assert await one.read(RemoteRegion.unpack(region.remote.pack())[100:104], **to) == bytes(range(100, 104))


# -- FI_MR_ENDPOINT


class Binding:
    """A provider whose regions are bound to an endpoint and enabled before they have a key."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        want_of_memory(monkeypatch, MrMode.ENDPOINT)
        self.calls: list[tuple[str, int]] = []
        register, close, key, desc = lib.fi_mr_regattr, lib.fi_close, lib.fi_mr_key, lib.fi_mr_desc
        self.open: dict[int, int] = {}  # region: its endpoint
        self.enabled: set[int] = set()

        def regattr(domain: Any, attr: Any, flags: int, out: Any) -> int:
            rc: int = register(domain, attr, flags, out)
            if not rc:
                self.open[self.address(out[0])] = 0
            return rc

        def bind(mr: Any, endpoint: Any, flags: int) -> int:
            assert endpoint != ffi.NULL
            self.open[self.address(mr)] = self.address(endpoint)
            return 0

        def enable(mr: Any) -> int:
            if not self.open[self.address(mr)]:
                return -int(constants.FI_EOPBADSTATE)
            self.enabled.add(self.address(mr))
            return 0

        def closing(fid: Any) -> int:
            address = self.address(fid)
            assert address not in self.open.values(), "an endpoint was closed before its regions"
            self.open.pop(address, None)
            rc: int = close(fid)
            return rc

        def enabled(function: Any) -> Any:
            def call(mr: Any) -> Any:
                assert self.address(mr) in self.enabled, "asked before it was enabled"
                return function(mr)

            return call

        for name, double in (
            ("fi_mr_regattr", regattr), ("fi_mr_bind", bind), ("fi_mr_enable", enable), ("fi_close", closing),
            ("fi_mr_key", enabled(key)), ("fi_mr_desc", enabled(desc)),
        ):  # fmt: skip
            monkeypatch.setattr(lib, name, double)

    @staticmethod
    def address(fid: Any) -> int:
        return int(ffi.cast("uintptr_t", fid))


@anyio_test
async def test_a_region_is_bound_to_its_endpoint_and_closes_before_it(
    sides: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Binding(monkeypatch)
    async with sides() as (one, other, to, _):
        memory = bytearray(range(100))
        region = other.domain.register(memory, access=BOTH, endpoint=other)
        assert list(double.open.values()) == [double.address(handle_of(other).fid)]
        assert await one.read(region.remote[5:9], **to) == bytes([5, 6, 7, 8])
        assert not handle_of(other).regions.busy  # bound memory is not lent: its operations may outlive the endpoint
        await other.aclose()
        assert region.closed
        assert not double.open


@anyio_test
@one_loop
async def test_the_only_endpoint_of_a_domain_need_not_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    double = Binding(monkeypatch)
    with open_domain() as domain:
        with pytest.raises(TypeError, match="the domain has 0 endpoints: name one"):
            domain.register(bytearray(8), access=BOTH)
        where: dict[str, Any] = {"provider": "tcp;ofi_rxm", "caps": Caps.MSG | Caps.RMA}
        async with aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", **where) as ep:
            with ep.domain.register(bytearray(8), access=BOTH):
                assert list(double.open.values()) == [double.address(handle_of(ep).fid)]
        async with peers("tcp;ofi_rxm", Caps.MSG | Caps.RMA) as (one, other, _, _):
            assert one.domain is other.domain
            with pytest.raises(TypeError, match="the domain has 2 endpoints: name one"):
                one.domain.register(bytearray(8), access=BOTH)
            with one.domain.register(bytearray(8), access=BOTH, endpoint=one):
                assert list(double.open.values()) == [double.address(handle_of(one).fid)]
            assert not double.open


@anyio_test
@one_loop
async def test_a_region_that_cannot_be_bound_is_given_back(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    double = Binding(monkeypatch)
    async with pair() as (active, _):
        with monkeypatch.context() as patch:
            patch.setattr(lib, "fi_mr_bind", lambda *_: -constants.FI_EINVAL)
            with pytest.raises(aiofabric.FabricError, match="fi_mr_bind"):
                active.domain.register(bytearray(8), access=BOTH, endpoint=active)
        assert not double.open
        assert len(handle_of(active).regions) == 0


# -- FI_MR_RAW


class Raw:
    """tcp as a provider whose keys have 20 bytes, and which a peer must make known to its domain."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        want_of_memory(monkeypatch, MrMode.RAW)
        self.mapped: dict[int, bytes] = {}
        self.maps = 0
        key_of = lib.fi_mr_key

        def raw_attr(mr: Any, base: Any, room: Any, size: Any, flags: int) -> int:
            base[0] = 0x1234
            if size[0] < 20:
                size[0] = 20
                return -int(constants.FI_ETOOSMALL)
            ffi.memmove(room, key_of(mr).to_bytes(20, "little"), 20)
            return 0

        def map_raw(domain: Any, base: int, room: Any, size: int, out: Any, flags: int) -> int:
            assert (base, size) == (0x1234, 20)
            raw = bytes(ffi.buffer(room, size))
            out[0] = int.from_bytes(raw, "little")
            assert out[0] not in self.mapped, "made known twice"
            self.mapped[out[0]] = raw
            self.maps += 1
            return 0

        def unmap_key(domain: Any, key: int) -> int:
            del self.mapped[key]
            return 0

        for name, double in (("fi_mr_raw_attr", raw_attr), ("fi_mr_map_raw", map_raw), ("fi_mr_unmap_key", unmap_key)):
            monkeypatch.setattr(lib, name, double)


@anyio_test
async def test_a_long_key_is_known_to_the_domain_while_it_is_used(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    double = Raw(monkeypatch)
    async with pair() as (active, passive):
        memory = bytearray(1 << 16)
        with passive.domain.register(memory, access=BOTH) as region:
            packed = region.remote.pack()
            assert len(packed) == 25 + 8 + 20
            remote = RemoteRegion.unpack(packed)
            assert remote == region.remote
            there = RemoteRegion(remote.address, 0, remote.length, remote.raw)  # the short key means nothing elsewhere
            await active.write(b"abc", there[100:103])
            assert await active.read(there[99:104]) == b"\0abc\0"
            await active.write(b"d", there[:1], flags=OpFlags.DELIVERY_COMPLETE)
            assert double.maps == 3
            async with anyio.create_task_group() as tasks:
                for n in range(20):
                    tasks.start_soon(active.write, b"x" * 3000, there[3000 * n : 3000 * (n + 1)])
            assert not double.mapped  # nothing stays behind
            with monkeypatch.context() as patch:
                patch.setattr(lib, "fi_mr_map_raw", lambda *_: -constants.FI_EINVAL)
                with (
                    active.domain.register(bytearray(5000)) as mine,
                    pytest.raises(aiofabric.FabricError, match="fi_mr_map_raw"),
                ):
                    await active.write(mine.buffer, there[:5000])
                assert handle_of(mine).users == 0


@anyio_test
@one_loop
async def test_a_long_key_where_keys_are_short_is_refused(pair: Pair) -> None:
    async with pair() as (active, passive):
        with passive.domain.register(bytearray(8), access=BOTH) as region:
            wrong = RemoteRegion(0, 0, 8, bytes(28))
            with pytest.raises(ValueError, match="FI_MR_RAW"):
                await active.read(wrong)
            assert await active.read(region.remote) == bytes(8)


# -- completion levels and order


@anyio_test
@pytest.mark.parametrize("level", LEVELS)
async def test_completion_levels_of_each_call(sides: Open, level: OpFlags) -> None:
    async with sides() as (one, other, to, _):
        memory = bytearray(100)
        with other.domain.register(memory, access=BOTH, endpoint=other) as region:
            for n in range(5):
                await one.write(b"%05d" % n, region.remote[:5], **to, flags=level)
                if level is OpFlags.DELIVERY_COMPLETE:
                    assert memory[:5] == b"%05d" % n  # it is there, or it would not have returned
                assert await one.read(region.remote[:5], **to, flags=level) == b"%05d" % n
                await one.send(b"%d" % n * 300, **to, flags=level)
                assert await other.recv() == b"%d" % n * 300
                await one.send([b"in ", b"pieces"], **to, flags=level, remote_data=n)
                message = await other.recv()
                assert (message, message.remote_data) == (b"in pieces", n)


@anyio_test
@one_loop
@pytest.mark.parametrize("flag", [OpFlags.FENCE, OpFlags.COMMIT_COMPLETE])
async def test_what_the_provider_would_ignore_is_refused(flag: OpFlags) -> None:
    async with peers("shm", Caps.MSG | Caps.TAGGED | Caps.RMA | Caps.ATOMIC) as (one, other, peer, _):
        missing = "FI_FENCE" if flag is OpFlags.FENCE else "FI_RMA_PMEM"
        with other.domain.register(bytearray(8), access=BOTH) as region:
            calls: list[Any] = [
                lambda: one.write(b"12345678", region.remote, to=peer, flags=flag),
                lambda: one.read(region.remote, to=peer, flags=flag),
                lambda: one.send(b"plain", to=peer, flags=flag),
                lambda: one.send_tagged(b"tagged", 5, to=peer, flags=flag),
                lambda: one.atomic(AtomicOp.SUM, 1, region.remote, to=peer, datatype=Datatype.INT64, flags=flag),
            ]
            for call in calls:
                with pytest.raises(NotSupportedError, match=f"{missing}.*shm.*does not have it"):
                    await call()
            assert one.statistics().sends == 0


@anyio_test
@one_loop
@pytest.mark.exercises("FI_FENCE")
async def test_a_fenced_send_comes_after_what_was_written_before() -> None:
    async with peers("sockets", Caps.MSG | Caps.RMA | Caps.FENCE) as (one, other, peer, _):
        memory = bytearray(1 << 20)
        with other.domain.register(memory, access=BOTH) as region, anyio.fail_after(8):
            for n in range(1, 4):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(one.write, bytes([n]) * len(memory), region.remote, to=peer))
                    await anyio.lowlevel.checkpoint()
                    tasks.start_soon(partial(one.send, b"written", to=peer, flags=OpFlags.FENCE))
                    assert await other.recv() == b"written"
                    assert memory == bytes([n]) * len(memory)


@pytest.mark.parametrize("provider", ["shm", "sm2", "tcp;ofi_rxm"])
def test_the_crash_of_remote_memory_where_there_are_no_such_calls_is_fenced(provider: str) -> None:
    """sm2 has no FI_RMA, and fi_write dereferences NULL there."""
    skip_without(provider, Caps.MSG)
    ended = run_in_child(
        """
        import sys

        import anyio
        from aiofabric import Caps, NotSupportedError, RemoteRegion
        from tests.fixtures.peers import peers

        async def main():
            remote = RemoteRegion(0, 0, 1)
            async with peers(sys.argv[1], Caps.MSG) as (one, _, peer, _):
                for call in (one.write(b"x", remote, to=peer), one.read(remote, to=peer)):
                    try:
                        await call
                    except NotSupportedError as error:
                        print(error)

        anyio.run(main)
        """,
        provider,
    )
    assert ended.status == 0, ended.err
    assert ended.out.count("FI_RMA") == ended.out.count("does not have it") == 2


@anyio_test
@one_loop
async def test_a_persistent_write_where_the_provider_has_such_memory() -> None:
    try:
        hints = Hints(caps=Caps.MSG | Caps.RMA | Caps.RMA_PMEM, ep_attr=EpAttr(type=EndpointType.MSG))
        aiofabric.getinfo("127.0.0.1", hints=hints)
    except NoProviderError as error:
        pytest.skip(str(error))
    async with connected(hints) as (one, other):
        with other.domain.register(bytearray(8), access=BOTH) as region:
            await one.write(b"12345678", region.remote, flags=OpFlags.COMMIT_COMPLETE)
            assert region.buffer == b"12345678"
