"""Raises an error in the tasks of a source if fi_trywait fails for good: the descriptor would never wake them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import Transfer
from ...errors import FabricError, from_errno

if TYPE_CHECKING:
    from ..._core import SourceCore

__all__ = ["fail_waits"]


def fail_waits(source: SourceCore, error: FabricError) -> bool:
    """Raise ``error`` in the tasks that wait for completions or events; False if there are none.

    No queue of this source is polled from now on. A task that begins to wait calls fi_trywait again.
    """

    def again() -> FabricError:
        return from_errno(error.errno or 0, error.call)

    woken = 0
    inboxes: dict[Any, None] = {}
    for address in list(source.operations):
        operation = source.operations.get(address)
        if isinstance(operation, Transfer) and operation.notify is not None:
            operation.owner.dismiss(operation, again())  # it keeps its pins: the provider has it
            woken += 1
        elif (inbox := getattr(operation, "pool", None)) is not None:
            inboxes[inbox] = None
    for inbox in inboxes:
        while inbox.waiting:
            woken += inbox._wake_first(again())
        if inbox.sink is not None:
            inbox.finish(again())
            woken += 1
    for submission in [*source.queued]:
        woken += len(submission.waiting)
        submission.fail_waiting(again)
    for attached in tuple(source.attached_queues):
        woken += attached.wait_failed(again)
    return woken > 0
