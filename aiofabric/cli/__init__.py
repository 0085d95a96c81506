"""The command line: ``aiofabric`` and ``python -m aiofabric``.

Exit statuses: 0 success, 1 failure (with one sentence on stderr), 2 wrong usage, 130 Ctrl-C. If the output is a pipe
whose reader has closed it, the status is 1, without a sentence.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from aiofabric import __version__
from aiofabric.cli.sentence import reason, sentence
from aiofabric.cli.unsupported import UsageError
from aiofabric.errors import FabricError, LibfabricNotFound
from aiofabric.info import library_path, library_version
from aiofabric.starting import INTERRUPTED, leave_on_interrupt, raise_on_interrupt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

__all__ = ["main"]

COMMANDS = {
    "info": "the offers of this machine's providers",
    "bench": "a quick measurement of speed, compared with plain asyncio sockets",
    "doctor": "problems of this machine, and how to fix them",
    "pingpong": "latency and bandwidth between two hosts, with fi_pingpong's protocol",
    "serve": "an ASGI application over a fabric, with uvicorn or Hypercorn",
    "run": "a pipeline of stages, with totals",
    "top": "producers, consumers, publishers and subscribers of pipelines, live",
}


class Command(Protocol):
    """A module of this package with one command: its arguments and its function."""

    def configure(self, parser: argparse.ArgumentParser, /) -> None: ...
    def run(self, options: argparse.Namespace, /) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    _fill_descriptors()
    own_process = False
    command = "aiofabric"
    try:
        parser = _parser()
        options = parser.parse_args(_decodable(sys.argv[1:] if arguments is None else arguments))
        if options.command is None:
            parser.print_help()
            return _flushed(command, 0)
        command += f" {options.command}"
        own_process = raise_on_interrupt()
        return _flushed(command, cast("int", options.run(options)))
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as ended:  # raised by argparse, which has printed its message
        return _flushed(command, ended.code if isinstance(ended.code, int) else 0)
    except Exception as error:
        if not _nobody_reads(error):
            print(f"{command}: {_unwritten(error) or sentence(error)}", file=sys.stderr)
        return _flushed("", 2 if isinstance(error, UsageError) else 1)
    finally:
        if own_process:  # the interpreter's end takes a moment, too
            leave_on_interrupt()


def _fill_descriptors() -> None:
    """Open descriptors that the shell has closed (``>&-``): no socket may become descriptor 1 or 2 and get the
    output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _decodable(arguments: Sequence[str]) -> Sequence[str]:
    for argument in arguments:
        if not argument.isascii() and any("\ud800" <= letter <= "\udfff" for letter in argument):
            raise UsageError(f"the argument {os.fsencode(argument)!r} is not valid text in this locale's encoding")
    return arguments


def _flushed(command: str, status: int) -> int:
    """Flush the output and report a failure here; otherwise the interpreter would report it with a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if command and not isinstance(error, BrokenPipeError):
            print(f"{command}: cannot write the output: {error.strerror}", file=sys.stderr)
        return status or 1
    return status


def _nobody_reads(error: Exception) -> bool:
    """Whether the output is a pipe that its reader has closed."""
    error = cast("Exception", reason(error))
    return isinstance(error, BrokenPipeError) and not isinstance(error, FabricError)


def _unwritten(error: Exception) -> str:
    """The sentence for a failed write of the output; empty for other errors."""
    error = cast("Exception", reason(error))
    if type(error) is not OSError or error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO):
        return ""
    return f"cannot write the output: {error.strerror}"


class _Parser(argparse.ArgumentParser):
    """argparse drops the errors of writing its help."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        print(self.format_help(), end="", file=file)


class _Version(argparse.Action):
    """Prints the versions only on request, because this loads libfabric."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        try:
            library = f"libfabric {library_version()} from {library_path()}"
        except LibfabricNotFound:
            library = "no libfabric"
        print(f"aiofabric {__version__}, {library}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="aiofabric", description="Asynchronous Python on high-performance fabrics.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show aiofabric's and libfabric's version")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, summary in COMMANDS.items():
        module = cast("Command", import_module(f"aiofabric.cli.{name}"))
        # No command may use -h: in fi_info and fi_pingpong it is help, too.
        command = commands.add_parser(name, help=summary, description=module.__doc__)
        module.configure(command)
        command.set_defaults(run=module.run)
    return parser
