"""Resolution: finds the addresses of a channel's target, and tries again after growing delays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...cm.clients.backoff import Backoff
    from ...cm.clients.targets import Resolver, Target
    from ...cq.loops.drivers import Driver
    from ..runtime.tasks import TaskHandle, Tasks

__all__ = ["Resolution"]


class Resolution:
    """The addresses of ``target``. At most one attempt is under way or scheduled."""

    __slots__ = ("_attempt", "_backoff", "_cancel_retry", "_resolver", "_target", "current", "failure")

    def __init__(self, target: str, resolver: Resolver, backoff: Backoff) -> None:
        self._target, self._resolver, self._backoff = target, resolver, backoff
        self._attempt: TaskHandle | None = None
        self._cancel_retry: Callable[[], None] | None = None
        self.current = False  # the addresses are known, and no connection to them has failed since
        self.failure: BaseException | None = None  # of the last attempt

    @property
    def pending(self) -> bool:
        """An attempt is under way or scheduled."""
        return self._attempt is not None or self._cancel_retry is not None

    def start(self, tasks: Tasks, done: Callable[[Sequence[Target]], None]) -> None:
        """Resolve the target in a task, and call ``done`` with the addresses. After a failure there are none."""
        self._attempt = tasks.start(self._resolve(done))

    async def _resolve(self, done: Callable[[Sequence[Target]], None]) -> None:
        targets: Sequence[Target] = ()
        try:
            targets = await self._resolver(self._target)
            if not targets:
                raise OSError(f"{self._target!r} has no addresses")
            self.failure, self.current = None, True
        except Exception as error:
            self.failure = error
        finally:
            self._attempt = None
        done(targets)

    def retry_later(self, driver: Driver, retry: Callable[[], None]) -> None:
        """Call ``retry`` after the next delay."""

        def call() -> None:
            self._cancel_retry = None
            retry()

        self._cancel_retry = driver.call_later(self._backoff.next(), call)

    def connected(self) -> None:
        """A connection to an address was made: begin with the shortest delay again."""
        self._backoff.reset()

    def close(self) -> None:
        if self._cancel_retry is not None:
            self._cancel_retry()
