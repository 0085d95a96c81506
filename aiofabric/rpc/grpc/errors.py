"""Errors that calls raise, and the texts that programs may compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .grpcio import CODES, aio

if TYPE_CHECKING:
    from ..protocol.calls import Status
    from .metadata import Pairs

__all__ = [
    "text_of",
    "unexpected",
    "ALREADY_FINISHED",
    "HALF_CLOSED",
    "LOCALLY_CANCELLED",
    "MIXED_STYLES",
    "CallFailedError",
    "error_of",
]

# Programs compare some of these with what grpc.aio says.
LOCALLY_CANCELLED = "Locally cancelled by application!"
COLLECTED = "Cancelled upon garbage collection!"
ALREADY_FINISHED = "RPC already finished."
HALF_CLOSED = 'RPC is half closed after calling "done_writing".'
MIXED_STYLES = "The iterator and read/write APIs may not be mixed on a single RPC."


class CallFailedError(aio.AioRpcError):
    """A call ended with a status other than OK. This is a subclass of grpc.aio's `AioRpcError`, with one more
    attribute.

    ``may_have_run`` is False if no handler has seen the call, so that it can be repeated without a risk.
    """

    may_have_run = True

    def __reduce__(self) -> Any:
        return (*super().__reduce__()[:2], {"may_have_run": self.may_have_run})


def error_of(status: Status, initial_metadata: Pairs) -> CallFailedError:
    """The error for the end of a call."""
    error = CallFailedError(
        CODES.get(status.code, CODES[2]),
        aio.Metadata(*initial_metadata),
        aio.Metadata(*status.metadata),
        details=status.details,
        debug_error_string="",
    )
    error.may_have_run = status.may_have_run
    return error


def unexpected(error: BaseException) -> str:
    """The status text of an exception of a handler, as in grpc.aio."""
    return f"Unexpected {type(error)}: {text_of(error)}"


def text_of(error: BaseException) -> str:
    """The text of an exception, whatever its ``__str__`` does."""
    try:
        return str(error)
    except Exception as failure:
        return f"(str() of it raised {type(failure).__name__})"
