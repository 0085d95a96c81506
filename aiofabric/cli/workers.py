"""``aiofabric serve --workers``: this process listens, and sends each client on to the next worker process.

A provider's listening port cannot be shared. So each worker listens at a port of its own, and the clients' `connect`
follows `ConnectionRequest.redirect`. A worker that ends is started again. Both sides see the end of the other by a
pair of sockets, on which the worker tells its port.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import anyio

from aiofabric.transport.connect import listen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable

    from aiofabric.cm.listener import Listener

__all__ = ["serve_as_worker", "serve_by_workers"]

_log = logging.getLogger("aiofabric.cli")
_PAUSE = 1.0  # seconds before a worker that ended is started again


class _Server(Protocol):
    @property
    def address(self) -> tuple[str, int] | None: ...
    async def wait_started(self) -> None: ...


async def serve_as_worker(server: _Server, serve: Callable[[], Awaitable[None]], descriptor: int | None) -> None:
    """Serve; in a worker, tell the port through this descriptor, and end when the other process has ended."""
    if descriptor is None:
        await serve()
        return
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=descriptor))

    async def report() -> None:
        with suppress(RuntimeError):  # it has not started; `serve` raises the reason
            await server.wait_started()
            if server.address is not None:
                writer.write(b"%d\n" % server.address[1])
            await reader.read()
            signal.raise_signal(signal.SIGTERM)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report)
        await serve()
        tasks.cancel_scope.cancel()
    writer.close()


class _Worker:
    """A process that serves, and its successors. ``port``: where it listens; None: it does not."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self.port: int | None = None
        self.started = asyncio.Event()

    async def keep(self) -> None:
        """Run it, and start it again when it ends. Returns if it ended before it had ever listened."""
        while True:
            status = await self._run()
            if not self.started.is_set():
                return
            _log.warning("a worker has ended (exit status %s), and is started again", status)
            await asyncio.sleep(_PAUSE)

    async def _run(self) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *self._command, str(theirs.fileno()), pass_fds=[theirs.fileno()]
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            if line := await reader.readline():
                self.port = int(line)
                self.started.set()
            return await process.wait()
        finally:
            self.port = None
            with suppress(ProcessLookupError):
                process.terminate()
            with anyio.CancelScope(shield=True):
                await process.wait()
            writer.close()


async def serve_by_workers(options: Namespace) -> signal.Signals | None:
    """Serve until a signal comes, and return it; None: a worker could not start, and has said why."""
    workers = [_Worker(_command(options)) for _ in range(options.workers)]
    told: list[signal.Signals] = []
    async with (
        listen(options.src_addr, options.port, provider=options.provider) as listener,
        anyio.create_task_group() as tasks,
    ):

        async def keep(worker: _Worker) -> None:
            await worker.keep()
            tasks.cancel_scope.cancel()

        async def send_on() -> None:
            for worker in workers:
                await worker.started.wait()
            _log.info("Listening at %s for %d workers", listener.address, len(workers))
            await _send_on(listener, workers)

        for worker in workers:
            tasks.start_soon(keep, worker)
        tasks.start_soon(send_on)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            told.append(await anext(signals))
            tasks.cancel_scope.cancel()
    return told[0] if told else None


async def _send_on(listener: Listener, workers: list[_Worker]) -> None:
    """Send each client on to the worker whose turn it is."""
    turn = 0
    async for request in listener:
        ready = [worker.port for worker in workers if worker.port is not None]
        turn += 1
        if ready:
            request.redirect(ready[turn % len(ready)])
        else:
            request.reject()


def _command(options: Namespace) -> list[str]:
    """A worker's, up to the number of its descriptor."""
    command = [sys.executable, "-m", "aiofabric", "serve", options.app, "--server", options.server]
    command += ["--src_addr", options.src_addr, "--port", "0", "--log-level", options.log_level]
    command += ["--factory"] * options.factory
    if options.provider is not None:
        command += ["--provider", options.provider]
    return [*command, "--worker-of"]
