"""A worker as an actor of a Dask cluster: Dask places and shows it. Values go from worker to worker over the fabric."""

from __future__ import annotations

import logging
import multiprocessing
from collections import deque
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import anyio

from .kept import Ended
from .worker import work

if TYPE_CHECKING:
    from ..plan import WorkOrder

__all__ = ["DaskActor", "check_client"]

_log = logging.getLogger("aiofabric.pipeline")

_WARN_AFTER: Final = 10.0
"""Seconds until a warning says that the cluster may have no worker."""

_ASK_AGAIN: Final = 0.1
"""Seconds between two questions to an actor, which cannot call this process."""


def check_client(client: Any) -> None:
    """Raise TypeError unless this is a client that runs in the program's event loop."""
    if not hasattr(client, "submit") or not getattr(client, "asynchronous", False):
        raise TypeError(
            "on() needs a distributed.Client of this event loop, as from await Client(address, asynchronous=True), "
            f"not {client!r:.100}"
        )


class StageActor:
    """In a worker of Dask: a thread with an event loop, which does one stage's work."""

    def __init__(self, order: WorkOrder, backend: dict[str, Any], options: dict[str, Any]) -> None:
        from distributed import get_worker
        from distributed.comm.addressing import get_address_host

        self._pipe, theirs = multiprocessing.Pipe()
        arguments = (theirs, order, backend, get_address_host(get_worker().address), options)
        Thread(target=_work, args=arguments, name=f"aiofabric stage {order.name}", daemon=True).start()

    def tell(self, *words: Any) -> None:
        """The run says something."""
        with suppress(OSError):  # the work has ended
            self._pipe.send(words)

    def said(self) -> list[tuple[Any, ...] | None]:
        """The words of the work since the last call; None at its end."""
        found: list[tuple[Any, ...] | None] = []
        try:
            while self._pipe.poll():
                found.append(self._pipe.recv())
        except (EOFError, OSError):
            found.append(None)
        return found

    def close(self) -> None:
        """End the work, if it has not ended."""
        self._pipe.close()


def _work(pipe: Any, *arguments: Any) -> None:
    try:
        work(pipe, *arguments)
    finally:
        pipe.close()


class DaskActor:
    """See `Launched`."""

    tells_late = True

    def __init__(self, client: Any, order: WorkOrder, backend: dict[str, Any], options: dict[str, Any]) -> None:
        self._client = client
        self._order = order
        self._arguments = order, backend, options
        self._future: Any = None
        self._actor: Any = None
        self._said: deque[tuple[Any, ...] | None] = deque()
        self._problem = ""

    async def start(self) -> None:
        key = f"{self._order.name}-{uuid4()}"
        self._future = self._client.submit(StageActor, *self._arguments, actor=True, pure=False, key=key)
        with anyio.move_on_after(_WARN_AFTER):
            self._actor = await self._future
        if self._actor is None:
            _log.warning(
                "no worker of Dask has taken the stage %r for %.0f seconds: does the cluster have workers?",
                self._order.name, _WARN_AFTER,
            )  # fmt: skip
            self._actor = await self._future

    async def tell(self, *words: Any) -> None:
        with suppress(Exception):  # the worker has left, which `next_words` notices
            await self._answer(self._actor.tell(*words))

    async def _answer(self, call: Any) -> Any:
        """The answer of a call of the actor. Dask tries for 30 seconds to reach a worker that has left.

        Raises:
            OSError: its worker has left.
        """
        answers: list[Any] = []
        failure: Exception = OSError("its Dask worker has left")

        async def watch() -> None:
            while self._future.status == "finished":  # noqa: ASYNC110 - an actor that is lost sets no event
                await anyio.sleep(_ASK_AGAIN)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                answers.append(await call)
            except Exception as error:
                failure = error
            tasks.cancel_scope.cancel()
        if not answers:
            raise failure
        return answers[0]

    async def next_words(self) -> tuple[Any, ...] | None:
        try:
            while not self._said:
                self._said.extend(await self._answer(self._actor.said()))
                if not self._said:
                    await anyio.sleep(_ASK_AGAIN)
        except Exception as error:  # of the connection, or of Dask: the worker has left
            self._problem = f"{type(error).__name__}: {error}"
            return None
        return self._said.popleft()

    async def how_it_ended(self) -> Ended:
        return Ended(self._problem or "its thread has ended", killed=bool(self._problem))

    async def end(self, *, at_once: bool) -> None:
        if self._actor is not None:
            with suppress(Exception), anyio.move_on_after(1):  # the worker may have left
                await self._actor.close()
        if self._future is not None:
            self._future.release()
        self._actor = None
