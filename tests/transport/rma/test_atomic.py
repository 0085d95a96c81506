"""Each atomic operation that a provider offers, compared with numpy."""

# Doubles: no provider refuses an injected atomic on request.

from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

from aiofabric import (
    Access,
    AtomicForm,
    AtomicOp,
    Caps,
    Datatype,
    FabricError,
    MessageTooLongError,
    NotSupportedError,
    OpFlags,
    RdmEndpoint,
    RemoteRegion,
    UnreachableError,
)
from aiofabric._ffi import constants, lib
from aiofabric.features import Quirk, quirks
from tests.fixtures.children import run_in_child
from tests.fixtures.internals import handle_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.peers import peers
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

PROVIDERS = ["tcp;ofi_rxm", "shm", "udp;ofi_rxd", "sockets", "sm2"]
CAPS = Caps.MSG | Caps.ATOMIC
REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE

NUMPY = {
    Datatype.INT8: np.int8,
    Datatype.UINT8: np.uint8,
    Datatype.INT16: np.int16,
    Datatype.UINT16: np.uint16,
    Datatype.INT32: np.int32,
    Datatype.UINT32: np.uint32,
    Datatype.INT64: np.int64,
    Datatype.UINT64: np.uint64,
    Datatype.FLOAT: np.float32,
    Datatype.DOUBLE: np.float64,
    Datatype.FLOAT_COMPLEX: np.complex64,
    Datatype.DOUBLE_COMPLEX: np.complex128,
    Datatype.LONG_DOUBLE: np.longdouble,
    Datatype.LONG_DOUBLE_COMPLEX: np.clongdouble,
}

UPDATES: dict[AtomicOp, Callable[[Any, Any], Any]] = {
    AtomicOp.MIN: np.minimum,
    AtomicOp.MAX: np.maximum,
    AtomicOp.SUM: np.add,
    AtomicOp.PROD: np.multiply,
    AtomicOp.LOR: lambda target, value: (target != 0) | (value != 0),
    AtomicOp.LAND: lambda target, value: (target != 0) & (value != 0),
    AtomicOp.LXOR: lambda target, value: (target != 0) ^ (value != 0),
    AtomicOp.BOR: np.bitwise_or,
    AtomicOp.BAND: np.bitwise_and,
    AtomicOp.BXOR: np.bitwise_xor,
    AtomicOp.ATOMIC_READ: lambda target, value: target,
    AtomicOp.ATOMIC_WRITE: lambda target, value: value,
}
COMPARES: dict[AtomicOp, Callable[[Any, Any], Any]] = {
    AtomicOp.CSWAP: np.equal,
    AtomicOp.CSWAP_NE: np.not_equal,
    AtomicOp.CSWAP_LE: np.less_equal,
    AtomicOp.CSWAP_LT: np.less,
    AtomicOp.CSWAP_GE: np.greater_equal,
    AtomicOp.CSWAP_GT: np.greater,
}

# The loop has no influence on elements, only the provider.
one_loop = pytest.mark.parametrize("anyio_backend", LOOPS[:1])

TARGET, VALUE, COMPARE = [0, 3, 5, 7], [0, 5, 3, 1], [0, 3, 6, 2]


def possible(ep: RdmEndpoint, form: AtomicForm) -> list[tuple[AtomicOp, Datatype]]:
    found = [(op, kind) for op in AtomicOp for kind in Datatype if ep.atomic_count(op, kind, form)]
    return [(op, kind) for op, kind in found if kind in NUMPY]  # 1.17's sockets also has 128-bit integers, below


def needs(ep: RdmEndpoint, op: AtomicOp, form: AtomicForm = AtomicForm.FETCH_ATOMIC) -> None:
    if not ep.atomic_count(op, Datatype.INT64, form):
        pytest.skip(f"{ep.info.fabric_attr.prov_name} of this libfabric does no {op} as {form.name}")


@pytest.fixture(params=PROVIDERS)
def atomic_provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@one_loop
async def test_every_base_operation(atomic_provider: str) -> None:
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        todo = possible(one, AtomicForm.BASE)
        assert len(todo) > 90
        for op, kind in todo:
            memory = np.array(TARGET, NUMPY[kind])
            value = np.array(VALUE, NUMPY[kind])
            expected = UPDATES[op](memory, value).astype(NUMPY[kind])
            still = np.zeros(1, np.uint64)
            with (
                other.domain.register(memory, access=REMOTE) as region,
                other.domain.register(still, access=REMOTE) as anchor,
            ):
                if Quirk.DELIVERED_ATOMIC_CORRUPTS in quirks(one.info):  # refused; a fetch behind it tells
                    await one.atomic(op, value, region.remote, to=peer)
                    await one.fetch_atomic(AtomicOp.BOR, np.zeros(1, np.uint64), anchor.remote, to=peer)
                else:
                    await one.atomic(op, value, region.remote, to=peer, flags=OpFlags.DELIVERY_COMPLETE)
                np.testing.assert_array_equal(memory, expected, f"{op} {kind}")


