"""Programs that a test starts, communicates with, and ends."""

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.fixtures.libraries import CHOICE

TIMEOUT = 60.0
AIOFABRIC = (sys.executable, "-W", "error", "-m", "aiofabric")
# The ip providers then have the loopback interface only: no test leaves this machine.
LOOPBACK = {f"FI_{provider}_IFACE": "lo" for provider in ("TCP", "UDP", "NET", "SOCKETS")}
OURS = ("IPATH_NO_BACKTRACE", "HFI_NO_BACKTRACE")  # set in this process by loading libfabric
HIDING = ("PYTHONUNBUFFERED",)  # it hides output that was written and not flushed
SHELL = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "TERM": "xterm"}


def _environment(added: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OURS + HIDING} | LOOPBACK | added


@dataclass(frozen=True)
class Said:
    """The output of a program, and its exit status."""

    out: str
    err: str
    status: int


class Program:
    """A running program."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            command,
            env=_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, timeout: float = TIMEOUT) -> Said:
        """Wait for its end. The line that reports a listening server is left out."""
        out, err = self.process.communicate(timeout=timeout)
        err = "".join(line for line in err.splitlines(keepends=True) if not line.startswith("listening at "))
        return Said(out, err, self.process.returncode)

    def until_it_says(self, text: str) -> str:
        """Wait for a line on stderr with the text; return all lines up to it, which `end` does not have."""
        assert self.process.stderr is not None
        lines = ""
        while text not in lines:
            line = self.process.stderr.readline()
            assert line, f"it has ended, and said {lines!r}"
            lines += line
        return lines

    def listens(self, port: str) -> None:
        """Wait until a program listens at the port. A connection would count as a client, so none is made."""
        wanted = f":{int(port):04X} "
        while self.process.poll() is None:
            for table in ("/proc/net/tcp", "/proc/net/tcp6"):
                with open(table) as lines:
                    if any(wanted in line and line.split()[3] == "0A" for line in lines):
                        return
            time.sleep(0.002)  # it needs the core to get there


@contextmanager
def started(*command: str, **environment: str) -> Iterator[Program]:
    """A running program; it is gone when the block is left."""
    program = Program(*command, **environment)
    try:
        yield program
    finally:
        with program.process:
            program.process.kill()


def aiofabric(*arguments: str, **environment: str) -> Said:
    """Run ``aiofabric`` to its end."""
    with started(*AIOFABRIC, *arguments, **environment) as program:
        return program.end()


def same_library() -> dict[str, str]:
    """Environment in which a C program uses the libfabric under test."""
    chosen = os.environ.get(CHOICE)
    return {"LD_LIBRARY_PATH": str(Path(chosen).parent)} if chosen else {}


def on_terminal(command: str, columns: int = 80, **environment: str) -> list[str]:
    """Lines that a terminal shows of a shell command; ``python`` is this interpreter."""
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as screen:
        termios.tcsetwinsize(theirs, (24, columns))
        size = {"COLUMNS": str(columns)}  # for programs that prefer this variable
        process = subprocess.Popen(
            ["sh", "-c", command],
            env=_environment(SHELL | size | environment),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        with process:
            try:
                shown = b""
                with suppress(OSError):  # EIO: no process has the terminal open any more
                    while select.select([screen], [], [], TIMEOUT)[0]:
                        shown += screen.read(65536)
                assert process.wait(TIMEOUT) == 0, shown
            finally:
                process.kill()
    return shown.decode().replace("\r", "").splitlines()
