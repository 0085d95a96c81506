"""Findings as lines on the terminal."""

from __future__ import annotations

import sys
import textwrap

from aiofabric.cli.doctor.findings import Finding, Level
from aiofabric.cli.table import DIM, GREEN, RED, YELLOW, paint, width

__all__ = ["show"]

_COLOURS = {Level.OK: GREEN, Level.WARNING: YELLOW, Level.FAILURE: RED}
_WORD, _SUBJECT = 5, 19  # columns


def show(finding: Finding) -> None:
    """Print one finding."""
    room = max(min(width(), 120) - _WORD - _SUBJECT - 4, 20)
    lines = [line for part in finding.text.splitlines() for line in _wrap(part, room)] or [""]
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
