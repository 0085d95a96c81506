"""The command line: ``aiofabric`` and ``python -m aiofabric``.

Exit statuses: 0 success, 1 something failed (one sentence on stderr says what), 2 wrong usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Protocol, cast

from aiofabric.cli.sentence import reason, sentence
from aiofabric.errors import FabricError, LibfabricNotFound
from aiofabric.info import library_path, library_version
from aiofabric.starting import INTERRUPTED, leave_on_interrupt, raise_on_interrupt

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

COMMANDS = {
    "info": "what the providers of this machine offer",
    "bench": "a quick look at speed, beside plain asyncio sockets",
    "doctor": "what is wrong with this machine, and how to mend it",
    "pingpong": "latency and bandwidth between two hosts, with fi_pingpong's protocol",
    "serve": "an ASGI application over a fabric, under uvicorn or Hypercorn",
}


class Command(Protocol):
    """A module of this package: its arguments, and what it does."""

    def configure(self, parser: argparse.ArgumentParser, /) -> None: ...
    def run(self, options: argparse.Namespace, /) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    own_process = raise_on_interrupt()
    try:
        status = cast("int", options.run(options))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if _nobody_reads(error):
            # The interpreter's last flush must not say so again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            print(f"aiofabric {options.command}: {sentence(error)}", file=sys.stderr)
        return 1
    finally:
        if own_process:  # what is left to do takes a moment, too
            leave_on_interrupt()


def _nobody_reads(error: Exception) -> bool:
    """Whether our output went into a pipe whose reader has read enough."""
    error = cast("Exception", reason(error))
    return isinstance(error, BrokenPipeError) and not isinstance(error, FabricError)


class _Version(argparse.Action):
    """Asked only when wanted: it loads libfabric."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        try:
            library = f"libfabric {library_version()} from {library_path()}"
        except LibfabricNotFound:
            library = "no libfabric"
        print(f"aiofabric {metadata.version('aiofabric')}, {library}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aiofabric", description="Asynchronous Python on high-performance fabrics.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show aiofabric's and libfabric's version")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, summary in COMMANDS.items():
        module = cast("Command", import_module(f"aiofabric.cli.{name}"))
        # -h is free for no command: fi_info and fi_pingpong have it as help, too.
        command = commands.add_parser(name, help=summary, description=module.__doc__)
        module.configure(command)
        command.set_defaults(run=module.run)
    return parser
