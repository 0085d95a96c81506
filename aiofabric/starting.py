"""Ctrl-C while the command line is being imported, which takes a moment: the process ends, and says nothing.

``python -m aiofabric`` imports the package before any line of the command line can run, so the package asks here first.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise

__all__ = ["INTERRUPTED", "leave_on_interrupt", "raise_on_interrupt"]

INTERRUPTED = 130  # 128 + SIGINT, as a shell would report it


def leave_on_interrupt() -> None:
    """End at once on Ctrl-C, from now on; where it is ignored or somebody else's it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_on_interrupt() -> bool:
    """Ctrl-C is a KeyboardInterrupt again; return whether it was not."""
    left = signal.getsignal(signal.SIGINT) is _leave
    if left:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return left


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED)


def _is_command_line() -> bool:
    as_module = any(pair == ("-m", "aiofabric") for pair in pairwise(sys.orig_argv))
    return as_module or os.path.basename(sys.argv[0]) == "aiofabric"


if _is_command_line():
    leave_on_interrupt()
