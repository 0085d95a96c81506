"""The table that a run prints."""

from collections.abc import Iterator
from pathlib import Path

from .measures import COLUMNS
from .results import FAR, Results, machine, nearest
from .targets import TARGETS

BEGIN, END = "<!-- last run -->", "<!-- end of last run -->"
NOTE = """\
Medians of {rounds} interleaved rounds in {took:.0f} s, loopback, client and server in their own processes on
different cores ("one core": on the same). In brackets the ratio to {references}.
"its CPU" and "idle" add both sides. Wake-ups are the server's. "a conn" is the memory of one of 1000
connections, on the side that needs more. "p99 beside" is the delay of timers and sockets beside a busy connection."""
DISTANCE = """\
A cache line took {nearest:.0f} ns from one core to the other and back. {far} of {count} samples do not count, because
it took more than twice as long."""


def render(results: Results) -> str:
    return "\n".join(lines(results))


def insert(results: Results, page: Path) -> None:
    """Put the table where a page keeps the one of the last run."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{page} has no place for the table: a line {BEGIN} and after it a line {END}")
    page.write_text(f"{before}{begin}\n```text\n{render(results)}\n```\n{end}{after}")


def lines(results: Results) -> Iterator[str]:
    known = machine()
    yield ", ".join(f"{name} {value}" for name, value in known.items())
    yield ""
    yield from table(results)
    yield ""
    references: dict[str, list[str]] = {}
    for column in COLUMNS.values():
        if column.against:
            references.setdefault(column.against, []).append(column.title)
    told = "; ".join(f"{row} ({', '.join(titles)})" for row, titles in references.items())
    yield NOTE.format(rounds=results.rounds, took=results.took, references=told)
    if distances := results.distances():
        near = nearest(distances)
        far = sum(distance > FAR * near for distance in distances)
        yield DISTANCE.format(nearest=near, far=far, count=len(distances))
    for title, rows in (("Absent", results.absent), ("Failed", results.failed)):
        for row, reason in rows.items():
            yield f"{title}: {row}: {reason}"
    yield from targets(results)


def table(results: Results) -> Iterator[str]:
    shown = [name for name in COLUMNS if any(results.value(row, name) is not None for row in results.samples)]
    titles = ["", *(COLUMNS[name].title for name in shown)]
    units = ["", *(COLUMNS[name].unit for name in shown)]
    body = [[row, *(cell(results, row, name) for name in shown)] for row in results.samples]
    widths = [max(map(len, column)) for column in zip(titles, units, *body, strict=True)]
    for line in (titles, units, ["-" * width for width in widths], *body):
        name, *cells = (
            text.ljust(width) if not index else text.rjust(width)
            for index, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join((name, *cells)).rstrip()


def cell(results: Results, row: str, name: str) -> str:
    value, column = results.value(row, name), COLUMNS[name]
    if value is None:
        return "-"
    text = f"{value:.{column.digits}f}"
    ratio = results.ratio(row, name, column.against, name) if column.against not in ("", row) else None
    return text if ratio is None else f"{text} ({ratio:.2f})"


def targets(results: Results) -> Iterator[str]:
    measured = [(target, figure) for target in TARGETS if (figure := target.measure(results)) is not None]
    if measured:
        yield ""
    for target, figure in measured:
        yield f"{'met   ' if target.met(figure) else 'MISSED'} {figure:7.2f}  {target}"
