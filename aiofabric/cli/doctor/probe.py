"""Probes: code that might crash, hang or leave traces runs in a process of its own and reports one line of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Report", "ask"]

_TIMEOUT = 20.0  # seconds


@dataclass(frozen=True)
class Report:
    """The answer of a probe, or a text about its failure."""

    answer: dict[str, Any] = field(default_factory=dict)
    failure: str = ""


def ask(*question: str) -> Report:
    """Run a probe until it ends, also by a crash or a timeout."""
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "aiofabric.cli.doctor.probing", *question],
            env=_first_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Report(failure=f"no answer in {_TIMEOUT:.0f} s")
    if ended.returncode < 0:
        return Report(failure=f"it was ended by {signal.Signals(-ended.returncode).name}")
    if ended.returncode:
        return Report(failure=ended.stderr.strip().rpartition("\n")[2] or f"exit status {ended.returncode}")
    answer = json.loads(ended.stdout)
    return Report(answer, answer.get("failure", ""))


def _first_environment() -> dict[bytes, bytes]:
    """The environment at the start of this process; loading libfabric has added variables since."""
    pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    return dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair) or dict(os.environb)
