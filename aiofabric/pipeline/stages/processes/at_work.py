"""One stage at work in one place: its ends of pipelines, opened and joined to the stage's function."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from ...objects import PickleObjects
from ...pull import Pull
from ...push import Push
from ..traces import within
from ..work import StageWork
from .remote import RemoteInlet, RemoteOutlet, SortedInlet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..joints import Inlet, Outlet
    from ..plan import WorkOrder
    from ..totals import StageTotals
    from .board import Places, Progress

__all__ = ["at_work"]

_NO_LIMIT: Final = 1 << 40
"""Bytes: the queues of stages count values, also between processes. A limit in bytes could be less than one batch."""
_OBJECTS: Final = PickleObjects(trusted=True)  # both sides are processes of one run


async def at_work(
    order: WorkOrder,
    totals: StageTotals,
    *,
    inlet: Inlet | None,
    joints: Mapping[str, Outlet],
    places: Places,
    listening: Callable[[str, str, bytes], object],
    progress: dict[str, Callable[[], Progress]],
    began: Callable[[StageWork], object],
    host: str,
    options: dict[str, Any],
    came_again: Callable[[str], object] | None = None,
) -> None:
    """Work until the input ends, and everything is acknowledged.

    ``inlet`` and ``joints``: queues of this process, for the input and for the stages by their names. The input comes
    from ``places`` otherwise; for other stages this listens, and calls ``listening(stage, place, id)``. It puts into
    ``progress`` a function for each ordered stage with several processes: it tells which of the given values are
    finished. ``began`` gets the work, which `StageWork.stop` ends early. ``came_again``: see `RemoteInlet`.
    """
    async with AsyncExitStack() as stack:
        if inlet is None and order.producers:
            pull = await stack.enter_async_context(
                Pull(places, producers=order.producers, window=order.window, window_bytes=_NO_LIMIT, **options)
            )
            places.on_end(pull.note_end)
            stack.callback(places.on_end, None)
            if order.sorts:
                inlet = sorts = SortedInlet(pull, _OBJECTS)
                places.on_progress = sorts.set_progress
                sorts.set_progress(places.progress)
            else:
                inlet = RemoteInlet(pull, _OBJECTS, came_again)
        outlets: dict[str, Outlet] = dict(joints)
        for name in dict.fromkeys(name for branch in order.branches for name in branch):
            if name not in outlets:
                outlets[name] = await _listen(order, name, stack, listening, progress, host, options)
        branches: Sequence[Sequence[Outlet]] = [[outlets[name] for name in branch] for branch in order.branches]
        work = StageWork(order.stage, order.name, inlet, branches, totals, order.tasks)
        began(work)
        with within(order.trace):
            await work.run()


async def _listen(
    order: WorkOrder,
    name: str,
    stack: AsyncExitStack,
    listening: Callable[[str, str, bytes], object],
    progress: dict[str, Callable[[], Progress]],
    host: str,
    options: dict[str, Any],
) -> RemoteOutlet:
    limits: dict[str, Any] = {"max_unacknowledged_bytes": _NO_LIMIT}
    fed = name in order.limits
    if fed:
        limits["max_unacknowledged"] = order.limits[name]
    consumers = order.shares.get(name, 1)
    outlet = RemoteOutlet(_OBJECTS, ordered=order.numbers, consumers=consumers, restarts=order.restarts if fed else 0)
    if fed:
        progress[name] = outlet.progress
    outlet.push = await stack.enter_async_context(
        Push(listen=(host, 0), acknowledged=outlet.acked, **limits, **options)
    )
    listening(name, str(outlet.push.address), outlet.push.id)
    return outlet
