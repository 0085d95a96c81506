"""Probes: code that might crash, hang or leave traces runs in a process of its own and reports one line of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiofabric.cli.bench.race import ctrl_c_waits

__all__ = ["ENDED_BY", "Report", "ask", "ended_by", "first_environment"]

ENDED_BY = "ended by "
_TIMEOUT = 20.0  # seconds


@dataclass(frozen=True)
class Report:
    """The answer of a probe, or a text about its failure."""

    answer: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    crashed: bool = False
    silent: bool = False
    """Whether it was ended because it gave no answer."""


def ask(
    *question: str,
    module: str = "aiofabric.cli.doctor.probing",
    timeout: float | None = None,
    stdin: int = subprocess.DEVNULL,
) -> Report:
    """Run a probe until it ends, also by a crash or a timeout.

    Args:
        module: its program.
        timeout: seconds.
        stdin: a descriptor, for its standard input.
    """
    limit = _TIMEOUT if timeout is None else timeout
    with ExitStack() as stack:
        with ctrl_c_waits():
            probe = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", module, *question],
                    env=first_environment(),
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(probe.kill)
        try:
            output, errors = probe.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return Report(failure=f"no answer in {limit:.0f} s", silent=True)
    if probe.returncode < 0:
        return Report(failure=f"it was {ended_by(probe.returncode)}", crashed=True)
    if probe.returncode:
        return Report(failure=errors.strip().rpartition("\n")[2] or f"exit status {probe.returncode}")
    answer = json.loads(output)
    return Report(answer, answer.get("failure", ""))


def ended_by(status: int) -> str:
    """The signal that has ended a process."""
    return f"{ENDED_BY}{signal.Signals(-status).name}"


def first_environment() -> dict[bytes, bytes]:
    """The environment at the start of this process; loading libfabric has added variables since."""
    pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    return dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair) or dict(os.environb)
