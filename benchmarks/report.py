"""The tables that a run prints."""

import textwrap
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from .measures import COLUMNS
from .results import FAR, Results, machine, nearest
from .slower import MARGIN, slower
from .targets import TARGETS

BEGIN, END = "<!-- last run -->", "<!-- end of last run -->"
WIDTH = 80
NOTE = (
    "Medians of {rounds} interleaved rounds in {took:.0f} s, loopback, client and server in their own processes on "
    'different cores ("one core": on the same). In brackets the ratio to {references}. '
    '"its CPU" and "idle" add both sides. Wake-ups are the server\'s. "a conn" is the memory of one of 1000 '
    'connections, on the side that needs more. "p99 beside" is the delay of timers and sockets beside a busy '
    "connection."
)
SLOWER = (
    f"The speed of the first against that of the second, where it is below {MARGIN}. In the other measures of the "
    "tables and of the picture, the first is as fast or faster."
)
DISTANCE = (
    "A cache line took {nearest:.0f} ns from one core to the other and back. {far} of {count} samples do not count, "
    "because it took more than twice as long."
)


def render(results: Results) -> str:
    return "\n\n".join("\n".join([*filter(None, [title]), *lines]) for title, lines in parts(results))


def insert(results: Results, page: Path) -> None:
    """Put the tables where a page keeps those of the last run."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{page} has no place for the tables: a line {BEGIN} and after it a line {END}")
    page.write_text(f"{before}{begin}\n{sections(parts(results))}{end}{after}")


def sections(parts: Iterable[tuple[str, list[str]]]) -> str:
    """Parts of a report as sections of a page."""
    return "".join(
        (f"### {title}\n\n" if title else "") + "```text\n" + "\n".join(lines) + "\n```\n\n" for title, lines in parts
    )


def parts(results: Results) -> Iterator[tuple[str, list[str]]]:
    """The parts of the report: a title, and lines."""
    yield "", wrap(", ".join(f"{name} {value}" for name, value in machine().items()))
    for theme in dict.fromkeys(column.theme for column in COLUMNS.values()):
        if lines := table(results, theme):
            yield theme, lines
    if lines := list(slower(results)):
        yield "Where sockets are faster", [*wrap(SLOWER), "", *chain.from_iterable(map(wrap, lines))]
    yield "Notes", notes(results)
    if lines := list(targets(results)):
        yield "Promises", lines


def wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def notes(results: Results) -> list[str]:
    references: dict[str, list[str]] = {}
    for column in COLUMNS.values():
        if column.against:
            references.setdefault(column.against, []).append(column.title)
    told = "; ".join(f"{row} ({', '.join(titles)})" for row, titles in references.items())
    lines = wrap(NOTE.format(rounds=results.rounds, took=results.took, references=told))
    if distances := results.distances():
        near = nearest(distances)
        far = sum(distance > FAR * near for distance in distances)
        lines += ["", *wrap(DISTANCE.format(nearest=near, far=far, count=len(distances)))]
    for title, rows in (("Absent", results.absent), ("Failed", results.failed)):
        lines += [f"{title}: {row}: {reason}" for row, reason in rows.items()]
    return lines


def table(results: Results, theme: str) -> list[str]:
    """The table of a theme: the columns that were measured, and the rows that have a value in one of them."""
    columns = {name: column for name, column in COLUMNS.items() if column.theme == theme}
    shown = [name for name in columns if any(results.value(row, name) is not None for row in results.samples)]
    body = [[row, *(cell(results, row, name) for name in shown)] for row in results.samples]
    titles = ["", *(columns[name].title for name in shown)]
    return aligned(titles, ["", *(columns[name].unit for name in shown)], body)


def aligned(titles: list[str], units: list[str], body: list[list[str]]) -> list[str]:
    body = [line for line in body if any(cell != "-" for cell in line[1:])]
    widths = [max(map(len, column)) for column in zip(titles, units, *body, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if index else text.ljust(width)
            for index, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (titles, units, ["-" * width for width in widths], *body)
        if body
    ]


def cell(results: Results, row: str, name: str) -> str:
    value, column = results.value(row, name), COLUMNS[name]
    if value is None:
        return "-"
    text = f"{value:.{column.digits}f}"
    ratio = results.ratio(row, name, column.against, name) if column.against not in ("", row) else None
    return text if ratio is None else f"{text} ({ratio:.2f})"


def targets(results: Results) -> Iterator[str]:
    measured = [(target, figure) for target in TARGETS if (figure := target.measure(results)) is not None]
    for target, figure in measured:
        line = f"{'met   ' if target.met(figure) else 'MISSED'} {figure:7.2f}  {target}"
        yield from textwrap.wrap(line, WIDTH, subsequent_indent=" " * 16)
