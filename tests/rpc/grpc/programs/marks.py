"""The mark of a program, and the form of its observations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc.aio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["outcome", "pairs", "program", "status"]


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function as one of the programs."""
    function.program = True  # type: ignore[attr-defined]
    return function


def pairs(metadata: Any) -> list[tuple[str, str | bytes]] | None:
    """Metadata without the keys that only HTTP/2 has."""
    if metadata is None:
        return None
    return [(key, value) for key, value in metadata if not key.startswith(("user-agent", "grpc-", "accept-"))]


async def status(call: Any) -> tuple[Any, ...]:
    """The whole end of a call."""
    return (
        (await call.code()).name,
        await call.details(),
        pairs(await call.initial_metadata()),
        pairs(await call.trailing_metadata()),
        call.done(),
        call.cancelled(),
    )


async def outcome(awaitable: Awaitable[Any], *, text: bool = False) -> Any:
    """The result, or the name of the exception: of the public class, for subclasses; the text if it is promised."""
    try:
        return await awaitable
    except grpc.aio.AioRpcError as error:
        found = ["AioRpcError", error.code().name, error.details(), pairs(error.trailing_metadata())]
        return found if text else found[:2]
    except BaseException as error:
        return [type(error).__name__, str(error)] if text else type(error).__name__
