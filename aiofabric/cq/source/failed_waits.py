"""Raises an error in the tasks of a source if fi_trywait fails for good: the descriptor would never wake them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core import Transfer
from ...errors import FabricError, from_errno

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..._core import SourceCore
    from ..interfaces import WaitOwner

__all__ = ["fail_waits"]


def fail_waits(source: SourceCore, wait_owners: Iterable[WaitOwner], error: FabricError) -> bool:
    """Raise ``error`` in the tasks that wait for completions or events; False if there are none.

    No queue of this source is polled from now on. A task that begins to wait calls fi_trywait again.
    """

    def again() -> FabricError:
        return from_errno(error.errno or 0, error.call)

    woken = 0
    for address in list(source.operations):
        operation = source.operations.get(address)
        if isinstance(operation, Transfer) and operation.notify is not None:
            operation.owner.dismiss(operation, again())  # it keeps its pins: the provider has it
            woken += 1
    for submission in [*source.queued]:
        woken += len(submission.waiting)
        submission.fail_waiting(again)
    for others in (source.attached_queues, wait_owners):
        for other in tuple(others):  # each knows its own waits
            woken += other.wait_failed(again)
    return woken > 0
