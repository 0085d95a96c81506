"""Interrupt: cancel an operation repeatedly, each time after another number of iterations of the loop."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable


async def interrupt(
    attempt: Callable[[], Awaitable[None]], chance: random.Random, *, cancels: int, attempts: float = math.inf
) -> None:
    """Begin ``attempt`` again and again, while another task cancels whichever is under way."""
    scope = anyio.CancelScope()

    async def cancel() -> None:
        while True:
            for _ in range(chance.randrange(1, 5)):
                await checkpoint()
            scope.cancel()

    async with anyio.create_task_group() as tg:
        tg.start_soon(cancel)
        while cancels and attempts:
            with anyio.CancelScope() as scope:
                await attempt()
            cancels -= scope.cancelled_caught
            attempts -= 1
        tg.cancel_scope.cancel()
