"""The event loop of the commands: asyncio, with uvloop if that is installed (the extra ``uvloop``)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["LOOP", "run"]

Result = TypeVar("Result")

LOOP = "uvloop" if find_spec("uvloop") else "asyncio"


def run(function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    """Run ``function(*arguments)`` to its end. Ctrl-C cancels it and then raises KeyboardInterrupt."""
    return anyio.run(function, *arguments, backend_options={"use_uvloop": LOOP == "uvloop"})
