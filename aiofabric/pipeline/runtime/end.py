"""PipelineEnd: what a producer and a consumer have in common: a connector, a task group, and entering and leaving."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio import ClosedResourceError

from ...arguments import check_number, check_type
from ...cq.loops.bursts import Burst
from ...cq.reactor import Reactor
from ...errors import ForkedError, WrongLoopError, WrongThreadError
from ...resource import tell_of_loops
from ...transport.opening.keywords import stream_options
from ..places import PlaceFolder
from .connector import Connector
from .metering import Counts, meter, meter_no_more
from .watching import tell_statistics

if TYPE_CHECKING:
    from types import TracebackType

    from ...address import Address
    from ...cq.loops.drivers import Driver
    from ...transport.connected.endpoint import MessageEndpoint
    from ..places import Place, Places
    from ..protocol.hello import Hello
    from .connector import Participant

__all__ = ["PipelineEnd", "new_id"]


def new_id() -> bytes:
    """16 bytes that name a producer or a consumer."""
    return os.urandom(16)


def check_limits(**limits: Any) -> None:
    """Raise TypeError or ValueError unless each is a number from 1 on."""
    for name, value in limits.items():
        check_number(name, value, 63 if name.endswith(("bytes", "size")) else 32)
        if not value:
            raise ValueError(f"{name} must be at least 1, not 0")


class PipelineEnd(ABC):
    """Open in the block of ``async with``."""

    def __init__(
        self,
        hello: Hello,
        places: Places | None,
        listen: Place | None,
        announce: PlaceFolder | None,
        options: dict[str, Any],
    ) -> None:
        if announce is not None:
            check_type("announce", announce, PlaceFolder)
        self._hello = hello
        stream_options(type(self).__name__, {name: value for name, value in options.items() if name != "provider"})
        self._connector = Connector(hello, places, listen, announce, self._joined, self._watched, options)
        self._stack = AsyncExitStack()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._entered = self._closed = False
        self._thread = 0  # that entered the block
        self._failure: Exception | None = None  # the block raises it
        self._forked = False
        self._driver: Driver | None = None  # of the loop that entered the block
        self._burst = Burst(self._check_open)

    @property
    def id(self) -> bytes:
        """16 bytes that name this end."""
        return self._hello.id

    @property
    def kind(self) -> str:
        """Push, Pull, Publish or Subscribe, also of a subclass."""
        return self._hello.role.name.title()

    @property
    def address(self) -> Address:
        """Where this end listens; ``address.port`` is the chosen port if 0 was asked for.

        Raises:
            RuntimeError: it does not listen.
        """
        address = self._connector.address
        if address is None:
            raise RuntimeError(f"this {type(self).__name__} does not listen: it needs listen=, and `async with`")
        return address

    @abstractmethod
    def statistics(self) -> Any:
        """The numbers of this moment."""

    @abstractmethod
    def counts(self) -> Counts:
        """The numbers for `aiofabric.metrics`; in any thread."""

    async def _watched(self, endpoint: MessageEndpoint) -> None:
        await tell_statistics(endpoint, self.kind, self.id, self.statistics)

    @abstractmethod
    def _joined(self, endpoint: MessageEndpoint, theirs: Hello) -> Participant:
        """A connection was made."""

    @abstractmethod
    async def _finish(self) -> None:
        """The block has ended without an exception: do what is left to do, and close the connections in order."""

    @abstractmethod
    def _abort(self) -> None:
        """Close all connections now."""

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedResourceError(f"this {type(self).__name__} is closed")
        if not self._entered:
            raise RuntimeError(f"enter it first: async with {type(self).__name__}(...) as name:")
        name = type(self).__name__
        if self._forked:
            raise ForkedError(
                f"this {name} belongs to the parent process: libfabric objects do not survive fork(); make a new one "
                "in the child, or start it with the 'spawn' method"
            )
        if self._driver is not None and self._driver.closed():
            self._leave_loop()
            raise WrongLoopError(
                f"this {name} belongs to an event loop that has ended: make a new one in the loop that uses it, or use "
                "one asyncio.run() for the whole program"
            )
        if get_ident() != self._thread:
            raise WrongThreadError(
                f"this {name} belongs to the thread that entered its block; run the call in its event "
                "loop with loop.call_soon_threadsafe() or anyio.from_thread.run()"
            )

    def _on_fork(self) -> None:
        """Called in a forked child. It may not touch a connection: that would break those of the parent."""
        self._forked = True
        self._leave_loop()

    def _on_loop_end(self, driver: object) -> None:
        if driver is self._driver:
            self._leave_loop()

    def _leave_loop(self) -> None:
        """No thread may use this end any more: each call finds out why in `_check_open`."""
        self._thread = 0

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError(f"this {type(self).__name__} was entered before: make another one")
        self._entered = True
        self._thread = get_ident()
        self._driver = Reactor.current().driver
        tell_of_loops(self)
        try:
            self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
            await self._connector.start(self._tasks, self._stack)
            meter(self)
        except BaseException:
            self._closed = True
            if self._tasks is not None:
                self._tasks.cancel_scope.cancel()
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        if self._forked:
            return None
        try:
            if exc is None:
                await self._finish()
        finally:
            self._end_now()
            meter_no_more(self)
            await self._leave()
        return None

    async def _leave(self) -> None:
        """End the tasks, and close the listener. The error of a task, such as of one that connects, is raised. So is
        that of `_fail`.
        """
        try:
            await self._stack.aclose()
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: Exception) -> None:
        """Close soon, with this error. Connecting again would not help: it would come again."""
        if self._failure is None:
            assert self._driver is not None
            self._failure = error
            self._driver.call_soon(self._end_now)  # the caller may be in the middle of sending

    def _end_now(self) -> None:
        self._closed = True
        self._abort()
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
