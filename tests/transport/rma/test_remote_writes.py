"""Writes with data are reported at the target: in order, none lost to a cancel, ended with the connection."""

import asyncio
import logging
import random
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import Access, Caps, EndpointType, OpFlags, RemoteWrite
from aiofabric._ffi import constants
from aiofabric.transport.rma.remote_writes import RemoteWriteQueue
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.peers import peers
from tests.fixtures.providers import Pair
from tests.fixtures.sides import Open, open_sides

BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE

pytestmark = pytest.mark.anyio
one_loop = pytest.mark.parametrize("anyio_backend", LOOPS[:1])


@pytest.mark.parametrize("waiting", [*aiofabric.Waiting])
async def test_each_write_with_data_is_reported(sides: Open, waiting: aiofabric.Waiting) -> None:
    async with sides(remote_writes=100, waiting=waiting) as (one, other, to, _):
        memory = bytearray(64)
        async with other.domain.register(memory, access=BOTH, endpoint=other) as region:
            reported: list[RemoteWrite] = []

            async def listen() -> None:
                while len(reported) < 50:
                    reported.append(await other.remote_write())
                    assert memory[:4] >= b"%04d" % (len(reported) - 1)  # it is there when it is reported

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                for n in range(50):
                    await one.write(b"%04d" % n, region.remote[:4], **to, remote_data=2**64 - 1 - n)
                    await one.write(b"silent", region.remote[8:14], **to)
                    if n % 10 == 0:
                        await one.send(b"between", **to)
                        assert await other.recv() == b"between"
            assert [event.data for event in reported] == [2**64 - 1 - n for n in range(50)]
            assert {event.length for event in reported} <= {4, None}
            assert memory[8:14] == b"silent"
            assert other.statistics().pool.filled == 0


async def test_whose_write_it_was(sides: Open) -> None:
    async with sides(remote_writes=100) as (one, other, to, back):
        with other.domain.register(bytearray(64), access=BOTH, endpoint=other) as region:
            await one.write(b"x", region.remote[:1], **to, remote_data=7)
            event = await other.remote_write()
            assert event.data == 7
            assert event.source in ((back["to"], None) if back else (other.peer_address,))


async def test_both_sides_of_a_connection_get_reports(sides: Open) -> None:
    async with sides(remote_writes=10) as (one, other, to, back):
        with (
            one.domain.register(bytearray(8), access=BOTH, endpoint=one) as mine,
            other.domain.register(bytearray(8), access=BOTH, endpoint=other) as theirs,
        ):
            await one.write(b"12345678", theirs.remote, **to, remote_data=1)
            await other.write(b"12345678", mine.remote, **back, remote_data=2)
            assert (await other.remote_write()).data == 1
            assert (await one.remote_write()).data == 2


async def test_two_connections_of_one_loop_get_their_own_reports(pair: Pair) -> None:
    """A completion does not name its connection: the queue does, which is why each has one to itself."""
    async with pair(remote_writes=10) as (one, first), pair(remote_writes=10) as (two, second), pair() as (three, _):
        assert source_of(first) is not source_of(second)
        assert source_of(three) is not source_of(first)
        memory = bytearray(8)
        with first.domain.register(memory, access=BOTH) as region:
            for n in range(5):
                await two.write(b"b", region.remote[:1], remote_data=100 + n)
                await one.write(b"a", region.remote[:1], remote_data=n)
            assert [(await first.remote_write()).data for _ in range(5)] == [0, 1, 2, 3, 4]
            assert [(await second.remote_write()).data for _ in range(5)] == [100, 101, 102, 103, 104]


