"""Tracebacks of the functions of stages: without the frames that called them, which say nothing to their author."""

from __future__ import annotations

from pathlib import Path
from traceback import TracebackException
from typing import Final

__all__ = ["traceback_of"]

_OWN: Final = str(Path(__file__).parents[1])


def traceback_of(error: BaseException | None) -> str:
    """The text of an error with its causes, from the first frame on that is not of this package; "" if none is left."""
    if error is None:
        return ""
    whole = TracebackException.from_exception(error)
    each: TracebackException | None = whole
    frames = 0
    while each is not None:
        own = next((at for at, frame in enumerate(each.stack) if not frame.filename.startswith(_OWN)), len(each.stack))
        del each.stack[:own]
        frames += len(each.stack)
        each = each.__cause__ or each.__context__
    return "".join(whole.format()).rstrip() if frames else ""
