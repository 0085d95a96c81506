"""Starting: Ctrl-C while the command line is being imported ends the process without a traceback.

``python -m aiofabric`` imports the package before any line of the command line runs. So the package calls this first.
"""

from __future__ import annotations

import os
import signal
import sys

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


def _module(arguments: list[str]) -> str | None:
    """The module that the interpreter runs as a program. Arguments of a program may look the same, behind its name."""
    options = iter(arguments)
    for option in options:
        if option == "-m":
            return next(options, None)
        if option in ("-W", "-X"):
            next(options, None)
        elif option == "-c" or not option.startswith("-"):
            break
    return None


def _is_command_line() -> bool:
    return _module(sys.orig_argv[1:]) == "aiofabric" or os.path.basename(sys.argv[0]) == "aiofabric"


if _is_command_line():
    leave_on_interrupt()
