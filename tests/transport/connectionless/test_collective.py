"""Collective operations: the result of each member, and requests that libfabric's own implementation must not get."""

# Privates: no provider has these operations, so the question for them is replaced. Errors are given to handlers.
# Doubles: calls of libfabric are recorded, and must not be made.

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import numpy as np
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import AtomicOp, Caps, Datatype, EndpointType, FabricError, Group, NotSupportedError, RdmEndpoint
from aiofabric._ffi import constants, ffi, lib
from aiofabric.cm.events import EventError
from aiofabric.cm.queue import EventQueue
from tests.fixtures.children import Child, Parent, run_in_child
from tests.fixtures.internals import handle_of
from tests.fixtures.peers import peers, skip_without

pytestmark = pytest.mark.anyio

PROVIDER = "tcp;ofi_rxm"
CAPS = Caps.MSG | Caps.TAGGED | Caps.COLLECTIVE

Part = Callable[[Group], Awaitable[Any]]


async def everyone(groups: list[Group], part: Part) -> list[Any]:
    """The result of each member, by rank; the members run concurrently."""
    results: list[Any] = [None] * len(groups)

    async def play(rank: int) -> None:
        results[rank] = await part(groups[rank])

    async with anyio.create_task_group() as tg:
        for rank in range(len(groups)):
            tg.start_soon(play, rank)
    return results


async def join_all(endpoints: list[RdmEndpoint]) -> list[Group]:
    groups: dict[int, Group] = {}

    async def join(rank: int) -> None:
        members = [await endpoints[rank].add_peer(each.local_address) for each in endpoints]
        groups[rank] = await endpoints[rank].join_collective(members)

    async with anyio.create_task_group() as tg:
        for rank in range(len(endpoints)):
            tg.start_soon(join, rank)
    return [groups[rank] for rank in range(len(endpoints))]


@asynccontextmanager
async def opened(count: int) -> AsyncIterator[list[RdmEndpoint]]:
    skip_without(PROVIDER, CAPS)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider=PROVIDER, caps=CAPS)
            )
            for _ in range(count)
        ]


@asynccontextmanager
async def joined(count: int = 3) -> AsyncIterator[list[Group]]:
    async with opened(count) as endpoints, AsyncExitStack() as stack:
        yield [stack.enter_context(group) for group in await join_all(endpoints)]


async def test_ranks_are_places_in_the_list() -> None:
    async with joined() as groups:
        assert [group.rank for group in groups] == [0, 1, 2]
        assert [len(group) for group in groups] == [3, 3, 3]


async def remove_members(_: Parent) -> None:
    async with opened(3) as endpoints:
        groups = await join_all(endpoints)
        for endpoint, group in zip(endpoints, groups, strict=True):
            for peer in group.members:
                endpoint.remove_peer(peer)
        with anyio.fail_after(10):
            await everyone(groups, Group.barrier)
        assert all(handle_of(endpoint).numbers_in_use() for endpoint in endpoints)
        for group in groups:
            group.close()
        assert not any(handle_of(endpoint).numbers_in_use() for endpoint in endpoints)


async def test_members_stay_reachable_for_their_group_after_they_were_removed_as_peers(
    child: Callable[..., Child],
) -> None:
    """rxm crashed: it connects to a member when the group first sends to it."""
    skip_without(PROVIDER, CAPS)
    await child(remove_members).aresult()


async def test_a_group_whose_members_are_refused_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(1) as (endpoint,):
        me = await endpoint.add_peer(endpoint.local_address)
        monkeypatch.setattr(lib, "fi_av_set_insert", lambda *_: -constants.FI_ENOMEM)
        with pytest.raises(FabricError, match="fi_av_set_insert"):
            await endpoint.join_collective([me])
        assert not handle_of(endpoint).numbers_in_use()
        assert not handle_of(endpoint.vector).children.keys() - {handle_of(endpoint)}


async def test_barrier_waits_for_everyone() -> None:
    passed: list[int] = []

    async def wait(group: Group) -> None:
        await group.barrier()
        passed.append(group.rank)

    async with joined() as groups, anyio.create_task_group() as tg:
        tg.start_soon(wait, groups[0])
        tg.start_soon(wait, groups[2])
        await handle_of(groups[0]).endpoint.source.driver.yield_to_loop()
        assert passed == []
        await groups[1].barrier()
    assert sorted(passed) == [0, 2]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, 60_000])