@one_loop
async def test_every_fetch_operation(atomic_provider: str) -> None:
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        for op, kind in possible(one, AtomicForm.FETCH_ATOMIC):
            memory = np.array(TARGET, NUMPY[kind])
            before, value = memory.copy(), np.array(VALUE, NUMPY[kind])
            expected = UPDATES[op](memory, value).astype(NUMPY[kind])
            with other.domain.register(memory, access=REMOTE) as region:
                fetched = await one.fetch_atomic(op, value, region.remote, to=peer)
            assert fetched.dtype == memory.dtype
            np.testing.assert_array_equal(fetched, before, f"{op} {kind}")
            np.testing.assert_array_equal(memory, expected, f"{op} {kind}")


@one_loop
async def test_every_compare_operation(atomic_provider: str) -> None:
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        for op, kind in possible(one, AtomicForm.COMPARE_ATOMIC):
            memory = np.array(TARGET, NUMPY[kind])
            before, value = memory.copy(), np.array(VALUE, NUMPY[kind])
            compare = np.array(COMPARE, NUMPY[kind])
            if op is AtomicOp.MSWAP:
                expected = (value & compare) | (memory & ~compare)
            else:
                expected = np.where(COMPARES[op](compare, memory), value, memory)
            with other.domain.register(memory, access=REMOTE) as region:
                fetched = await one.compare_atomic(op, value, compare, region.remote, to=peer)
            np.testing.assert_array_equal(fetched, before, f"{op} {kind}")
            np.testing.assert_array_equal(memory, expected, f"{op} {kind}")


async def test_one_number(atomic_provider: str) -> None:
    counter = np.zeros(3, np.int64)
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        needs(one, AtomicOp.SUM)
        with other.domain.register(counter, access=REMOTE) as region:
            middle = RemoteRegion.unpack(region.remote.pack())[8:16]
            for expected in range(3):
                before = await one.fetch_atomic(AtomicOp.SUM, 1, middle, to=peer, datatype=Datatype.INT64)
                assert (type(before), before) == (int, expected)
            if one.atomic_count(AtomicOp.ATOMIC_READ, Datatype.INT64, AtomicForm.FETCH_ATOMIC):
                assert await one.fetch_atomic(AtomicOp.ATOMIC_READ, None, middle, to=peer, datatype=Datatype.INT64) == 3
            swapped = await one.compare_atomic(AtomicOp.CSWAP, 9, 3, middle, to=peer, datatype=Datatype.INT64)
            assert swapped == 3
            scalar = await one.fetch_atomic(AtomicOp.SUM, np.int64(1), middle, to=peer)
            assert (type(scalar), scalar) == (np.int64, 9)
    assert counter.tolist() == [0, 10, 0]


@one_loop
async def test_the_result_goes_where_the_caller_wants_it(atomic_provider: str) -> None:
    memory, room = np.arange(4, dtype=np.uint32), np.zeros(4, np.uint32)
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        needs(one, AtomicOp.ATOMIC_READ)
        with other.domain.register(memory, access=REMOTE) as region:
            read = await one.fetch_atomic(AtomicOp.ATOMIC_READ, None, region.remote, to=peer, result=room)
    assert read is room
    assert room.tolist() == [0, 1, 2, 3]


async def test_many_tasks_count_together(atomic_provider: str) -> None:
    counter = np.zeros(1, np.uint64)
    seen: list[int] = []
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        needs(one, AtomicOp.SUM)
        with other.domain.register(counter, access=REMOTE) as region:

            async def count() -> None:
                for _ in range(10):
                    before = await one.fetch_atomic(AtomicOp.SUM, np.uint64(1), region.remote, to=peer)
                    seen.append(int(before))

            async with anyio.create_task_group() as tg:
                for _ in range(10):
                    tg.start_soon(count)
    assert sorted(seen) == list(range(100))


async def test_an_injected_atomic_is_refused_if_nothing_may_be_posted(atomic_provider: str) -> None:
    """As after the end of an endpoint of the same process over shm, whose number may belong to another one."""
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        with other.domain.register(np.zeros(1, np.int32), access=REMOTE) as region:
            await one.atomic(AtomicOp.SUM, np.int32(1), region.remote, to=peer)
            handle_of(one).route_to(peer).close_off(lambda: UnreachableError(1, "fi_inject_atomic"))
            with pytest.raises(UnreachableError):
                one.try_atomic(AtomicOp.SUM, np.int32(41), region.remote, to=peer)


