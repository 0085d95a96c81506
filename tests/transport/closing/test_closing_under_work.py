"""A side ends a connection while something is under way on it: no process crashes, and the listener goes on.

Every work, every side that ends it, every way to end it, every provider, in one process and in two. On an emulated
device, each two of them (`rounds_of`).
"""

from __future__ import annotations

import anyio
import pytest

import aiofabric
from tests.fixtures.children import ChildFailed, Parent
from tests.fixtures.providers import HOST, require
from tests.transport.closing.sides import (
    ATOMICS,
    DEATHS,
    ENOUGH,
    INITIATOR,
    PROVIDERS,
    TARGET,
    TIMES,
    WORKS,
    Round,
    all_told,
    deadly,
    in_turn,
    initiate,
    rounds_of,
    serve,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

WAYS = ["close", "abort", "aclose", "leaves", "cancelled"]
DEADLY = ["read", "write with data", "large send", "small messages", "connects"]


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return require(request.param)


def works(provider: str) -> list[str]:
    return [work for work in WORKS if work != "atomics" or provider in ATOMICS]


async def both_sides(parent: Parent, rounds: list[Round]) -> int:
    ports: list[tuple[int, int]] = []
    told = anyio.Event()

    def tell(found: tuple[int, int]) -> None:
        ports.append(found)
        told.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(rounds, tell=tell))
        await told.wait()
        for round in rounds:
            await initiate(*ports[0], round)
            parent.tell(round)
    return len(rounds)


async def target(parent: Parent, rounds: list[Round]) -> int:
    await serve(rounds, tell=parent.tell)
    return len(rounds)


async def initiator(parent: Parent, ports: tuple[int, int], rounds: list[Round]) -> int:
    for round in rounds:
        await initiate(*ports, round)
        parent.tell(round)
    return len(rounds)


@pytest.mark.parametrize("ways", in_turn(WAYS))
def test_both_ends_in_one_process_survive_the_end_of_a_connection_under_work(  # type: ignore[no-untyped-def]
    child, provider: str, ways: list[str]
) -> None:
    rounds = rounds_of(provider, works(provider), ways, processes=1)
    all_told(child(both_sides, rounds), rounds)


@pytest.mark.parametrize("ways", in_turn(WAYS))
def test_two_processes_survive_the_end_of_a_connection_under_work(child, provider: str, ways: list[str]) -> None:  # type: ignore[no-untyped-def]
    rounds = rounds_of(provider, works(provider), ways, processes=2)
    serving = child(target, rounds)
    all_told(child(initiator, serving.receive(), rounds), rounds)
    assert serving.result() == len(rounds)


@pytest.mark.parametrize("how", DEATHS)
def test_a_target_survives_initiators_that_die_under_work(child, provider: str, how: str) -> None:  # type: ignore[no-untyped-def]
    rounds = [Round(provider, work, INITIATOR, how) for work in deadly(DEADLY, how) for _ in range(TIMES)]
    last = Round(provider, "small messages", INITIATOR, "close")
    serving = child(target, [*rounds, last])
    ports = serving.receive()
    for round in rounds:
        with pytest.raises(ChildFailed, match=r"KeyboardInterrupt|SIGKILL"):
            child(initiator, ports, [round]).result(ENOUGH + 30)
    all_told(child(initiator, ports, [last]), [last])
    assert serving.result() == len(rounds) + 1


@pytest.mark.parametrize("how", DEATHS)
def test_an_initiator_survives_targets_that_die_under_work(child, provider: str, how: str) -> None:  # type: ignore[no-untyped-def]
    for work in deadly(DEADLY, how):
        round = Round(provider, work, TARGET, how)
        serving = child(target, [round])
        all_told(child(initiator, serving.receive(), [round]), [round])
        with pytest.raises(ChildFailed, match=r"KeyboardInterrupt|SIGKILL"):
            serving.result(ENOUGH + 30)


async def refused_resize(parent: Parent, provider: str) -> None:
    """The memory of a read cannot be resized; the error ends the task group in which the read runs."""
    memory = bytearray(64 << 20)
    async with aiofabric.listen(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def offer() -> None:
            async with await (await listener.accept_request()).accept() as endpoint:
                with endpoint.domain.register(memory, access=aiofabric.Access.REMOTE_READ) as region:
                    await endpoint.send(region.remote.pack())
                    async for _ in endpoint:
                        pass

        tasks.start_soon(offer)
        async with await aiofabric.connect(HOST, listener.address.port, provider=provider) as endpoint:
            remote = aiofabric.RemoteRegion.unpack(await endpoint.recv())
            room = bytearray(64 << 20)
            async with anyio.create_task_group() as reads:
                reads.start_soon(endpoint.read_into, room, remote)
                await anyio.lowlevel.checkpoint()
                room.extend(b"more")


def test_a_buffer_error_under_a_read_ends_the_group_and_nothing_else(child, provider: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ChildFailed, match="BufferError"):
        child(refused_resize, provider).result(ENOUGH + 30)
