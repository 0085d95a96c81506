"""Plain tables: aligned columns, on a terminal with a bold heading and wrapped text."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BOLD", "DIM", "GAP", "GREEN", "RED", "YELLOW", "on_terminal", "paint", "table", "width"]

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
GAP = "  "
_NARROWEST = 12  # characters of a column that is wrapped


def on_terminal() -> bool:
    """Whether the output goes to a terminal, rather than to a program or a file."""
    return sys.stdout.isatty()


def width() -> int:
    """Characters of a line on the terminal; no limit elsewhere."""
    return shutil.get_terminal_size().columns if on_terminal() else sys.maxsize


def paint(text: str, *styles: str) -> str:
    """``text`` in a colour or weight, on terminals that support it (https://no-color.org)."""
    if not on_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[{';'.join(styles)}m{text}\033[0m"


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, align: str = "") -> str:
    """Lines of a table; ``align`` has ``<`` or ``>`` for each column. The last column is wrapped on a terminal."""
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    sides = align.ljust(len(widths), "<")
    before = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    room = width() - before
    if room < _NARROWEST:
        room = sys.maxsize  # then the terminal's own wrapping is easier to read

    def line(cells: Sequence[str]) -> str:
        *first, last = cells
        texts = [f"{cell:{side}{size}}" for cell, side, size in zip(first, sides, widths, strict=False)]
        if len(last) > room:
            return GAP.join(texts) + GAP + f"\n{'':{before}}".join(textwrap.wrap(last, room))
        return GAP.join([*texts, f"{last:{sides[-1]}{widths[-1]}}"]).rstrip()

    return "\n".join([paint(line(heading), BOLD), *map(line, rows)])
