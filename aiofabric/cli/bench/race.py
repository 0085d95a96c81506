"""Two processes for each transport: a server that serves one client, and the client that measures."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from aiofabric.cli.bench.work import WORKS, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ctrl_c_waits", "race"]


def race(loop: str, provider: str, seconds: float) -> Iterator[tuple[Work, float]]:
    """Yield the results as they come. An empty ``provider`` means asyncio's own sockets.

    Raises:
        ChildProcessError: one of the two processes failed; the text is its own.
    """
    with _side("serve", loop, provider) as server:
        port = _line(server)
        with _side("measure", loop, provider, port, str(seconds)) as client:
            for work in WORKS:
                yield work, json.loads(_line(client))


@contextmanager
def _side(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with ExitStack() as stack:
        with ctrl_c_waits():
            side = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "aiofabric.cli.bench.side", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(side.kill)
        yield side


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Ctrl-C in this block is raised at its end: in the middle of a start, Popen would lose the new process."""
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):  # ignored, also by the new process; or not Python's
        yield
        return
    interrupts: list[object] = []
    usual = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if interrupts:
        raise KeyboardInterrupt


def _line(side: subprocess.Popen[str]) -> str:
    assert side.stdout is not None
    assert side.stderr is not None
    if line := side.stdout.readline().strip():
        return line
    raise ChildProcessError(side.stderr.read().strip().rpartition("\n")[2])
