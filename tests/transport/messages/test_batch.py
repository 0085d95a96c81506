"""Batches: many sends and one wait, and few completions if the endpoint was opened for that."""

# Privates: `_try` is replaced, so that the provider refuses the posts that the test chooses; `_wait_for` gets scripted
# operations.
# Doubles: no provider refuses a chosen post on request.

import itertools
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

from aiofabric import Access, Caps, FabricConnectionError, MessageEndpoint, MessageTooLongError, OpFlags
from aiofabric.cq.submission import Transfer
from aiofabric.transport.messages.batch import Batch, SelectiveRoute
from tests.cq.manual import Caller, Endpoint
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.peers import peers
from tests.fixtures.providers import Pair
from tests.fixtures.through_python import inject_through_python
from tests.fixtures.waiting import until

pytestmark = pytest.mark.anyio

BIG = bytes(2000)


@pytest.fixture(params=[False, True], ids=["reported", "selective"])
def selective(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


async def receive(ep: MessageEndpoint, count: int) -> None:
    for number in range(count):
        assert await ep.recv() == number.to_bytes(4, "big") + BIG


async def test_everything_arrives_in_order(pair: Pair, selective: bool) -> None:
    async with pair(selective=selective) as (active, passive), anyio.create_task_group() as tg:
        tg.start_soon(receive, passive, 1000)
        async with active.batch() as batch:
            for number in range(1000):
                await batch.send([number.to_bytes(4, "big"), BIG])
        assert active.statistics().sends == 0
        assert source_of(active).statistics().abandoned == 0


async def test_waiting_for_room_needs_no_answer_from_those_under_way(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider may have no room for one when all that are under way will not be reported."""
    post, tries = SelectiveRoute._try, itertools.count(1)

    def refuse_some(route: SelectiveRoute, transfer: Transfer) -> bool:
        route.refused = next(tries) % 7 == 0
        return False if route.refused else post(route, transfer)

    monkeypatch.setattr(SelectiveRoute, "_try", refuse_some)
    async with pair(selective=True) as (active, passive), anyio.create_task_group() as tg:
        tg.start_soon(receive, passive, 30)
        async with active.batch() as batch:
            for number in range(30):
                await batch.send([number.to_bytes(4, "big"), BIG])


async def test_selective_completion_reports_few(pair: Pair) -> None:
    async with pair(selective=True) as (active, passive):
        source = source_of(active)
        for _ in range(8):
            await active.send(BIG)  # outside a batch each send has its own completion
        before = source.statistics().completions
        async with active.batch() as batch:
            for _ in range(100):
                await batch.send(BIG)
        reported = source.statistics().completions - before
        for _ in range(108):
            assert await passive.recv() == BIG
        received = source.statistics().completions - before - reported  # both ends share the queue
        assert received + reported <= 108 + 100 // (256 // 4) + 1


async def test_buffers_are_pinned_until_the_end_of_the_block(pair: Pair, selective: bool) -> None:
    buffers = [bytearray(BIG) for _ in range(10)]
    async with pair(selective=selective) as (active, passive):
        async with active.batch() as batch:
            for buffer in buffers:
                await batch.send(buffer)
            if selective:
                with pytest.raises(BufferError):
                    buffers[0].append(1)
        for buffer in buffers:
            buffer.append(1)
            assert await passive.recv() == BIG


async def test_small_messages_and_large_ones_keep_their_order(pair: Pair, selective: bool) -> None:
    async with pair(selective=selective) as (active, passive):
        async with active.batch() as batch:
            for number in range(50):
                await batch.send(bytes([number]) * (10 if number % 3 else 3000))
        for number in range(50):
            assert (await passive.recv())[0] == number


async def test_remote_data(pair: Pair, selective: bool) -> None:
    async with pair(selective=selective) as (active, passive):
        async with active.batch() as batch:
            for number in range(3):
                await batch.send(b"x", remote_data=number)
        assert [(await passive.recv()).remote_data for _ in range(3)] == [0, 1, 2]


async def test_an_empty_batch(pair: Pair, selective: bool) -> None:
    async with pair(selective=selective, recv_size=1 << 20) as (active, _):
        async with active.batch():
            pass
        async with active.batch() as batch:
            pass
        with pytest.raises(RuntimeError, match="has ended"):
            await batch.send(b"late")


async def test_the_block_s_own_error_is_what_comes_out(pair: Pair, selective: bool) -> None:
    async def fail(ep: MessageEndpoint) -> None:
        async with ep.batch() as batch:
            await batch.send(BIG)
            raise KeyError

    async with pair(selective=selective) as (active, passive):
        with pytest.raises(KeyError):
            await fail(active)
        assert await passive.recv() == BIG  # sent all the same


async def test_a_message_too_long_is_refused_at_once(
    pair: Pair, selective: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject_through_python(monkeypatch)  # C has a limit of its own, which is the provider's
    async with pair(selective=selective) as (active, passive):
        handle_of(active).max_size = 1000
        async with active.batch() as batch:
            await batch.send(bytes(1000))
            with pytest.raises(MessageTooLongError):
                await batch.send(bytes(1001))
            await batch.send(bytes(999))
        assert [len(await passive.recv()) for _ in range(2)] == [1000, 999]


async def test_the_loss_of_the_peer_is_told(pair: Pair, selective: bool) -> None:
    async def send_for_ever(active: MessageEndpoint, passive: MessageEndpoint) -> None:
        async with active.batch() as batch:
            passive.close()
            while True:
                await batch.send(bytes(60_000))

    async with pair(selective=selective) as (active, passive):
        with pytest.raises(FabricConnectionError):
            await send_for_ever(active, passive)


async def test_failures_are_reported_although_successes_are_not(pair: Pair) -> None:
    """fi_endpoint(3), FI_SELECTIVE_COMPLETION: an operation that fails has a completion in any case."""

    async def lose_the_peer(active: MessageEndpoint, passive: MessageEndpoint) -> None:
        async with active.batch() as batch:
            for _ in range(40):  # more than the sockets hold while the peer does not read
                await batch.send(bytes(1 << 20))
            passive.close()

    async with pair(selective=True, recv_size=None) as (active, passive):
        source = source_of(active)
        before = source.statistics()
        with pytest.raises(FabricConnectionError):
            await lose_the_peer(active, passive)
        await until(lambda: source.statistics().errors - before.errors > 20)
        assert source.statistics().completions - before.completions <= 1


async def test_closing_ends_the_wait(pair: Pair, selective: bool) -> None:
    async def close_in_the_middle(ep: MessageEndpoint) -> None:
        async with ep.batch() as batch:
            for _ in range(40):  # more than the sockets hold while the peer does not read
                await batch.send(bytes(1 << 20))
            ep.close()

    async with pair(selective=selective, recv_size=1 << 20, recv_count=1) as (active, _):
        with pytest.raises(ClosedResourceError):
            await close_in_the_middle(active)


async def test_cancelled_at_the_end_it_is_sent_all_the_same(pair: Pair, selective: bool) -> None:
    size = 4 << 20
    async with pair(selective=selective, recv_size=size, recv_count=2) as (active, passive):
        with anyio.CancelScope() as scope:
            async with active.batch() as batch:
                for _ in range(4):
                    await batch.send(bytes(size))
                scope.cancel()
        for _ in range(4):
            assert len(await passive.recv()) == size
        with anyio.fail_after(5):
            while active.statistics().sends:
                await source_of(active).driver.yield_to_loop()


async def test_tagged_batches_over_connectionless_endpoints() -> None:
    async with peers("tcp;ofi_rxm", Caps.MSG | Caps.TAGGED) as (one, other, peer, _):
        async with one.batch(to=peer) as batch:
            for number in range(20):
                await batch.send(BIG, tag=number)
        for number in reversed(range(20)):
            assert await other.recv_tagged(tag=number) == BIG


async def test_rma_of_a_selective_endpoint_is_reported(pair: Pair) -> None:
    memory = bytearray(16)
    async with pair(selective=True) as (active, passive):
        with passive.domain.register(memory, access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
            with anyio.fail_after(5):
                await active.write(b"0123456789abcdef", region.remote, flags=OpFlags.DELIVERY_COMPLETE)
                assert memory == b"0123456789abcdef"
                assert await active.read(region.remote) == memory
                await active.write(b"fedcba", region.remote, remote_data=7)
                assert (await active.read(region.remote))[:6] == b"fedcba"


async def test_flags_do_not_silence_an_operation(pair: Pair) -> None:
    """An operation with flags of its own must ask for its completion, or its waiter would never wake."""
    async with pair(selective=True) as (active, passive):
        route = handle_of(active).route_to(None)
        with anyio.fail_after(5):
            await route.outcome(route.post(BIG, None, None, OpFlags.DELIVERY_COMPLETE))
            await active.send([BIG, BIG], remote_data=1)
        assert [len(await passive.recv()) for _ in range(2)] == [2000, 4000]


@pytest.mark.parametrize("failing", [0, 2, 4])
def test_one_failure_among_the_successes_of_a_batch_is_raised(failing: int) -> None:
    endpoint = Endpoint(limit=8)
    handle: Any = SimpleNamespace(source=endpoint.source, closed=False, gone=None)
    route: Any = SimpleNamespace(limit=8)
    batch = Batch(handle, route)
    for number in range(5):
        batch._wait_for(endpoint.submit(number))
    for number, address in enumerate([*endpoint.posted]):
        if number == failing:
            endpoint.queue.fail(address, 5)
        else:
            endpoint.queue.complete(address)
    ended = Caller(endpoint.driver, batch.__aexit__(None, None, None))
    endpoint.driver.settle_down()
    assert isinstance(ended.outcome, OSError)
    assert ended.outcome.errno == 5
    assert endpoint.source.statistics().in_flight == 0
    endpoint.close()


def test_a_batch_with_a_failure_sends_nothing_more() -> None:
    endpoint = Endpoint(limit=8)
    handle: Any = SimpleNamespace(
        source=endpoint.source,
        closed=False,
        gone=None,
        checkpoint=None,
        thread_check=SimpleNamespace(admits=lambda: True),
    )
    route: Any = SimpleNamespace(limit=8, inject=lambda *_: pytest.fail("a message was sent"))
    batch = Batch(handle, route)
    batch._wait_for(endpoint.submit(0))
    endpoint.queue.fail(next(iter(endpoint.posted)), 5)
    endpoint.driver.settle_down()
    sent = Caller(endpoint.driver, batch.send(b"x"))
    endpoint.driver.settle_down()
    assert isinstance(sent.outcome, OSError)
    assert sent.outcome.errno == 5
    endpoint.close()
