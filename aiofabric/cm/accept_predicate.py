"""AcceptPredicate: the ``accept=`` predicate of a listener. Only True accepts a request."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .requests import ConnectionRequest

__all__ = ["AcceptPredicate"]

_INSTEAD = (
    "Decide asynchronously after listener.accept_request(): await there, then call request.accept() or request.reject()"
)


class AcceptPredicate:
    """Calls the predicate. A result that is not a bool rejects the request, and raises TypeError the first time.

    Raises:
        TypeError: the predicate cannot be called, or is async: its coroutine would count as true for every peer.
    """

    __slots__ = ("_predicate", "_reported")

    def __init__(self, predicate: Callable[[ConnectionRequest], bool]) -> None:
        if not callable(predicate):
            raise TypeError(f"listen() takes a function as accept=, or None, not {predicate!r}")
        if _is_async(predicate):
            raise TypeError(
                f"listen() takes a plain function as accept=, but {predicate!r} is async, and a listener "
                f"cannot await it. {_INSTEAD}"
            )
        self._predicate = predicate
        self._reported = False

    def __call__(self, request: ConnectionRequest) -> bool:
        answer: Any = self._predicate(request)
        if isinstance(answer, bool):
            return answer
        if inspect.iscoroutine(answer):
            answer.close()
        if not request.answered and not self._reported:
            self._reported = True
            instead = _INSTEAD if inspect.isawaitable(answer) else "It must return True or False"
            raise TypeError(f"the accept= of a listener returned {answer!r}, so the request was rejected. {instead}")
        return False


def _is_async(predicate: Any) -> bool:
    while isinstance(predicate, functools.partial):
        predicate = predicate.func
    call = getattr(type(predicate), "__call__", None)  # noqa: B004 - the class's attribute, which is what a call uses
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in (predicate, call))
