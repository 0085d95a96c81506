"""Waiting for a state that no event announces."""

from collections.abc import Callable

import anyio


async def until(condition: Callable[[], object]) -> None:
    """Wait until ``condition`` is true; fail after 10 s."""
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - the state is of another task or process
            await anyio.sleep(0.001)
