"""Mark functions that return a coroutine of C (`_core/base/call.c`) as coroutine functions, as ``async def`` does."""

import asyncio
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["coroutine_function"]

Function = TypeVar("Function", bound=Callable[..., Any])


def coroutine_function(function: Function) -> Function:
    """Mark a function: `inspect.iscoroutinefunction` returns True from Python 3.12 on, that of asyncio before."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function
