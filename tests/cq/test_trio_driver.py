"""The driver for trio waits for a descriptor rarely: such a wait takes longer than a message does."""

import socket
from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aiofabric.cq.loops.drivers import TrioDriver

pytestmark = pytest.mark.once


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, peer = socket.socketpair()
    with ours, peer:
        yield ours, peer


def test_one_readability_wakes_once_however_often_it_was_demanded(ends: tuple[socket.socket, socket.socket]) -> None:
    """A source that goes to sleep requests a wait although one may exist: the second wake-up would find nothing."""
    ours, peer = ends
    woken = 0

    def wake() -> None:
        nonlocal woken
        woken += 1  # nothing is read: the descriptor stays readable

    async def main() -> None:
        driver = TrioDriver()
        driver.add_reader(ours.fileno(), wake, on_demand=True)
        for _ in range(2):
            driver.demand(ours.fileno())
            await wait_all_tasks_blocked()
        assert woken == 0
        peer.send(b"x")
        await wait_all_tasks_blocked()
        assert woken == 1
        driver.demand(ours.fileno())
        await wait_all_tasks_blocked()
        assert woken == 2, "a demand after the wake-up is one for the next"
        driver.remove_reader(ours.fileno())

    trio.run(main)


def test_demand_from_the_callback_is_noticed(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, peer = ends
    got = b""

    async def main() -> None:
        driver = TrioDriver()

        def wake() -> None:
            nonlocal got
            got += ours.recv(1)
            driver.demand(ours.fileno())

        driver.add_reader(ours.fileno(), wake, on_demand=True)
        peer.send(b"abc")
        await wait_all_tasks_blocked()
        driver.remove_reader(ours.fileno())

    trio.run(main)
    assert got == b"abc"