async def test_virtual_connections_get_their_own_reports() -> None:
    async with open_sides("shm connected", remote_writes=10) as a, open_sides("shm connected", remote_writes=10) as b:
        assert not handle_of(a.other).dormant  # a write would not wake it
        with a.other.domain.register(bytearray(8), access=BOTH) as region:
            for n in range(5):
                await b.one.write(b"b", region.remote[:1], remote_data=100 + n)
                await a.one.write(b"a", region.remote[:1], remote_data=n)
            assert [(await a.other.remote_write()).data for _ in range(5)] == [0, 1, 2, 3, 4]
            assert [(await b.other.remote_write()).data for _ in range(5)] == [100, 101, 102, 103, 104]


async def test_a_cancel_loses_none(sides: Open) -> None:
    rng = random.Random(5)
    async with sides(remote_writes=1000) as (one, other, to, _):
        with other.domain.register(bytearray(8), access=BOTH, endpoint=other) as region:
            reported: list[int] = []
            done = False

            async def listen() -> None:
                while not (done and len(reported) == 200):
                    with anyio.move_on_after(rng.random() * 0.002):
                        event = await other.remote_write()
                        reported.append(event.data)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                for n in range(200):
                    await one.write(b"x", region.remote[:1], **to, remote_data=n)
                    if n % 7 == 0:
                        await anyio.sleep(rng.random() * 0.002)
                done = True
            assert reported == list(range(200))


@one_loop
async def test_a_task_that_was_woken_and_cancelled_at_once_passes_it_on(pair: Pair) -> None:
    """asyncio's own cancel reaches a task that has been woken and did not run yet; trio's and anyio's do not."""
    async with pair(remote_writes=10) as (_, other):
        queue = handle_of(other).remote_writes
        assert isinstance(queue, RemoteWriteQueue)
        tasks = []
        for waiting in (1, 2):
            tasks.append(asyncio.create_task(other.remote_write()))
            while len(queue.waiters) < waiting:
                await anyio.lowlevel.checkpoint()
        queue.arrived((0, constants.FI_REMOTE_WRITE | constants.FI_REMOTE_CQ_DATA, 1, 0, 7, 0))
        tasks[0].cancel()
        with anyio.fail_after(5):
            assert (await tasks[1]).data == 7
        assert tasks[0].cancelled()


async def test_waiting_ends_with_the_connection_and_what_came_before_is_handed_out(pair: Pair) -> None:
    async with pair(remote_writes=10) as (one, other):
        with other.domain.register(bytearray(8), access=BOTH) as region:
            for n in range(3):
                await one.write(b"x", region.remote[:1], remote_data=n)
            await one.read(region.remote[:1])  # and now they are there
            await one.aclose()
            with anyio.fail_after(5):
                assert [event.data async for event in other.remote_writes()] == [0, 1, 2]
                with pytest.raises(aiofabric.FabricConnectionResetError):
                    await other.remote_write()
        await other.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await other.remote_write()


@pytest.mark.parametrize("who", ["peer", "we"])
async def test_who_waits_is_told_of_the_end(sides: Open, who: str) -> None:
    async with sides(remote_writes=10) as (one, other, to, _):
        if who == "peer" and to:
            pytest.skip("a connectionless endpoint has no peer that it could lose")
        errors: list[BaseException] = []

        async def listen() -> None:
            try:
                await other.remote_write()
            except (aiofabric.FabricConnectionResetError, anyio.ClosedResourceError) as error:
                errors.append(error)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(listen)
                while len(handle_of(other).remote_writes.waiters) < 3:
                    await anyio.lowlevel.checkpoint()
                await (one if who == "peer" else other).aclose()
        kind = aiofabric.FabricConnectionEndedError if who == "peer" else anyio.ClosedResourceError
        assert [type(error) for error in errors] == [kind] * 3


