"""``aiofabric serve --workers``: this process listens, and sends each client on to the next worker process.

A provider's listening port cannot be shared. So each worker listens at a port of its own, and the clients' `connect`
follows `ConnectionRequest.redirect`. A worker that ends is started again. Each side sees the end of the other by a
pair of sockets, on which the worker tells its port.

The process that listens runs on asyncio's own loop: uvloop would leave the provider's sockets open in the workers, and
the port would be in use until the last of them has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import anyio

from aiofabric.errors import FabricError
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
    os.set_inheritable(descriptor, False)  # not for processes of the application
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=descriptor))

    async def tell() -> None:
        with suppress(RuntimeError):  # it has not started; `serve` raises the reason
            await server.wait_started()
            if server.address is not None:
                writer.write(b"%d\n" % server.address[1])

    async def end_with_the_other() -> None:
        await reader.read()
        signal.raise_signal(signal.SIGTERM)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        tasks.start_soon(end_with_the_other)
        await serve()
        tasks.cancel_scope.cancel()
    writer.close()


class _Worker:
    """A process that serves, and its successors. ``port``: where it listens; None: it does not."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self.port: int | None = None
        self.started = asyncio.Event()

    async def keep(self) -> None:
        """Run it, and start it again when it ends. Returns if it ended before it had ever listened.

        Raises:
            OSError: the first process could not be started.
        """
        while True:
            try:
                how = f"exit status {await self._run()}"
            except OSError as error:  # no descriptor, or no process, is left now
                if not self.started.is_set():
                    raise
                how = str(error)
            if not self.started.is_set():
                return
            _log.warning("a worker has ended (%s), and is started again", how)
            await asyncio.sleep(_PAUSE)

    def kill(self) -> None:
        """End it without waiting for its requests."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _run(self) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            try:
                descriptor = theirs.fileno()
                self._process = process = await asyncio.create_subprocess_exec(
                    *self._command, str(descriptor), pass_fds=[descriptor]
                )
            except BaseException:
                writer.close()
                raise
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
            self._process = None
            writer.close()


async def serve_by_workers(options: Namespace) -> signal.Signals | None:
    """Serve until a signal comes, and return it. A second one kills the workers. None: a worker ended before it
    listened.
    """
    workers = [_Worker(_command(options)) for _ in range(options.workers)]
    told: list[signal.Signals] = []
    async with anyio.create_task_group() as outer:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with (
                listen(options.src_addr, options.port, provider=options.provider) as listener,
                anyio.create_task_group() as tasks,
            ):

                async def run(worker: _Worker) -> None:
                    await worker.keep()
                    tasks.cancel_scope.cancel()

                async def obey() -> None:
                    async for number in signals:
                        for worker in workers if told else ():
                            worker.kill()
                        told.append(number)
                        tasks.cancel_scope.cancel()

                outer.start_soon(obey)
                first, *others = workers
                tasks.start_soon(run, first)
                await first.started.wait()  # one that cannot load the application says so, and not all of them
                for worker in others:
                    tasks.start_soon(run, worker)
                for worker in others:
                    await worker.started.wait()
                _log.info("Listening at %s for %d workers", listener.address, len(workers))
                await _send_on(listener, workers)
            outer.cancel_scope.cancel()
    return told[0] if told else None


async def _send_on(listener: Listener, workers: list[_Worker]) -> None:
    """Send each client on to the worker whose turn it is."""
    turn = 0
    async for request in listener:
        ready = [worker.port for worker in workers if worker.port is not None]
        turn += 1
        with suppress(FabricError):  # this client has left
            if ready:
                request.redirect(ready[turn % len(ready)])
            else:
                request.reject()


def _command(options: Namespace) -> list[str]:
    """A worker's, up to the number of its descriptor. -P: the working directory hides no module of Python's."""
    command = [sys.executable, *subprocess._args_from_interpreter_flags(), "-P", "-m", "aiofabric"]  # type: ignore[attr-defined]
    command += ["serve", options.app, "--server", options.server]
    command += ["--src_addr", options.src_addr, "--port", "0", "--log-level", options.log_level]
    command += ["--factory"] * options.factory
    if options.provider is not None:
        command += ["--provider", options.provider]
    return [*command, "--worker-of"]
