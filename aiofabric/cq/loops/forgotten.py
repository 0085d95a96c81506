"""Closes what the program has dropped without closing it: from the loop, because the collector runs anywhere."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .drivers import Driver

__all__ = ["close_soon"]


def close_soon(driver: Driver, close: Callable[[], object]) -> None:
    """Call ``close`` from the driver's loop. The garbage collector may call this, in any thread and inside any call.

    If the loop has ended, nothing happens: the parent closes the object.
    """

    def run() -> None:
        try:
            close()
        except Exception as error:
            driver.report("aiofabric: an object that was dropped without closing it failed to close", error)

    with suppress(RuntimeError):  # trio's RunFinishedError is one, too
        driver.call_soon_threadsafe(run)
