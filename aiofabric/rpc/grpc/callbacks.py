"""Done callbacks: called, and never awaited, as in grpc.aio."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["check_callback", "run_callback", "stop_loop_with"]


def check_callback(callback: Any) -> None:
    """Raise TypeError for a callback that could not be called, or would have to be awaited."""
    if not callable(callback):
        raise TypeError(f"A done callback must be a function, not {callback!r}")
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"A done callback is called and not awaited, so it must be a plain function: {callback!r}")


def run_callback(callback: Callable[[], object], loop: asyncio.AbstractEventLoop) -> bool:
    """Call a done callback; False if it raised. It never raises, because the same fabric message may end other calls,
    too.
    """
    try:
        callback()
        return True
    except (KeyboardInterrupt, SystemExit) as error:
        stop_loop_with(error, loop)
    except BaseException as error:  # CancelledError, too: of another future that the callback examined
        context = {"message": "aiofabric.rpc: a done callback of a call raised", "exception": error}
        loop.call_exception_handler(context)
    return False


def stop_loop_with(error: BaseException, loop: asyncio.AbstractEventLoop) -> None:
    """Raise KeyboardInterrupt or SystemExit in a callback of its own: the loop ends with it then."""

    def stop() -> None:
        raise error

    loop.call_soon(stop)
