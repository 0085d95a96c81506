"""Done callbacks: called, and never awaited, as in grpc.aio."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["check_callback"]


def check_callback(callback: Any) -> None:
    """Raise TypeError for a callback that could not be called, or would have to be awaited."""
    if not callable(callback):
        raise TypeError(f"A done callback must be a function, not {callback!r}")
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"A done callback is called and not awaited, so it must be a plain function: {callback!r}")
