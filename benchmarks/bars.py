"""The picture of the README: round trips of aiofabric and of what a user would choose instead.

The figures are those of the page ::

    python -m benchmarks.bars docs/performance.md docs/round-trips.svg

``make bench ARGS="--page …"`` writes page and picture together, so they never differ.
"""

import re
import sys
from pathlib import Path

CONTENDERS = {
    "aiofabric over shm": "aiofabric, shared memory",
    "aiofabric on uvloop": "aiofabric, tcp",
    "RPC, grpc interface": "aiofabric RPC, tcp",
    "uvloop Protocol": "uvloop Protocol, sockets",
    "pyzmq on asyncio": "pyzmq",
    "grpc.aio on uvloop": "grpc.aio",
}
"""Rows of the page's first table, and how the picture names them."""

WIDTH, NAMES, BAR, STEP = 760, 190, 18, 30  # in pixels: of the picture, of the names; of a bar, to the next one

# Readable on the light and the dark page of GitHub and of the documentation.
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #24292f; }
.ours { fill: #1f6feb; } .others { fill: #8c959f; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .ours { fill: #58a6ff; } .others { fill: #6e7681; } }
"""


def round_trips(page: str) -> dict[str, float]:
    """Microseconds of a round trip of 64 B for each of `CONTENDERS` that the page's first table has."""
    found = {}
    for row in CONTENDERS:
        if match := re.search(rf"^{re.escape(row)} +([0-9.]+) ", page, re.MULTILINE):
            found[row] = float(match[1])
    return found


def drawn(page: str) -> str:
    """The picture, as SVG."""
    values = round_trips(page)
    longest = max(values.values())
    room = WIDTH - NAMES - 80
    lines = ['<text x="0" y="16" font-weight="bold">Round trip of 64 B, in microseconds: shorter is better</text>']
    for number, (row, value) in enumerate(values.items(), 1):
        top = number * STEP
        kind = "ours" if row.startswith(("aiofabric", "RPC")) else "others"
        length = max(2, round(value / longest * room))
        lines += [
            f'<text x="0" y="{top + 14}">{CONTENDERS[row]}</text>',
            f'<rect class="{kind}" x="{NAMES}" y="{top}" width="{length}" height="{BAR}"/>',
            f'<text x="{NAMES + length + 6}" y="{top + 14}">{value:.3g}</text>',
        ]
    height = (len(values) + 1) * STEP
    shape = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return "\n".join([f"<svg {shape}>", f"<style>{STYLE}</style>", *lines, "</svg>", ""])


def draw(page: Path, picture: Path) -> None:
    """Draw the figures of ``page``."""
    picture.write_text(drawn(page.read_text()))


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
