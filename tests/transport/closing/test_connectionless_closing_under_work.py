"""A side closes a connectionless endpoint while something is under way on it: no process crashes, the peer goes on.

Every work, every side that ends it, every way to end it, every provider, in one process and in two. On an emulated
device, each two of them (`rounds_of`).
"""

from __future__ import annotations

import anyio
import pytest

from aiofabric import Caps, Quirk
from tests.fixtures.children import ChildFailed, Parent
from tests.fixtures.peers import RDM, quirks_of, skip_without
from tests.fixtures.providers import RDMA_HOST
from tests.transport.closing.connectionless_sides import WORKS, initiate, serve
from tests.transport.closing.sides import (
    ATOMICS,
    DEATHS,
    ENOUGH,
    INITIATOR,
    TARGET,
    Round,
    all_told,
    deadly,
    in_turn,
    rounds_of,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

WAYS = ["close", "leaves", "cancelled"]


@pytest.fixture(params=RDM)
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    skip_without(name, Caps.MSG | Caps.TAGGED | Caps.RMA)
    return name


def works(provider: str) -> list[str]:
    """The works that both sides survive if one of them ends in the middle of a message.

    rxm over verbs would answer atomics over a connection that it has freed.
    """
    left_out = {"atomics"} if provider not in ATOMICS or RDMA_HOST else set()
    if Quirk.CUT_MESSAGE_CRASHES in quirks_of(provider):
        left_out |= {"tagged", "large tagged"}
    return [work for work in WORKS if work not in left_out]


async def both_sides(parent: Parent, rounds: list[Round]) -> int:
    ports: list[int] = []
    told = anyio.Event()

    def tell(port: int) -> None:
        ports.append(port)
        told.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(rounds, tell=tell))
        await told.wait()
        for tag, round in enumerate(rounds):
            await initiate(ports[0], round, tag)
            parent.tell(round)
    return len(rounds)


async def target(parent: Parent, rounds: list[Round]) -> int:
    await serve(rounds, tell=parent.tell)
    return len(rounds)


async def initiator(parent: Parent, port: int, rounds: list[Round], tag: int = 0) -> int:
    for number, round in enumerate(rounds, tag):
        await initiate(port, round, number)
        parent.tell(round)
    return len(rounds)


@pytest.mark.parametrize("ways", in_turn(WAYS))
def test_both_endpoints_in_one_process_survive_a_close_under_work(child, provider: str, ways: list[str]) -> None:  # type: ignore[no-untyped-def]
    rounds = rounds_of(provider, works(provider), ways, processes=1)
    all_told(child(both_sides, rounds), rounds)


@pytest.mark.parametrize("ways", in_turn(WAYS))
def test_two_processes_survive_a_close_under_work(child, provider: str, ways: list[str]) -> None:  # type: ignore[no-untyped-def]
    rounds = rounds_of(provider, works(provider), ways, processes=2)
    serving = child(target, rounds)
    all_told(child(initiator, serving.receive(), rounds), rounds)
    assert serving.result() == len(rounds)


@pytest.mark.parametrize("how", DEATHS)
def test_a_target_survives_initiators_that_die_under_work(child, provider: str, how: str) -> None:  # type: ignore[no-untyped-def]
    rounds = [Round(provider, work, INITIATOR, how) for work in deadly(works(provider), how)]
    last = Round(provider, works(provider)[0], INITIATOR, "close")
    serving = child(target, [*rounds, last])
    port = serving.receive()
    for tag, round in enumerate(rounds):
        with pytest.raises(ChildFailed, match=r"KeyboardInterrupt|SIGKILL"):
            child(initiator, port, [round], tag).result(ENOUGH + 30)
    all_told(child(initiator, port, [last], len(rounds)), [last])
    assert serving.result() == len(rounds) + 1


@pytest.mark.parametrize("how", DEATHS)
def test_an_initiator_survives_targets_that_die_under_work(child, provider: str, how: str) -> None:  # type: ignore[no-untyped-def]
    for work in deadly(works(provider), how):
        round = Round(provider, work, TARGET, how)
        serving = child(target, [round])
        all_told(child(initiator, serving.receive(), [round]), [round])
        with pytest.raises(ChildFailed, match=r"KeyboardInterrupt|SIGKILL"):
            serving.result(ENOUGH + 30)
