"""Check this machine: what aiofabric needs, what would make it faster, and how to get it.

The exit status is 1 if a check failed; warnings do not count.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from aiofabric.cli.doctor.choice import choices, found, reached
from aiofabric.cli.doctor.findings import Finding, Level
from aiofabric.cli.doctor.library import environment, library, signals, workarounds
from aiofabric.cli.doctor.machine import infiniband, locked_memory, open_files, shared_memory
from aiofabric.cli.doctor.providers import providers
from aiofabric.cli.table import DIM, GREEN, RED, YELLOW, paint, width
from aiofabric.errors import LibfabricNotFound
from aiofabric.info import library_version

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["configure", "run"]

_COLOURS = {Level.OK: GREEN, Level.WARNING: YELLOW, Level.FAILURE: RED}
_WORD, _SUBJECT = 5, 19  # columns


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("host", nargs="?", help="also show which provider connect chooses for this host")


def run(options: argparse.Namespace) -> int:
    """Run the checks, print each finding as it comes, and then the counts."""
    counts = Counter[Level]()
    for finding in _examine(options.host):
        _show(finding)
        counts[finding.level] += 1
    failures, warnings = counts[Level.FAILURE], counts[Level.WARNING]
    print(f"\n{_number(failures, 'failure')}, {_number(warnings, 'warning')}")
    return 1 if failures else 0


def _examine(host: str | None) -> Iterator[Finding]:
    yield library()
    yield from chain(locked_memory(), open_files(), shared_memory())
    try:
        library_version()
    except LibfabricNotFound:
        return  # the other checks would fail for the same reason
    yield from chain(environment(), infiniband(), signals(), workarounds(), found(choices()))
    if host is not None:
        yield reached(host)[1]
    yield from providers()


def _show(finding: Finding) -> None:
    room = max(min(width(), 120) - _WORD - _SUBJECT - 4, 20)
    lines = [line for part in finding.text.splitlines() for line in _wrap(part, room)]
    cures = [line for part in finding.cure.splitlines() for line in _wrap(part, room - 6)]
    word = paint(f"{finding.level.value:{_WORD}}", _COLOURS[finding.level])
    indent = " " * (_WORD + _SUBJECT + 4)
    print(f"{word}  {finding.subject:{_SUBJECT}}  {lines[0]}")
    for line in lines[1:]:
        print(indent + line)
    for number, line in enumerate(cures):
        print(f"{indent}{paint('      ' if number else 'cure: ', DIM)}{line}")
    sys.stdout.flush()  # the next check may take a while


def _wrap(text: str, room: int) -> list[str]:
    under = " " * (len(text) - len(text.lstrip(" -")))  # the width of a bullet
    return textwrap.wrap(text, room, subsequent_indent=under, break_on_hyphens=False)  # paths stay in one piece


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
