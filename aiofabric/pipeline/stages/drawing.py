"""Pictures of a pipeline's graph: as text for Mermaid, and as SVG. With totals, they show rates."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .plan import Node
    from .totals import Totals

__all__ = ["mermaid", "svg"]

_WIDTH: Final = 150
_HEIGHT: Final = 54
_ACROSS: Final = 70
"""Pixels between two columns."""
_DOWN: Final = 22
_MARGIN: Final = 16


def mermaid(nodes: list[Node], totals: Totals | None = None) -> str:
    """Text for Mermaid, which GitHub and Sphinx draw."""
    numbers = {node: f"s{at}" for at, node in enumerate(nodes)}
    lines = ["flowchart LR"]
    for node in nodes:
        text = "<br/>".join(_quoted(line) for line in _lines(node, totals))
        lines.append(f'    {numbers[node]}["{text}"]')
    for giver, taker, key in _edges(nodes):
        label = f'|"{_quoted(key)}"|' if key else ""
        lines.append(f"    {numbers[giver]} -->{label} {numbers[taker]}")
    return "\n".join(lines) + "\n"


def svg(nodes: list[Node], totals: Totals | None = None) -> str:
    """A picture whose colours follow the text's, so that it can be read on a dark page, too."""
    columns: dict[Node, int] = {}
    rows: dict[int, int] = {}
    places: dict[Node, tuple[int, int]] = {}
    for node in nodes:  # each is behind those that it gets values from
        column = columns[node] = max((columns[each] + 1 for each in node.inputs), default=0)
        row = rows.get(column, 0)
        rows[column] = row + 1
        places[node] = _MARGIN + column * (_WIDTH + _ACROSS), _MARGIN + row * (_HEIGHT + _DOWN)
    width = max(x for x, _ in places.values()) + _WIDTH + _MARGIN
    height = max(y for _, y in places.values()) + _HEIGHT + _MARGIN
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12" fill="currentColor" stroke="currentColor">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" stroke="none"/></marker></defs>',
    ]
    for giver, taker, key in _edges(nodes):
        (x, y), (to_x, to_y) = places[giver], places[taker]
        x, y, to_y = x + _WIDTH, y + _HEIGHT // 2, to_y + _HEIGHT // 2
        bend = (x + to_x) // 2
        drawn.append(f'<path d="M{x} {y} C{bend} {y} {bend} {to_y} {to_x} {to_y}" fill="none" marker-end="url(#end)"/>')
        if key:
            drawn.append(
                f'<text x="{bend}" y="{(y + to_y) // 2 - 5}" text-anchor="middle" stroke="none">{escape(key)}</text>'
            )
    for node, (x, y) in places.items():
        dashed = "" if node.is_here else ' stroke-dasharray="5 3"'
        drawn.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="none"{dashed}/>')
        lines = _lines(node, totals)
        first = y + _HEIGHT // 2 + 4 - 8 * (len(lines) - 1)
        for at, line in enumerate(lines):
            weight = ' font-weight="bold"' if not at else ""
            drawn.append(
                f'<text x="{x + _WIDTH // 2}" y="{first + 16 * at}" text-anchor="middle" stroke="none"{weight}>'
                f"{escape(_short(line))}</text>"
            )
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _lines(node: Node, totals: Totals | None) -> list[str]:
    """The text of one stage: its name, its workers, and its rate."""
    where = f"{node.processes} process{'es' * (node.processes > 1)}" if node.processes else ""
    tasks = f"{node.workers} tasks" if node.workers > 1 and node.is_here else ""
    kind = node.stage.kind.value
    lines = [node.name, ", ".join(each for each in ("" if kind == node.name else kind, where, tasks) if each)]
    if totals is not None and node.name in totals.stages:
        taken = totals.stages[node.name].taken
        lines.append(f"{taken:,} ({taken / totals.seconds:,.0f}/s)" if totals.seconds else f"{taken:,}")
    return [line for line in lines if line]


def _edges(nodes: list[Node]) -> list[tuple[Node, Node, str]]:
    """Giver, taker, and the key of the branch."""
    return [
        (node, taker, str(node.stage.keys[at]) if node.stage.keys else "")
        for node in nodes
        for at, branch in enumerate(node.outputs)
        for taker in branch
    ]


def _quoted(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"
