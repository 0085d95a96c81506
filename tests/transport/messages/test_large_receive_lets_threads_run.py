"""Hazard: a large receive copies a message that has arrived already, and no other thread runs meanwhile."""

import threading
from time import monotonic

import anyio
import anyio.lowlevel
import pytest

from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.peers import peers

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS[:1])]

SIZE = 256 << 20
COPIED = 0.01  # seconds: a shorter call did not copy


async def test_another_thread_runs_while_a_large_receive_is_posted() -> None:
    """A thread counts while the receive is posted; with the interpreter lock held, it could count once at most."""
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.wait(0.0005):
            counted[0] += 1

    async with peers("shm", recv_size=None) as (one, other, to, _):
        sent, room = bytearray(SIZE), bytearray(SIZE)
        sent[-1] = 7
        room[:] = sent  # so that its pages exist
        room[-1] = 0
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: one.send(sent, to=to))
                await anyio.wait_all_tasks_blocked()
                for _ in range(100):  # the provider takes the message in some steps
                    source_of(other).drain()
                    await anyio.lowlevel.checkpoint()
                thread = threading.Thread(target=count)
                thread.start()
                receives = handle_of(other).rx
                before, began = counted[0], monotonic()
                transfer = receives.receive(memoryview(room))
                counted_meanwhile, took = counted[0] - before, monotonic() - began
                stop.set()
                thread.join()
                assert transfer is not None
                await receives.outcome(transfer)
        assert room[-1] == 7
        if took < COPIED:
            pytest.skip("the provider did not copy while the receive was posted")
        assert counted_meanwhile > 1
