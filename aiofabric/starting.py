"""Starting: Ctrl-C while the command line is being imported ends the process without a traceback.

``python -m aiofabric`` imports the package before any line of the command line runs. So the package calls this first.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise

__all__ = ["INTERRUPTED", "leave_on_interrupt", "raise_on_interrupt"]

INTERRUPTED = 130  # 128 + SIGINT, as a shell would report it


def leave_on_interrupt() -> None:
    """End the process at once on Ctrl-C; if SIGINT is ignored, or has a handler of the program, nothing changes."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_on_interrupt() -> bool:
    """Make Ctrl-C raise KeyboardInterrupt again; return whether it did not before."""
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
