"""A worker as a process of this machine."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import suppress
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from .kept import Ended
from .worker import worker

if TYPE_CHECKING:
    from ..plan import WorkOrder

__all__ = ["LocalProcess"]

_GRACE: Final = 5.0
"""Seconds until a process that was told to end is killed."""
_CLEANUP: Final = 0.5
"""Seconds until a process whose run has failed, or was cancelled, is killed. Meanwhile its ``finally`` blocks run."""

_processes = multiprocessing.get_context("spawn")


class LocalProcess:
    """See `Launched`."""

    tells_late = False

    def __init__(self, order: WorkOrder, backend: dict[str, Any], host: str, options: dict[str, Any]) -> None:
        self._pipe, self._theirs = _processes.Pipe()
        self._telling = anyio.Lock()
        self._process: Any = _processes.Process(
            target=worker,
            args=(self._theirs, order, backend, host, options),
            name=f"aiofabric stage {order.name}",
            daemon=True,
        )

    async def start(self) -> None:
        await anyio.to_thread.run_sync(self._start)
        self._theirs.close()

    def _start(self) -> None:
        """Ctrl-C reaches all processes of a terminal, and SIGTERM those of a service. One that has not begun would end.
        So it starts with both blocked, as this thread has them, until `worker` handles them.
        """
        resource_tracker.ensure_running()  # its first start would unblock the signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    async def tell(self, *words: Any) -> None:
        async with self._telling:
            await anyio.wait_writable(self._pipe.fileno())  # a worker that computes for long does not read
            with suppress(OSError):  # it has died, which `next_words` notices
                self._pipe.send(words)

    async def next_words(self) -> tuple[Any, ...] | None:
        await anyio.wait_readable(self._pipe.fileno())
        try:
            words: tuple[Any, ...] = self._pipe.recv()
        except (EOFError, OSError):
            return None
        return words

    async def how_it_ended(self) -> Ended:
        await anyio.wait_readable(self._process.sentinel)
        self._process.join()
        code = self._process.exitcode
        return Ended(f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}", killed=code < 0)

    async def end(self, *, at_once: bool) -> None:
        self._pipe.close()
        self._theirs.close()
        process = self._process
        if process.pid is None:
            return
        if not await self._ends(_CLEANUP if at_once else _GRACE):
            process.kill()
            await self._ends(_GRACE)
        process.join()
        process.close()

    async def _ends(self, seconds: float) -> bool:
        """Whether it ends in time. It begins to when the pipe is closed."""
        with anyio.move_on_after(seconds):
            await anyio.wait_readable(self._process.sentinel)
        return self._process.exitcode is not None
