"""Batch: many sends, one wait (man page: fi_endpoint, FI_SELECTIVE_COMPLETION; fi_msg, FI_MORE).

On a connected endpoint opened with ``selective=True`` the provider reports one send in many. A connection completes its
sends in order, so that completion also covers the sends before it; failures are always reported. On any other endpoint
each send has its own completion, and the batch saves only wake-ups of the task.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, Self

from ..._ffi import constants
from ...memory import pin
from ..route import Route

if TYPE_CHECKING:
    from types import TracebackType

    from ...bufferlike import Buffers
    from ...cq.loops.drivers import Waiter
    from ...cq.operation import Operation
    from ...cq.submission import Transfer
    from ...remote_region import RemoteRegion
    from ..handle import EndpointHandle

__all__ = ["Batch", "SelectiveRoute"]

_MORE = constants.FI_MORE
_COMPLETION = constants.FI_COMPLETION
_SILENT = constants.FI_SELECTIVE_COMPLETION  # an internal mark, removed before the provider sees the flags


class SelectiveRoute(Route):
    """The route of a connected endpoint whose provider reports success only for sends that ask for it."""

    __slots__ = ("silent",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.silent: dict[Transfer, None] = {}  # posted sends that get no completion, in order

    def post(
        self, data: Any, tag: int | None = None, remote_data: int | None = None, flags: int | None = None
    ) -> Transfer:
        flags = self.own_flags(flags)
        if not flags & _SILENT:
            return super().post(data, tag, remote_data, flags | _COMPLETION)
        transfer = super().post(data, tag, remote_data, flags & ~_SILENT)
        self.silent[transfer] = None
        return transfer

    def post_rma(
        self, what: str, pins: Any, remote: RemoteRegion, remote_data: int | None, flags: int | None
    ) -> Transfer:
        return super().post_rma(what, pins, remote, remote_data, self.own_flags(flags) | _COMPLETION)

    def retire(self, transfer: Transfer) -> None:
        self.silent.pop(transfer, None)
        # A success has flags. A failure says nothing about earlier sends, which report their own failures.
        earlier = list(takewhile(lambda other: other is not transfer, self.posted)) if transfer.flags else []
        super().retire(transfer)
        for other in earlier:
            if other in self.silent:
                del self.silent[other]
                super().retire(other)
                other.finish()


class Batch:
    """Sends that are waited for together: ``async with ep.batch() as batch: await batch.send(data)``.

    The end of the block waits for all of them, and raises the first failure. The last message may be delayed until
    then, so do not wait for its answer inside the block. If the wait is cancelled, the messages are still sent, and
    their buffers stay pinned until the provider has completed them.
    """

    def __init__(self, handle: EndpointHandle, route: Route) -> None:
        if not hasattr(route, "limit"):
            raise TypeError(f"a Batch is made by the method batch() of an endpoint, not of {route!r:.100}")
        self._handle = handle
        self._route = route
        self._silently = isinstance(route, SelectiveRoute)
        self._interval = max(1, route.limit // 4)  # one in this many sends is reported, to free transmit credits
        self._delayed: tuple[Any, int | None, int | None, Any] | None = None
        self._quiet = 0
        self._under_way = 0
        self._error: BaseException | None = None
        self._waiter: Waiter | None = None
        self._closed = False

    async def send(self, data: Buffers, *, tag: int | None = None, remote_data: int | None = None) -> None:
        """Send one message, as `MessageEndpoint.send` or with a tag; return when it is posted or queued, so that its
        order is fixed.

        The provider may use the buffer until the end of the block.

        Raises:
            the errors of `send`; also failures of earlier messages of the batch.
        """
        handle, route = self._handle, self._route
        if tag is not None:
            handle.tags.check(tag)
        if self._closed:
            raise RuntimeError("this batch has ended: start a new one with ep.batch()")
        if not handle.thread_check.admits():
            raise handle.refuse("fi_send")
        if handle.checkpoint is not None:
            await handle.checkpoint()
            handle.check_usable("fi_send")
        if self._error is not None:
            raise self._error
        if remote_data is None and self._delayed is None:
            if route.inject(data, tag):
                if handle.checkpoint is not None or handle.source.must_yield:
                    await handle.source.yield_to_loop()
                return
            if not (
                self._silently or route.waiting
            ):  # like `_post_delayed`: a tenth less time for 16 messages of 64 KiB
                self._wait_for(route.post(data, tag))
                return
        pins = [pin(piece) for piece in data] if isinstance(data, list | tuple) else [pin(data)]
        route.check_size(sum(map(len, pins)), "fi_send")
        if remote_data is not None:
            route.check_data(remote_data)
        # wait until all sends are posted, and not for their completions: perhaps no send in flight reports a completion
        if route.waiting:
            await route.all_posted()
            if self._error is not None:
                raise self._error
            handle.check_usable("fi_send")
        self._post_delayed(last=False)
        self._delayed = (data, tag, remote_data, pins)
        if not self._silently:
            self._post_delayed(last=True)

    def _post_delayed(self, *, last: bool) -> None:
        if self._delayed is None:
            return
        (data, tag, remote_data, _), self._delayed = self._delayed, None
        flags = None
        if not last:
            self._quiet = (self._quiet + 1) % self._interval
            flags = self._route.own_flags(None) | (_MORE | _SILENT if self._quiet else _MORE)
        self._wait_for(self._route.post(data, tag, remote_data, flags))

    def _wait_for(self, transfer: Transfer) -> None:
        self._under_way += 1
        transfer.notify = self._answered

    def _answered(self, transfer: Operation) -> None:
        self._under_way -= 1
        if self._error is None:
            self._error = transfer.error
        if self._waiter is not None and not (self._under_way and self._error is None) and not self._waiter.done():
            self._handle.source.woke()
            self._waiter.set_result(None)

    async def _all_answered(self) -> None:
        """Wait until all sends have completed, or one has failed."""
        source = self._handle.source
        self._waiter = source.driver.create_waiter()
        source.interest += 1
        try:
            source.prepare()
            await self._waiter
        finally:
            self._waiter = None
            source.interest -= 1
        if self._error is not None:
            raise self._error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._closed = True
        if not self._handle.closed and self._handle.gone is None:
            self._post_delayed(last=True)
        if exc is None:
            self._handle.source.poll()
            while self._under_way:
                await self._all_answered()
            if self._error is not None:
                raise self._error
