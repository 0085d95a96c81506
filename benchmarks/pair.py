"""The two processes of a contender, each on a core of its own."""

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from . import probe
from .measures import Measure
from .roster import Row
from .workloads import Sample

TIMEOUT = 10.0  # seconds for one answer
SOON = 0.1  # from the end of its output to the end of the process

# Loading Debian's libfabric would otherwise replace Python's signal handlers (its psm library);
# UCX would otherwise write its log to the standard output, which is where answers are.
ENVIRONMENT = {"IPATH_NO_BACKTRACE": "1", "HFI_NO_BACKTRACE": "1", "UCX_LOG_LEVEL": "error"}


class ContenderFailed(Exception):
    """A process ended or stayed silent; the text is the last thing it said."""


class Pair:
    """Start on entering, answer `ask`, end on leaving."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.processes: list[subprocess.Popen[str]] = []
        cores = sorted(os.sched_getaffinity(0))
        self.client_core, self.server_core = cores[-1], cores[0]

    def __enter__(self) -> Self:
        self.complaints: IO[str] = tempfile.TemporaryFile("w+")
        try:
            self.server = self.start("server", core=self.server_core)
            address = self.read(self.server)
            self.client = self.start("client", address, str(self.server.pid), core=self.client_core)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self.processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            # libfabric's shm names a process's memory so, and a killed process leaves it behind.
            for memory in Path("/dev/shm").glob(f"{process.pid}:*"):
                memory.unlink(missing_ok=True)
        self.complaints.close()

    def start(self, *arguments: str, core: int) -> subprocess.Popen[str]:
        everywhere = os.sched_getaffinity(0)
        # Inherited, not set afterwards: a library that is loading may put back what it found.
        os.sched_setaffinity(0, {core})
        try:
            process = subprocess.Popen(
                [*self.row.command, *arguments],
                env={**os.environ, **ENVIRONMENT, **self.row.environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.complaints,
                text=True,
                process_group=0,  # so that __exit__ reaches what it starts itself
            )
        finally:
            os.sched_setaffinity(0, everywhere)
        self.processes.append(process)
        return process

    def read(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline() if selector.select(TIMEOUT) else ""
        if line:
            return line.strip()
        self.complaints.seek(0)
        said = [line for line in self.complaints.read().splitlines() if line.strip(" ^~|+-")]
        raise ContenderFailed(said[-1].strip() if said else _how_it_fell_silent(process))

    def ask(self, measure: Measure, seconds: float) -> Sample:
        """Have one measure made; ``seconds`` is the length of an ordinary one."""
        assert self.client.stdin
        probe.pin(self.server.pid, self.client_core if measure.one_core else self.server_core)
        line = f"{measure.workload} {measure.size} {measure.width} {measure.length * seconds}\n"
        try:
            self.client.stdin.write(line)
            self.client.stdin.flush()
        except BrokenPipeError:
            pass  # read() says why
        sample: Sample = json.loads(self.read(self.client))
        return sample


def _how_it_fell_silent(process: subprocess.Popen[str]) -> str:
    """Of a process that has neither answered nor complained. It stays to be waited for: its group has its number."""
    until = time.monotonic() + SOON
    while time.monotonic() < until:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            time.sleep(SOON / 10)
        elif ended.si_code == os.CLD_EXITED:
            return f"ended with status {ended.si_status}"
        else:
            return f"ended by {signal.Signals(ended.si_status).name}"
    return f"no answer in {TIMEOUT:.0f} s"
