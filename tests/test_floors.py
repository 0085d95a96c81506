"""An import never points up a floor, and only the floors that know a loop import one (docs/design.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
PACKAGE = "aiofabric"

NOUNS, FACES, TOP = 1, 5, 6
FLOORS = {
    "_ffi": 0,
    "_hot": 0,
    "cq": 2,
    "cm": 3,
    "transport": 4,
    **dict.fromkeys(("streams", "aio", "rpc", "testing", "channel", "metrics", "debugging"), FACES),
    **dict.fromkeys(("integrations", "cli", "__main__"), TOP),
}
NOUN_MODULES = {
    *(
        "errors",
        "flags",
        "info",
        "features",
        "resource",
        "fabric",
        "library",
        "domain",
        "memory",
        "remote_region",
        "address",
        "address_vector",
        "bufferlike",
    ),
    *("settings", "device_memory", "observe", "regions", "starting", "workarounds"),
}
FLOORS |= dict.fromkeys(NOUN_MODULES, NOUNS)

LOOPS = {"asyncio", "trio", "uvloop", "sniffio"}  # anyio is everyone's: its words for closed, busy, broken
MAY_KNOW_THE_LOOP = {"cq", "aio", "streams", "testing", "cli", "integrations"}

# What accepting a request gives is of the floor above: these names are imported for type checkers alone.
FOR_TYPES = {
    "aiofabric.transport.connected.endpoint.MessageEndpoint",
    "aiofabric.transport.opening.keywords.EndpointKeywords",
}

MODULES = sorted(path for path in (ROOT / PACKAGE).rglob("*.py") if path != ROOT / PACKAGE / "__init__.py")


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything imported, wherever in the file it stands."""
    here = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            origin = [*base, *(node.module or "").split(".")] if node.module else base
            yield from ((node.lineno, ".".join([*origin, alias.name])) for alias in node.names)


def lines_for_types(source: str) -> set[int]:
    """The lines under ``if TYPE_CHECKING:``."""
    blocks = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {line for block in blocks for each in block.body for line in range(each.lineno, (each.end_lineno or 0) + 1)}


def room(dotted: str) -> str:
    """The folder or module right under the package; the package itself is what everybody else sees."""
    return dotted.split(".")[1] if "." in dotted else ""


def floor(dotted: str) -> int:
    """The package's own names are public: they count as a familiar face, above all machinery."""
    return FLOORS.get(room(dotted), FACES)


def objections(source: str, module: str, *, is_package: bool = False) -> list[str]:
    found = []
    typing_only = lines_for_types(source)
    for line, name in imports(source, module, is_package=is_package):
        top = name.partition(".")[0]
        if room(module) == "cm" and name in FOR_TYPES and line in typing_only:
            continue
        if top == PACKAGE and floor(name) > floor(module):
            found.append(f"line {line}: floor {floor(module)} imports {name} of floor {floor(name)}")
        if top in LOOPS and room(module) not in MAY_KNOW_THE_LOOP:
            found.append(f"line {line}: {top} is known to {', '.join(sorted(MAY_KNOW_THE_LOOP))} only")
    return found


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_never_point_up(path: Path) -> None:
    assert objections(path.read_text(), dotted(path), is_package=path.name == "__init__.py") == []


def test_every_module_stands_on_a_floor() -> None:
    assert {room(dotted(path)) for path in MODULES} <= FLOORS.keys()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("aiofabric.cq.queue", "from aiofabric.transport import endpoint"),
        ("aiofabric.cq.queue", "from ..transport.endpoint import MessageEndpoint"),
        ("aiofabric.cm.events", "def late():\n    import aiofabric.transport"),
        ("aiofabric.domain", "from . import cq"),
        ("aiofabric.cm.requests", "from ..transport.connected.endpoint import MessageEndpoint"),
        ("aiofabric.cm.requests", "if TYPE_CHECKING:\n    from ..transport.connected.endpoint import VirtualEndpoint"),
        ("aiofabric.transport.endpoint", "from aiofabric import connect"),
        ("aiofabric.transport.endpoint", "import asyncio"),
        ("aiofabric.memory", "from trio.lowlevel import checkpoint"),
    ],
)
def test_the_check_sees_what_it_is_for(module: str, source: str) -> None:
    assert len(objections(source, module)) >= 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("aiofabric.transport.endpoint", "from aiofabric.cq.reactor import Reactor\nfrom .. import errors"),
        ("aiofabric.memory", "from anyio import ClosedResourceError"),
        ("aiofabric.cm.requests", "if TYPE_CHECKING:\n    from ..transport.connected.endpoint import MessageEndpoint"),
        ("aiofabric.cq.drivers", "import asyncio, trio"),
        ("aiofabric.cli.info", "from aiofabric import getinfo"),
        ("aiofabric.streams", "from aiofabric.channel import Channel"),
    ],
)
def test_the_check_lets_pass_what_points_down(module: str, source: str) -> None:
    assert objections(source, module) == []