async def test_more_than_may_wait_are_lost_and_that_is_said_in_its_place(pair: Pair) -> None:
    async with pair(remote_writes=4) as (one, other):
        with other.domain.register(bytearray(8), access=BOTH) as region:
            for n in range(10):
                await one.write(b"x", region.remote[:1], remote_data=n)
            queue = handle_of(other).remote_writes
            assert isinstance(queue, RemoteWriteQueue)
            while sum(each if isinstance(each, int) else 1 for each in queue.events) < 10:
                await anyio.lowlevel.checkpoint()
            assert [(await other.remote_write()).data for _ in range(4)] == [0, 1, 2, 3]
            with pytest.raises(aiofabric.QueueOverrunError, match="6 remote writes came while 4 waited"):
                await other.remote_write()
            await one.write(b"x", region.remote[:1], remote_data=10)
            assert (await other.remote_write()).data == 10


async def test_without_the_option_it_says_what_to_do(sides: Open, caplog: pytest.LogCaptureFixture) -> None:
    async with sides() as (one, other, to, _):
        with pytest.raises(TypeError, match="remote_writes="):
            await other.remote_write()
        caplog.set_level(logging.WARNING, "aiofabric")
        with other.domain.register(bytearray(8), access=BOTH, endpoint=other) as region:
            for n in range(3):
                await one.write(b"x", region.remote[:1], **to, remote_data=n)
            await one.read(region.remote[:1], **to)
            while not caplog.records:
                await anyio.lowlevel.checkpoint()
        assert [r.getMessage() for r in caplog.records if "remote_writes=" in r.getMessage()] == [
            "the data of a peer's write is dropped: open the endpoint with remote_writes= to receive it"
        ]


@one_loop
async def test_an_alias_gets_the_same_reports() -> None:
    async with peers("sockets", Caps.MSG | Caps.RMA, remote_writes=4) as (one, other, peer, _):
        with other.domain.register(bytearray(8), access=BOTH) as region, other.alias(OpFlags(0)) as ear:
            await one.write(b"x", region.remote[:1], to=peer, remote_data=5)
            assert (await ear.remote_write()).data == 5


@one_loop
async def test_where_there_can_be_none() -> None:
    with pytest.raises(TypeError, match="remote_writes must be a number of writes, not True"):
        aiofabric.EndpointOptions(remote_writes=True)
    with pytest.raises(ValueError, match="remote_writes must be 0 or more"):
        aiofabric.EndpointOptions(remote_writes=-1)
    with pytest.raises(TypeError, match="scalable"):
        async with aiofabric.open_scalable_endpoint(provider="sockets", remote_writes=1):
            pass
    with pytest.raises(aiofabric.NotSupportedError, match="FI_RMA"):
        async with aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", provider="udp", remote_writes=1):
            pass


@one_loop
async def test_a_flood_of_what_is_no_event_leaves_nothing() -> None:
    """A completion of a peer's read, or of a write without data (FI_RMA_EVENT): nothing to hand out."""
    async with peers("shm", Caps.MSG | Caps.RMA, remote_writes=1) as (one, _, _, _):
        queue = handle_of(one).remote_writes
        assert isinstance(queue, RemoteWriteQueue)
        entry: Any = (0, constants.FI_REMOTE_WRITE | constants.FI_RMA, 5, 0, 0, 0)
        for _ in range(3):
            queue.arrived(entry)
        assert not queue.events


async def test_who_asks_while_the_endpoint_closes_is_told_so(pair: Pair) -> None:
    async with pair(remote_writes=4) as (active, _), anyio.create_task_group() as tasks:
        tasks.start_soon(active.aclose)
        while handle_of(active).thread_check.admits():  # no call is let in any more
            await anyio.lowlevel.checkpoint()
        with pytest.raises(ClosedResourceError, match="is being closed"):
            await active.remote_write()


@one_loop
async def test_an_endpoint_that_peers_may_not_write_to_reports_no_writes() -> None:
    caps = Caps.MSG | Caps.RMA | Caps.SEND | Caps.RECV | Caps.READ | Caps.WRITE
    with pytest.raises(aiofabric.NotSupportedError, match="FI_REMOTE_WRITE"):
        async with peers("sockets", caps, remote_writes=4):
            pass
