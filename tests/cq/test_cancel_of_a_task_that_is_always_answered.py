"""Hazard: each await of a task has its result before anyio, which tries once in each iteration, can cancel the task.

anyio does not cancel a task that has been woken, and uvloop calls readers before the callbacks of the last iteration.
So such a task was never cancelled, and code that waited for it hung, a test's own time limit included.
"""

from typing import Any

import anyio
import pytest

from aiofabric._ffi import ffi
from aiofabric.cq.loops.drivers import current_driver
from aiofabric.cq.polling import Waiting
from aiofabric.cq.queue import ErrorEntry
from aiofabric.cq.source.source import Source
from aiofabric.cq.submission import SubmissionQueue, Transfer
from aiofabric.testing import ScriptedQueue

pytestmark = [pytest.mark.anyio, pytest.mark.once]

ENOUGH = 1000  # awaits that may still be answered after the cancel


class QuickQueue(ScriptedQueue):
    """Completes posted operations as soon as the loop may sleep, so that its next poll finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[int] = []

    def quiet(self) -> bool:
        answer = super().quiet()
        if answer and self.posted:
            self.complete(self.posted.pop())
        return answer

    def post(self, pointer: Any) -> int:
        self.posted.append(int(ffi.cast("uintptr_t", pointer)))
        return 0


class Owner:
    """Of a submission queue on which nothing fails, and nothing can be cancelled."""

    native_open = True

    def cancel(self, context: Any) -> None: ...

    def explain(self, transfer: Transfer, entry: ErrorEntry) -> BaseException:
        raise AssertionError("nothing fails here")


async def test_cancel_reaches_a_task_that_is_always_answered() -> None:
    with QuickQueue() as queue:
        source = Source(current_driver(), queue, waiting=Waiting.FD)
        submissions = SubmissionQueue(source, Owner(), 4, receives=False, grace=0.0)
        answered = 0
        try:
            with anyio.CancelScope() as scope:
                while answered < ENOUGH:
                    await submissions.outcome(submissions.submit("fi_test", queue.post, (), None, 0))
                    scope.cancel()
                    answered += 1
            assert scope.cancelled_caught
        finally:
            source.close()