async def test_broadcast_of_any_length_stays_inside_the_buffer(size: int) -> None:
    """libfabric moves whole shares: with three members, up to two bytes beyond the end of what it was given."""
    async with joined() as groups:
        for root in range(3):
            memory = [bytearray(size + 16) for _ in groups]
            memory[root][:size] = bytes((root + n) % 251 for n in range(size))
            expected = bytes(memory[root])

            async def part(group: Group, memory: list[bytearray] = memory, root: int = root) -> None:
                await group.broadcast(memoryview(memory[group.rank])[:size], root=root)

            await everyone(groups, part)
            assert [bytes(each) for each in memory] == [expected] * 3


async def test_allreduce() -> None:
    async with joined() as groups:
        outcome = await everyone(groups, lambda g: g.allreduce(AtomicOp.SUM, np.arange(5) + g.rank))
        for each in outcome:
            np.testing.assert_array_equal(each, 3 * np.arange(5) + 3)
        most = await everyone(groups, lambda g: g.allreduce(AtomicOp.MAX, 10 * g.rank, datatype=Datatype.INT32))
        assert most == [20, 20, 20]


async def test_allgather() -> None:
    async with joined() as groups:
        outcome = await everyone(groups, lambda g: g.allgather(np.array([g.rank, 10 * g.rank])))
        for each in outcome:
            np.testing.assert_array_equal(each, [[0, 0], [1, 10], [2, 20]])
        names = await everyone(groups, lambda g: g.allgather(f"rank {g.rank}".encode()))
        assert [bytes(each) for each in names] == [b"rank 0rank 1rank 2"] * 3


async def test_scatter() -> None:
    async with joined() as groups:
        for root in range(3):
            shares = np.arange(6).reshape(3, 2)

            async def part(group: Group, root: int = root, shares: Any = shares) -> Any:
                result = np.zeros(2, np.int64)
                return await group.scatter(shares if group.rank == root else None, root=root, result=result)

            outcome = await everyone(groups, part)
            np.testing.assert_array_equal(outcome, shares)


async def test_data_beyond_the_eager_size_of_rxm() -> None:
    """Its messages would be answered to us, and it would wait for ever."""
    async with joined() as groups:
        values = [np.random.default_rng(rank).integers(0, 1000, 10_000) for rank in range(3)]
        with anyio.fail_after(10):
            sums = await everyone(groups, lambda g: g.allreduce(AtomicOp.SUM, values[g.rank]))
            rows = await everyone(groups, lambda g: g.allgather(values[g.rank]))
            shares = await everyone(
                groups,
                lambda g: g.scatter(values[1][:9999] if g.rank == 1 else None, root=1, result=np.zeros(3333, int)),
            )
    for rank in range(3):
        np.testing.assert_array_equal(sums[rank], sum(values))
        np.testing.assert_array_equal(rows[rank], values)
        np.testing.assert_array_equal(shares[rank], values[1][rank * 3333 : (rank + 1) * 3333])


async def test_a_group_of_one() -> None:
    async with joined(1) as groups:
        await groups[0].barrier()
        assert await groups[0].allreduce(AtomicOp.SUM, 7, datatype=Datatype.UINT8) == 7


async def test_what_the_provider_lacks_is_its_own_refusal() -> None:
    async with joined(2) as (group, _):
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "FI_ALLTOALL": lambda: group.alltoall(np.zeros(2)),
            "FI_REDUCE": lambda: group.reduce(AtomicOp.SUM, np.zeros(2), root=0),
            "FI_REDUCE_SCATTER": lambda: group.reduce_scatter(AtomicOp.SUM, np.zeros(2), result=np.zeros(1)),
            "FI_GATHER": lambda: group.gather(np.zeros(2), root=0),
        }
        for kind, call in calls.items():
            with pytest.raises(
                NotSupportedError, match=rf"fi_query_collective: .*FI_ENOSYS.*ofi_rxm does not support {kind}"
            ):
                await call()
        with pytest.raises(NotSupportedError, match="does not support FI_ALLREDUCE with FI_BOR and FI_DOUBLE"):
            await group.allreduce(AtomicOp.BOR, 1.0, datatype=Datatype.DOUBLE)


async def test_roots_and_lengths_are_checked() -> None:
    async with joined(2) as (group, _):
        with pytest.raises(ValueError, match="root must be a rank, 0 to 1, not 2"):
            await group.broadcast(bytearray(4), root=2)
        with pytest.raises(ValueError, match="value has 24 bytes, but 2 shares have 8 bytes each"):
            await group.scatter(bytes(24), root=group.rank, result=bytearray(8))
        with pytest.raises(BufferError, match="read-only"):
            await group.broadcast(b"read only", root=1)