async def test_injected(atomic_provider: str) -> None:
    counter = np.zeros(1, np.int32)
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        with other.domain.register(counter, access=REMOTE) as region:
            await one.atomic(AtomicOp.SUM, np.int32(1), region.remote, to=peer)
            assert one.try_atomic(AtomicOp.SUM, np.int32(41), region.remote, to=peer)
            while counter[0] != 42:  # there is no completion for it; the value at the target shows it
                await checkpoint()


@one_loop
async def test_what_cannot_be_done_is_refused_before_it_is_posted(atomic_provider: str) -> None:
    memory = np.zeros(100_000, np.int64)
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        with other.domain.register(memory, access=REMOTE) as region:
            with pytest.raises(NotSupportedError, match="it does not support FI_BOR with FI_FLOAT in this form"):
                await one.atomic(AtomicOp.BOR, np.float32(1), region.remote, to=peer)
            most = one.atomic_count(AtomicOp.SUM, Datatype.INT64)
            with pytest.raises(MessageTooLongError, match=f"at most {most} at once"):
                await one.atomic(AtomicOp.SUM, np.zeros(most + 1, np.int64), region.remote, to=peer)
            with pytest.raises(IndexError, match="16 bytes do not fit a remote region of 8"):
                await one.atomic(AtomicOp.SUM, np.zeros(2, np.int64), region.remote[:8], to=peer)
            with pytest.raises(ValueError, match="2 elements to write, 1 to compare with"):
                await one.compare_atomic(AtomicOp.CSWAP, np.zeros(2, "i"), np.zeros(1, "i"), region.remote, to=peer)
            with pytest.raises(TypeError, match="name the datatype"):
                await one.atomic(AtomicOp.SUM, 1, region.remote, to=peer)
        assert one.statistics().sends == 0


async def test_an_endpoint_without_atomics_says_who_has_them(pair: Pair) -> None:
    async with pair() as (active, _):
        assert active.atomic_count(AtomicOp.SUM, Datatype.INT64) == 0  # asking libfabric would end the process
        with pytest.raises(
            NotSupportedError,
            match=r"FI_ATOMIC.*does not have it; these providers on this machine have it, if the hints ask for it: ",
        ):
            await active.atomic(AtomicOp.SUM, np.int64(1), RemoteRegion(0, 0, 8))


def test_the_crash_of_a_fetching_atomic_is_fenced() -> None:
    """rxd before 2.5 answers too early and then corrupts its lists; sm2 fetches nothing for FI_ATOMIC_READ."""
    ended = run_in_child("""
        import anyio, numpy as np
        from aiofabric import *
        from tests.fixtures.peers import peers

        async def main():
            async with peers("udp;ofi_rxd", Caps.MSG | Caps.ATOMIC) as (one, other, peer, _):
                memory = np.zeros(4, np.int64)
                with other.domain.register(memory, access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
                    for _ in range(20):
                        try:
                            fetched = await one.fetch_atomic(AtomicOp.SUM, np.ones(4, np.int64), region.remote, to=peer)
                        except NotSupportedError as error:
                            print(error)
            print("done")

        anyio.run(main)
    """)
    assert (ended.status, ended.out.splitlines()[-1:]) == (0, ["done"]), ended.err
    assert ended.out.count("cannot be used: atomics that fetch complete before their result") in (0, 20)


async def test_an_injected_atomic_that_would_have_to_wait_is_not_made(
    atomic_provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = np.zeros(1, np.int32)
    async with peers(atomic_provider, CAPS) as (one, other, peer, _):
        with other.domain.register(counter, access=REMOTE) as region:
            await one.atomic(AtomicOp.SUM, np.int32(1), region.remote, to=peer)
            with monkeypatch.context() as patch:
                patch.setattr(lib, "fi_inject_atomic", lambda *_: -constants.FI_EAGAIN)
                assert one.try_atomic(AtomicOp.SUM, np.int32(41), region.remote, to=peer) is False
                patch.setattr(lib, "fi_inject_atomic", lambda *_: pytest.fail("the operand is too large"))
                handle_of(one).inject_size = 3
                assert one.try_atomic(AtomicOp.SUM, np.int32(41), region.remote, to=peer) is False
                patch.setattr(lib, "fi_inject_atomic", lambda *_: -constants.FI_EINVAL)
                handle_of(one).inject_size = 4
                with pytest.raises(FabricError, match="fi_inject_atomic"):
                    one.try_atomic(AtomicOp.SUM, np.int32(41), region.remote, to=peer)
            assert one.try_atomic(AtomicOp.SUM, np.int32(41), region.remote, to=peer)
            while counter[0] != 42:
                await checkpoint()
