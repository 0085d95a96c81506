"""Server: handlers of methods, for messages that are bytes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from threading import get_ident
from types import NoneType
from typing import TYPE_CHECKING, Self

import anyio

from ..arguments import check_type
from ..errors import WrongLoopError
from .messages import check_grace, method_name
from .protocol.connection import DEFAULT_LIMITS, Limits
from .runtime.server import ServerCore
from .serving import Handler, Interceptor, ServerContext, Service, is_kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType
    from typing import Unpack

    from ..address import Address
    from ..cm.listener import Listener
    from ..cm.requests import ConnectionRequest
    from ..cm.reservation import Reservation
    from ..domain import Domain
    from ..info import Hints, Info
    from ..transport.opening.keywords import ServerKeywords

__all__ = ["Server", "stream_stream", "stream_unary", "unary_stream", "unary_unary"]


def unary_unary(
    function: Callable[[bytes, ServerContext], Awaitable[bytes]] | Callable[[bytes, ServerContext], bytes],
) -> Handler:
    """``async def function(request, context) -> reply``. A plain function runs in a thread."""
    return Handler(function, False, False)


def unary_stream(function: Callable[[bytes, ServerContext], AsyncIterator[bytes]]) -> Handler:
    """``async def function(request, context)`` that yields replies. It cannot be a plain function."""
    return Handler(function, False, True)


def stream_unary(function: Callable[[ServerContext], Awaitable[bytes]]) -> Handler:
    """``async def function(context) -> reply``; the context is an async iterator of the requests.

    It cannot be a plain function.
    """
    return Handler(function, True, False)


def stream_stream(function: Callable[[ServerContext], AsyncIterator[bytes]]) -> Handler:
    """``async def function(context)`` that yields replies; the context is an async iterator of the requests.

    It cannot be a plain function.
    """
    return Handler(function, True, True)


class Server:
    """Serves methods. ``async with Server(handlers) as server``; then `listen`. The end of the block stops it.

    Args:
        handlers: handlers by method, ``/service/method``.
        limits: what the server accepts.
        max_running: handlers at the same time; further calls are refused with RESOURCE_EXHAUSTED.
        interceptors: ``async def interceptor(context, proceed)`` around each handler, the first outermost. ``await
            proceed()`` runs the rest and returns the reply, which is None for handlers that stream replies. An
            interceptor may raise `RpcError`, before or after that.
        limiter: bounds the threads of handlers that are plain functions; by default anyio's.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler] | Iterable[tuple[str, Handler]],
        *,
        limits: Limits = DEFAULT_LIMITS,
        max_running: int | None = None,
        interceptors: Sequence[Interceptor] = (),
        limiter: anyio.CapacityLimiter | None = None,
    ) -> None:
        if not isinstance(limits, Limits):
            raise TypeError(f"limits must be the Limits of a server, such as Limits(max_calls=100), not {limits!r}")
        check_type("interceptors", interceptors, Iterable)
        check_type("max_running", max_running, int, NoneType)
        check_type("limiter", limiter, anyio.CapacityLimiter, NoneType)
        for interceptor in interceptors:
            if not is_kind(inspect.iscoroutinefunction, interceptor):
                raise TypeError(
                    f"The interceptor {interceptor!r} must be a function `async def interceptor(context, proceed)`"
                )
        if max_running is not None and max_running < 1:
            raise ValueError(f"max_running must be at least 1, not {max_running}: the server would refuse every call")
        self.limits = limits
        self._service = Service(_checked(handlers), tuple(interceptors), max_running, limiter)
        self._core: ServerCore | None = None

    @property
    def core(self) -> ServerCore:
        """The runtime's server; RuntimeError before ``async with``, WrongLoopError in another thread."""
        if self._core is None:
            raise RuntimeError("Enter the server first: async with Server(handlers) as server")
        if self._thread != get_ident():
            raise WrongLoopError("this server belongs to the event loop of another thread: make one for each loop")
        return self._core

    async def __aenter__(self) -> Self:
        if self._core is not None and not self._core.stopping:
            raise RuntimeError("This server runs already: enter it once, and listen at several addresses instead")
        service = self._service
        admits = None if service.max_running is None else service.admits
        self._thread = get_ident()
        self._core = service.core = ServerCore(service.new_call, self.limits, admits=admits)
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.stop(None)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # absent if the constructor failed
        if core is not None and core.forgotten():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    async def listen(
        self,
        node: str | Address | None = None,
        service: str | int | None = None,
        *,
        provider: str | None = None,
        domain: Domain | None = None,
        backlog: int = 128,
        reservation: Reservation | None = None,
        accept: Callable[[ConnectionRequest], bool] | None = None,
        hints: Hints | None = None,
        info: Info | None = None,
        **options: Unpack[ServerKeywords],
    ) -> Listener:
        """Listen at one more address; arguments as for `aiofabric.listen`, except ``recv_size`` and ``recv_count``.

        `Limits.recv_size` is the size of the receive buffers.

        Raises: RuntimeError if the server was not entered, or has stopped; otherwise as `aiofabric.listen`.
        """
        core = self.core
        if core.stopping:
            raise RuntimeError("The server has stopped and cannot listen again: create a new one")
        if not options.keys().isdisjoint(("recv_size", "recv_count")):
            raise TypeError("listen() of a server takes no recv_size and recv_count: set Limits.recv_size")
        return await core.listen(
            node,
            service,
            provider=provider,
            domain=domain,
            backlog=backlog,
            reservation=reservation,
            accept=accept,
            hints=hints,
            info=info,
            **options,
        )

    async def stop(self, grace: float | None = None) -> None:
        """Stop: no new calls; the running ones may take ``grace`` seconds, then they end with UNAVAILABLE.

        Raises: TypeError or ValueError if ``grace`` is no number of seconds, or negative.
        """
        await self.core.stop(check_grace(grace))


def _checked(handlers: Mapping[str, Handler] | Iterable[tuple[str, Handler]]) -> dict[str, Handler]:
    """The handlers by method. Raises TypeError or ValueError for methods and handlers that no call can reach."""
    check_type("handlers", handlers, Mapping, Iterable)
    checked: dict[str, Handler] = {}
    for pair in handlers.items() if isinstance(handlers, Mapping) else handlers:
        try:
            method, handler = pair
        except (TypeError, ValueError):
            raise TypeError(f"Handlers are pairs of a method and its handler; this is no pair: {pair!r}") from None
        if not method_name(method).startswith("/"):
            raise ValueError(f"The name of a method begins with a slash, as in '/service/method': {method!r}")
        if not isinstance(handler, Handler):
            raise TypeError(
                f"The handler of {method!r} must be made by unary_unary(), unary_stream(), stream_unary() or "
                f"stream_stream(), not {handler!r}"
            )
        if method in checked:
            raise ValueError(f"The method {method!r} has two handlers")
        checked[method] = handler
    return checked
