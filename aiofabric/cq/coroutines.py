"""Functions whose coroutine is C's (`_core/call.c`): to who asks, coroutine functions as those with ``async def``."""

import asyncio
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["coroutine_function"]

Function = TypeVar("Function", bound=Callable[..., Any])


def coroutine_function(function: Function) -> Function:
    """Mark it: `inspect.iscoroutinefunction` says yes from Python 3.12 on, that of asyncio before."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function
