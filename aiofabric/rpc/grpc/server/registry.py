"""Registry: finds the handler of a method, and runs the interceptors around that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ..grpcio import aio, grpc
from ..metadata import Metadatum, named

__all__ = ["HandlerCallDetails", "Registry"]

Find = Callable[[Any], Awaitable[Any]]

_DictionaryHandler = type(grpc.method_handlers_generic_handler("", {}))


class HandlerCallDetails(grpc.HandlerCallDetails):
    """The method and the metadata of a call, for generic handlers and interceptors."""

    def __init__(self, method: str, invocation_metadata: tuple[Metadatum, ...]) -> None:
        self.method = method
        self.invocation_metadata = invocation_metadata


class Registry:
    """The handlers of a server. Registered methods come before generic handlers, and these in their order."""

    def __init__(self, handlers: Iterable[Any] | None, interceptors: Iterable[Any] | None) -> None:
        self.registered: dict[str, Any] = {}
        self.generic: list[Any] = list(handlers or ())
        self.interceptors = tuple(interceptors or ())
        wrong = [each for each in self.interceptors if not isinstance(each, aio.ServerInterceptor)]
        if wrong:
            raise ValueError(f"An interceptor of a server must be a ServerInterceptor; these are not: {wrong!r}")

    def register(self, service: str, handlers: dict[str, Any]) -> None:
        """Add the handlers of a service's methods by their names."""
        for method, handler in handlers.items():
            self.registered[f"/{service}/{method}"] = handler

    def find(self, method: str, metadata: Any) -> Any:
        """The handler of a method, without interceptors; None if there is none."""
        handler = self.registered.get(method)
        if handler is None:
            handler = self._ask(HandlerCallDetails(method, named(metadata) if metadata else ()))
        return handler

    def fixed(self, method: str) -> bool:
        """Whether all calls of a method have the same handler, whatever their metadata is.

        grpc's own generic handlers look the method up in a dictionary. A generic handler of a program may return
        another handler each time.
        """
        if self.interceptors:
            return False
        return method in self.registered or all(type(each) is _DictionaryHandler for each in self.generic)

    def _ask(self, details: Any) -> Any:
        for generic in self.generic:
            handler = generic.service(details)
            if handler is not None:
                return handler
        return None

    async def find_through_interceptors(self, method: str, metadata: Any) -> Any:
        """The handler that the interceptors return; they may replace the details and the handler."""
        return await self._step(0, HandlerCallDetails(method, named(metadata)))

    async def _step(self, place: int, details: Any) -> Any:
        if place == len(self.interceptors):
            handler = self.registered.get(details.method)
            return handler if handler is not None else self._ask(details)

        async def proceed(details: Any) -> Any:
            return await self._step(place + 1, details)

        return await self.interceptors[place].intercept_service(proceed, details)
