"""Keywords: the typed options of stages and of runs, each written once for all methods of `Pipeline` that take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from ...transport.opening.keywords import StreamKeywords

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .graph import OnError

__all__ = ["RUN_OPTIONS", "RunKeywords", "StageKeywords", "OrderKeywords", "check_keywords"]


class StageKeywords(TypedDict, total=False):
    """Options of the stages that call a function; they are all that `Pipeline.sink` has."""

    workers: int
    on_error: OnError
    process: bool
    queue: int
    name: str | None


class OrderKeywords(StageKeywords, total=False):
    """Options of `Pipeline.map`, `Pipeline.flat_map` and `Pipeline.filter`."""

    ordered: bool


class RunKeywords(StreamKeywords, total=False):
    """Options of `Pipeline.start`, `Pipeline.on` and `Pipeline.run`; those of connections are among them."""

    processes: bool
    workers: Mapping[str, int] | None
    restarts: int
    host: str
    provider: str | None


RUN_OPTIONS = tuple(name for name in RunKeywords.__annotations__ if name not in StreamKeywords.__annotations__)


def check_keywords(method: str, options: Mapping[str, Any], known: type[StageKeywords]) -> None:
    """Raise TypeError for an option that the method does not have."""
    names = known.__annotations__
    for name in options:
        if name not in names:
            raise TypeError(f"{method}() has no option {name!r}; its options are {', '.join(names)}")
