"""The server of a self-test: it starts the other side of each check, one at a time, and gives it the connection."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

from aiofabric.cli.doctor.probe import ended_by, first_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["in_thread", "listen_everywhere", "serve"]

_LONGEST = 300.0  # seconds that one side may take
_GRACE = 1.0  # seconds for a side to end after the measuring side has ended
_STEP = 0.02


def listen_everywhere(port: int) -> socket.socket:
    """Listen at all addresses of this host."""
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise OSError(f"cannot listen at port {port}: {os.strerror(error.errno or 0)}; -P chooses another") from error


@contextmanager
def in_thread() -> Iterator[int]:
    """Serve on loopback, for a self-test of this host alone. Yields the port."""
    stop = Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=serve, args=(listening, stop), name="aiofabric doctor", daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            stop.set()
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # ends the call of accept
            thread.join()


def serve(listening: socket.socket, stop: Event) -> None:
    """Serve checks until ``stop`` is set."""
    while not stop.is_set():
        try:
            connection, _ = listening.accept()
        except OSError:
            if stop.is_set():
                return
            raise
        with connection:
            _serve_one(connection, stop)


def _serve_one(connection: socket.socket, stop: Event) -> None:
    with (
        tempfile.TemporaryFile() as errors,  # a pipe could be full
        subprocess.Popen(
            [sys.executable, "-m", "aiofabric.cli.doctor.selftest.side", "follow"],
            env=first_environment(),
            stdin=connection.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=errors,
        ) as side,
    ):
        try:
            _wait(side, connection, stop)
        finally:
            side.kill()
        status = side.wait()
        if status:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or [f"exit status {status}"]
            failure = ended_by(status) if status < 0 else lines[-1]
            with suppress(OSError):
                connection.sendall(json.dumps({"failure": failure}).encode() + b"\n")


def _wait(side: subprocess.Popen[bytes], connection: socket.socket, stop: Event) -> None:
    """Wait for the end of one side; do not wait long after the measuring side has ended, or if it takes too long."""
    watch = select.poll()
    watch.register(connection, select.POLLRDHUP)
    end, gone = monotonic() + _LONGEST, False
    while monotonic() < end and not stop.is_set():
        with suppress(subprocess.TimeoutExpired):
            side.wait(_STEP)
            return
        if not gone and watch.poll(0):
            gone, end = True, monotonic() + _GRACE
