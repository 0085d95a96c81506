"""Check this machine: what aiofabric needs, what would make it faster, and how to get it.

The exit status is 1 if a check failed; warnings do not count.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections import Counter
from itertools import chain
from threading import Event
from typing import TYPE_CHECKING

from aiofabric.cli.doctor.choice import choices, found, reached
from aiofabric.cli.doctor.findings import Finding, Level
from aiofabric.cli.doctor.library import environment, library, signals, workarounds
from aiofabric.cli.doctor.machine import infiniband, locked_memory, open_files, shared_memory
from aiofabric.cli.doctor.output import show
from aiofabric.cli.doctor.providers import SPEED, providers
from aiofabric.cli.doctor.selftest.options import CHECKS, PORT
from aiofabric.cli.table import width
from aiofabric.cli.unsupported import UsageError, port
from aiofabric.errors import LibfabricNotFound
from aiofabric.info import library_version

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["configure", "run"]

_IDLE, _LIMIT = 3.0, 60.0
_LONGEST = 240.0  # seconds; the server ends a check that takes longer


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("host", nargs="?", help="also show which provider connect chooses for this host")
    ask = parser.add_argument_group("report", "one file for a bug report, with the results of a self-test").add_argument
    ask("--report", metavar="FILE", help="examine this machine, test the providers, and write all results as JSON")
    ask("--peer", metavar="HOST", help="test with this host, on which 'aiofabric doctor --serve' runs")
    ask("--provider", metavar="NAME", action="append", help="test this provider; several times for several")
    ask(
        "--check",
        metavar="NAME",
        action="append",
        choices=CHECKS,
        help="only this test; several times for several: %(choices)s",
    )
    ask("--idle", metavar="SECONDS", type=_seconds, help=f"length of the test without traffic ({_IDLE:g})")
    ask("--limit", metavar="SECONDS", type=_seconds, help=f"end a test that takes longer ({_LIMIT:g})")
    ask("--serve", action="store_true", help="be the other host of self-tests, until Ctrl-C; all hosts can connect")
    ask("-P", "--port", metavar="PORT", type=port, help=f"port of --serve and --peer ({PORT})")


def run(options: argparse.Namespace) -> int:
    """Run the checks, print each finding as it comes, and then the counts; or make a report, or serve one."""
    _check(options)
    options.port = PORT if options.port is None else options.port
    if options.serve:
        return _serve(options.port)
    if options.report is not None:
        options.provider, options.check = options.provider or [], options.check or []
        options.idle = _IDLE if options.idle is None else options.idle
        options.limit = _LIMIT if options.limit is None else options.limit
        library_version()  # raises if there is no libfabric
        from aiofabric.cli.doctor.report import make_report  # imported here: each command imports this module

        return make_report(options, _examine_host)
    counts = Counter[Level]()
    for finding in _examine(options.host):
        show(finding)
        counts[finding.level] += 1
    failures, warnings = counts[Level.FAILURE], counts[Level.WARNING]
    print()
    print(*textwrap.wrap(SPEED, min(width(), 100)), sep="\n")
    print(f"\n{_number(failures, 'failure')}, {_number(warnings, 'warning')}")
    return 1 if failures else 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    for_report = {name: getattr(options, name) for name in ("peer", "provider", "check", "idle", "limit")}
    for name, value in for_report.items():
        if value is not None and options.report is None:
            raise UsageError(f"--{name} needs --report FILE")
    if options.serve and (options.report is not None or options.host is not None):
        raise UsageError("--serve excludes --report and a host: run them on the other host")
    if options.report is not None and options.host is not None:
        raise UsageError("--report takes no host; --peer HOST tests with another one")
    if options.port is not None and not options.serve and options.peer is None:
        raise UsageError("-P is the port of --serve or of --peer")
    idle = _IDLE if options.idle is None else options.idle
    if options.limit is not None and options.limit <= idle:
        raise UsageError(f"--limit {options.limit:g} ends the test that is idle for {idle:g} s; see --idle")


def _seconds(text: str) -> float:
    if not 0 < (seconds := float(text)) <= _LONGEST:
        raise argparse.ArgumentTypeError(f"the time must be more than 0 and at most {_LONGEST:g} seconds, not {text}")
    return seconds


_seconds.__name__ = "number of seconds"


def _serve(wanted: int) -> int:
    from aiofabric.cli.doctor.selftest.server import listen_everywhere, serve

    with listen_everywhere(wanted) as listening:
        host, chosen = listening.getsockname()[:2]
        print(f"listening at {host}, port {chosen}", file=sys.stderr, flush=True)
        serve(listening, Event())
    return 0


def _examine(host: str | None) -> Iterator[Finding]:
    yield from _examine_host()
    try:
        library_version()
    except LibfabricNotFound:
        return
    yield from found(choices())
    if host is not None:
        yield reached(host)[1]
    yield from providers()


def _examine_host() -> Iterator[Finding]:
    yield library()
    yield from chain(locked_memory(), open_files(), shared_memory())
    try:
        library_version()
    except LibfabricNotFound:
        return  # the other checks would fail for the same reason
    yield from chain(environment(), infiniband(), signals(), workarounds())


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