@pytest.mark.parametrize("elements", [1, 3])
async def test_elements_that_give_no_equal_shares_are_refused(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with joined(2) as (group, _):
        monkeypatch.setattr(Group, "_ask", lambda *_: None)  # no provider has these operations
        with pytest.raises(ValueError, match=f"{elements} elements cannot be divided into 2 equal shares"):
            await group.alltoall(np.zeros(elements))
        with pytest.raises(ValueError, match=f"{elements} elements cannot be divided into 2 equal shares"):
            await group.reduce_scatter(AtomicOp.SUM, np.zeros(elements), result=np.zeros(1))


async def test_joining_is_refused_with_reasons() -> None:
    async with opened(2) as (one, other):
        peer, me = await one.add_peer(other.local_address), await one.add_peer(one.local_address)
        with pytest.raises(ValueError, match="this endpoint is not a member of the group"):
            await one.join_collective([peer])
        with pytest.raises(ValueError, match="occurs twice"):
            await one.join_collective([me, peer, me])
        with pytest.raises(ValueError, match="belongs to another address vector"):
            await one.join_collective([me, await other.add_peer(other.local_address)])
        one.remove_peer(peer)
        with pytest.raises(ValueError, match="was removed"):
            await one.join_collective([me, peer])
    async with peers(PROVIDER, Caps.MSG | Caps.TAGGED) as (one, _, peer, _), aiofabric_members(one, peer) as members:
        with pytest.raises(NotSupportedError, match="FI_COLLECTIVE"):
            await one.join_collective(members)


@asynccontextmanager
async def aiofabric_members(ep: RdmEndpoint, *others: aiofabric.Peer) -> AsyncIterator[list[aiofabric.Peer]]:
    yield [await ep.add_peer(ep.local_address), *others]


async def test_leaving_during_an_operation_waits_for_it() -> None:
    """fi_close of a group that is at work frees what the work goes on with."""
    async with joined(2) as (one, other):
        handle = handle_of(one)
        with anyio.move_on_after(0.05):
            await one.barrier()
        assert handle.busy
        one.close()
        assert one.closed
        assert not handle.closed
        with pytest.raises(ClosedResourceError):
            await one.barrier()
        await other.barrier()
        with anyio.fail_after(5):
            while handle.busy:
                await handle.endpoint.source.driver.yield_to_loop()
        assert handle.closed


async def test_closing_the_endpoint_ends_what_is_under_way() -> None:
    async def wait(group: Group) -> None:
        with pytest.raises(ClosedResourceError):
            await group.barrier()

    async with opened(2) as endpoints:
        one, _ = await join_all(endpoints)
        async with anyio.create_task_group() as tg:
            tg.start_soon(wait, one)
            await anyio.wait_all_tasks_blocked()
            endpoints[0].close()
        assert one.closed


async def test_cancelling_a_join_leaves_nothing_behind() -> None:
    async with opened(2) as (one, other):
        members = [await one.add_peer(each.local_address) for each in (one, other)]
        # rxm does not close its socket if it is closed while it connects, so they are connected before.
        await one.send(b"known", to=members[1])
        assert await other.recv() == b"known"
        with anyio.move_on_after(0.05):
            await one.join_collective(members)  # the other never does


async def test_the_number_of_groups_is_bounded() -> None:
    async with opened(1) as (one,):
        me = await one.add_peer(one.local_address)
        handle_of(one).groups = 255
        with pytest.raises(FabricError, match="An endpoint joins at most 255 groups in its life"):
            await one.join_collective([me])


def test_255_groups_do_not_crash() -> None:
    ended = run_in_child("""
        import anyio
        from tests.transport.connectionless.test_collective import join_all, opened

        async def main():
            async with opened(1) as endpoints:
                for _ in range(255):
                    (group,) = await join_all(endpoints)
                    await group.barrier()
                    group.close()
            print("done")

        anyio.run(main)
    """)
    assert (ended.status, ended.out.strip()) == (0, "done"), ended.err


def made_of_barriers(monkeypatch: pytest.MonkeyPatch, call: str, answer: bytes) -> list[tuple[Any, ...]]:
    """Let ``call`` write ``answer`` where there is room, and complete as a barrier; return its arguments."""
    calls: list[tuple[Any, ...]] = []

    def run(endpoint: Any, given: Any, count: int, _: Any, room: Any, __: Any, group: int, *tail: Any) -> int:
        calls.append((bytes(ffi.buffer(given)), count, room != ffi.NULL, *tail[:-2]))
        if room != ffi.NULL:
            ffi.memmove(room, answer, len(answer))
        code: int = lib.fi_barrier(endpoint, group, tail[-1])
        return code

    monkeypatch.setattr(lib, call, run)
    monkeypatch.setattr(Group, "_ask", lambda *_: None)  # no provider has these operations
    return calls


VALUES = np.array([3, 4], np.int64)
GIVEN = VALUES.tobytes()


@pytest.mark.parametrize("root", [0, 1])
async def test_only_the_root_gets_the_result_of_a_gather(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = np.arange(4, dtype=np.int64)
    async with joined(2) as groups:
        calls = made_of_barriers(monkeypatch, "fi_gather", answer.tobytes())
        with anyio.fail_after(10):
            results = await everyone(groups, lambda group: group.gather(VALUES, root=root))
        assert [each is None for each in results] == [rank != root for rank in range(2)]
        assert results[root].tobytes() == answer.tobytes()
        assert sorted(calls, key=lambda call: call[2]) == [
            (GIVEN, 2, has_room, root, Datatype.INT64) for has_room in (False, True)
        ]
        with pytest.raises(ValueError, match="root must be a rank, 0 to 1, not 2"):
            await groups[0].gather(VALUES, root=2)


@pytest.mark.parametrize("root", [0, 1])
async def test_only_the_root_gets_the_result_of_a_reduce(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with joined(2) as groups:
        calls = made_of_barriers(monkeypatch, "fi_reduce", GIVEN)
        with anyio.fail_after(10):
            results = await everyone(groups, lambda group: group.reduce(AtomicOp.SUM, VALUES, root=root))
        assert [each is None for each in results] == [rank != root for rank in range(2)]
        assert results[root].tolist() == [3, 4]
        assert sorted(calls, key=lambda call: call[2]) == [
            (GIVEN, 2, has_room, root, Datatype.INT64, AtomicOp.SUM) for has_room in (False, True)
        ]
        with pytest.raises(ValueError, match="root must be a rank, 0 to 1, not -1"):
            await groups[0].reduce(AtomicOp.SUM, VALUES, root=-1)


async def test_shares_are_exchanged_in_elements_of_one_share(monkeypatch: pytest.MonkeyPatch) -> None:
    async with joined(2) as groups:
        calls = made_of_barriers(monkeypatch, "fi_reduce_scatter", GIVEN[:8])
        room = np.zeros(1, np.int64)
        with anyio.fail_after(10):
            await everyone(groups, lambda group: group.reduce_scatter(AtomicOp.SUM, VALUES, result=room))
        assert room.tolist() == [3]
        assert calls == [(GIVEN, 2, True, Datatype.INT64, AtomicOp.SUM)] * 2
        calls = made_of_barriers(monkeypatch, "fi_alltoall", GIVEN)
        with anyio.fail_after(10):
            results = await everyone(groups, lambda group: group.alltoall(GIVEN))
        assert results == [GIVEN] * 2
        assert [call[1:] for call in calls] == [(8, True, Datatype.UINT8)] * 2
        calls.clear()
        with anyio.fail_after(10):
            results = await everyone(groups, lambda group: group.alltoall(VALUES))
        assert [result.tolist() for result in results] == [[3, 4]] * 2
        assert calls == [(GIVEN, 1, True, Datatype.INT64)] * 2


async def test_a_join_ends_with_the_error_of_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(1) as (one,):
        me = await one.add_peer(one.local_address)

        def dispatch(queue: EventQueue, _: int) -> None:
            for key, handler in [*queue._handlers.items()][:1]:
                handler.event_error(EventError(key, constants.FI_ENOMEM, 1, "the group is full", b""))

        with monkeypatch.context() as patch:
            patch.setattr(EventQueue, "_dispatch", dispatch)
            with anyio.fail_after(10), pytest.raises(FabricError, match=r"fi_join_collective.*the group is full"):
                await one.join_collective([me])
        assert not handle_of(one).numbers_in_use()
        (group,) = await join_all([one])
        group.close()


async def test_a_join_ends_when_its_event_queue_cannot_be_waited_for() -> None:
    async with opened(2) as (one, other):
        members = [await one.add_peer(each.local_address) for each in (one, other)]
        await one.send(b"known", to=members[1])  # see test_cancelling_a_join_leaves_nothing_behind
        assert await other.recv() == b"known"
        caught: list[FabricError] = []

        async def join() -> None:
            with pytest.raises(FabricError) as failed:
                await one.join_collective(members)
            caught.append(failed.value)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(join)
                await anyio.wait_all_tasks_blocked()
                events = handle_of(one).events
                assert events.wait_failed(lambda: FabricError(constants.FI_EIO, "fi_trywait")) == 1
                assert events.wait_failed(lambda: FabricError(constants.FI_EIO, "again")) == 0
        assert [(error.call, error.errno) for error in caught] == [("fi_trywait", constants.FI_EIO)]
