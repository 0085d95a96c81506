"""Handling: runs the handler of one call, in the task of the call, and ends the call."""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self

from ...protocol.status import StatusCode
from ..callbacks import run_callback
from ..errors import unexpected
from ..grpcio import EOF, aio
from ..messages import serialized
from .context import ServicerContext
from .threads import responses_of, run_in_thread, to_iterator

if TYPE_CHECKING:
    from .rpc import ServerRpc

__all__ = ["NOT_FOUND", "behaviour_of", "handle", "handler_ended", "handler_failed"]

NOT_FOUND = "Method not found!"

_log = logging.getLogger(__name__)


def behaviour_of(handler: Any) -> tuple[Any, str]:
    """The function of a method handler, and how it is called: `coroutine`, `generator` or `sync`."""
    if handler.response_streaming:
        function = handler.stream_stream if handler.request_streaming else handler.unary_stream
    else:
        function = handler.stream_unary if handler.request_streaming else handler.unary_unary
    if inspect.iscoroutinefunction(function):
        return function, "coroutine"
    return function, "generator" if inspect.isasyncgenfunction(function) else "sync"


class _Requests:
    """The requests of a call, for a handler that iterates over them; `context.read` takes from the same stream."""

    __slots__ = ("_context",)

    def __init__(self, context: ServicerContext) -> None:
        self._context = context

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        request = await self._context.read()
        if request is EOF:
            raise StopAsyncIteration
        return request


async def handle(handler: Any, behaviour: Any, how: str, rpc: ServerRpc) -> None:
    """Run a handler to its end. The call has its status then, whatever the handler did."""
    request: Any
    context = ServicerContext(rpc, handler.request_deserializer, handler.response_serializer)
    try:
        loop, pool = rpc.owner.loop, rpc.owner.pool
        if handler.request_streaming:
            request = _Requests(context)
            if how == "sync":
                request = to_iterator(request, loop)
        else:
            request, rpc.first = rpc.first, None  # it came with the start of the call
            if request is None:
                request = await context.read()
                if request is EOF:
                    rpc.reject(StatusCode.INTERNAL, "The client sent no request")
                    return
            elif handler.request_deserializer is not None:
                request = handler.request_deserializer(request)
        if handler.response_streaming:
            if how == "coroutine":
                await behaviour(request, context)
            else:
                if how == "generator":
                    await _send_all(rpc, behaviour(request, context), handler.response_serializer)
                else:
                    async with aclosing(responses_of(behaviour, request, context, loop, pool)) as responses:
                        await _send_all(rpc, responses, handler.response_serializer)
            rpc.end_stream()
        else:
            if how == "sync":
                response = await run_in_thread(behaviour, request, context, loop, pool)
            else:
                response = await behaviour(request, context)
            rpc.respond(response, handler.response_serializer)
    except BaseException as error:
        if not handler_failed(rpc, error):
            raise
    finally:
        if rpc.callbacks is not None:
            handler_ended(rpc)


def handler_failed(rpc: ServerRpc, error: BaseException, who: str = "handler") -> bool:
    """The handler raised ``error``: end the call. False if the task must end with the error, too."""
    if isinstance(error, aio.AbortError):
        if error is not rpc.aborted:
            _failed(rpc, error, who)
    elif isinstance(error, asyncio.CancelledError):
        if not rpc.gone:
            rpc.reject(StatusCode.UNKNOWN if not rpc.code_number else rpc.code_number, f"The {who} was cancelled")
    elif isinstance(error, GeneratorExit) and not rpc.owner.loop.is_running():  # the loop has ended
        return False
    else:
        _failed(rpc, error, who)
        return not isinstance(error, KeyboardInterrupt)  # but SystemExit: no handler decides on the end of its server
    return True


def handler_ended(rpc: ServerRpc) -> None:
    """Call the done callbacks of a call."""
    for callback in rpc.callbacks or ():
        if not run_callback(callback, rpc.owner.loop):
            break  # as in grpc.aio


async def _send_all(rpc: ServerRpc, responses: Any, serializer: Any) -> None:
    """Send what a handler yields: as `context.write`, without a coroutine for each response that needs no wait."""
    async for response in responses:
        if rpc.decided or rpc.gone or rpc.aborted is not None:
            rpc.check()
        message = serialized(response, serializer, True)
        if not rpc.transmit_now(message):
            await rpc.until_room()


def _failed(rpc: ServerRpc, error: BaseException, who: str) -> None:
    """The handler raised. As in grpc.aio, the client gets the text of the exception."""
    if rpc.gone and isinstance(error, aio.BaseError):
        return  # it tried to go on without its client
    _log.error("The %s of %s raised %s", who, rpc.method, type(error).__name__, exc_info=error)
    rpc.reject(rpc.code_number or StatusCode.UNKNOWN, unexpected(error))
