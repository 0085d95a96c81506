"""No import points up a floor or a room, no files import each other in a circle, and only listed files know a loop."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
PACKAGE = "aiofabric"

NOUNS, INTERFACES, TOP = 1, 5, 6
FLOORS = {
    "_ffi": 0,
    "_core": 0,
    "cq": 2,
    "cm": 3,
    "transport": 4,
    **dict.fromkeys(("streams", "aio", "rpc", "pipeline", "testing", "channel", "metrics", "debugging"), INTERFACES),
    **dict.fromkeys(("integrations", "cli", "__main__"), TOP),
}
NOUN_MODULES = {
    *(
        "arguments",
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

LOOPS = {"asyncio", "trio", "uvloop", "sniffio"}  # every file may use anyio: its exceptions for closed, busy, broken
MAY_KNOW_THE_LOOP = {"cq.loops", "aio", "streams", "testing", "cli", "integrations", "rpc.runtime", "rpc.grpc"}
WITHOUT_IO = "rpc.protocol"  # imports nothing else of aiofabric, so neither a loop nor an endpoint
ITS_CORE = {  # the part in C
    f"_core.{name}" for name in ("Assembly", "BudgetCore", "CallCore", "ClientCallCore", "ConnectionCore")
}

# The rooms of some packages, and files outside of rooms, from the ground up. An import points down, or stays inside.
TRANSPORT = (
    ("interfaces", "tags", "buffers", "peer_access"),
    ("route",),
    ("orderly_end", "failures", "lingering"),
    ("handle",),
    ("messages",),
    ("endpoint", "exclusions"),
    ("rma", "workarounds"),
    ("tagged",),
    ("opening",),
    ("connectionless",),
    ("connected",),
    ("virtual",),
    ("connect",),
)
CQ = (
    ("loops", "operation", "slots", "polling"),
    ("queue",),
    ("interfaces",),
    ("source",),
    ("submission", "reactor"),
    ("counter", "unnamed_failures"),
)
CM = (
    ("events", "preface", "foreign_clients"),
    ("queue",),
    ("handshake",),
    ("requests",),
    ("listener", "accept_predicate", "workarounds"),
    ("reservation", "acceptor"),
    ("passive", "clients"),
)
RPC = (("protocol",), ("status", "messages"), ("runtime",), ("channel",), ("client", "serving"), ("server",), ("grpc",))
PIPELINE = (
    ("protocol", "places", "statistics"),
    ("runtime", "topics"),
    ("consumer",),
    ("push", "pull", "publish", "subscribe", "deduplicate", "objects"),
    ("stages",),
)
ROOMS = {"cq": CQ, "cm": CM, "transport": TRANSPORT, "rpc": RPC, "pipeline": PIPELINE}
STOREYS = {
    (package, name): storey for package, rooms in ROOMS.items() for storey, names in enumerate(rooms) for name in names
}
FILES_MOST = 12  # of a room

# The result of an accepted request is of the floor above: these names are imported for type checkers only.
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
    """The folder or module directly under the package; the package itself is the public interface."""
    return dotted.split(".")[1] if "." in dotted else ""


def room_of(dotted: str) -> str:
    """The room inside a package, or the file that stands outside of its rooms."""
    return ".".join(dotted.split(".")[1:3])


def floor(dotted: str) -> int:
    """The package's own names are public: they count as a familiar interface, above all machinery."""
    return FLOORS.get(room(dotted), INTERFACES)


def storey(dotted: str) -> int:
    """Where a module of a package with rooms is; -1 for all others."""
    parts = dotted.split(".")
    if len(parts) < 3 or parts[1] not in ROOMS:
        return -1
    return STOREYS.get((parts[1], parts[2]), len(ROOMS[parts[1]]))


def objections(source: str, module: str, *, is_package: bool = False) -> list[str]:
    found = []
    typing_only = lines_for_types(source)
    for line, name in imports(source, module, is_package=is_package):
        top = name.partition(".")[0]
        if room(module) == "cm" and name in FOR_TYPES and line in typing_only:
            continue
        if top == PACKAGE and floor(name) > floor(module):
            found.append(f"line {line}: floor {floor(module)} imports {name} of floor {floor(name)}")
        same_package = room(name) == room(module)
        if same_package and room_of(name) != room_of(module) and storey(name) >= storey(module) >= 0:
            found.append(f"line {line}: {room_of(module)} imports {name} of a room that is not below")
        if room_of(module) == WITHOUT_IO and top == PACKAGE and room_of(name) not in {WITHOUT_IO, *ITS_CORE}:
            found.append(f"line {line}: {WITHOUT_IO} imports {name}")
        if top in LOOPS and not {room(module), room_of(module)} & MAY_KNOW_THE_LOOP:
            found.append(f"line {line}: {top} is known to {', '.join(sorted(MAY_KNOW_THE_LOOP))} only")
    return found


Graph = dict[str, set[str]]


def graph(sources: dict[str, tuple[str, bool]]) -> Graph:
    """Which modules each module imports, wherever the import stands, also under ``if TYPE_CHECKING:``."""

    def module_of(name: str) -> str:
        while name and name not in sources:
            name = name.rpartition(".")[0]
        return name

    found: Graph = {}
    for module, (source, is_package) in sources.items():
        names = {module_of(name) for _, name in imports(source, module, is_package=is_package)}
        found[module] = names - {module, ""}
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Modules that reach each other: what is left when modules that nothing left imports are taken away, repeatedly."""
    left = {module: set(names) for module, names in graph.items()}
    while True:
        imported = set().union(*left.values()) if left else set()
        gone = {module for module, names in left.items() if module not in imported or not names & left.keys()}
        if not gone:
            return [sorted(left)] if left else []
        left = {module: names - gone for module, names in left.items() if module not in gone}


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_never_point_up(path: Path) -> None:
    assert objections(path.read_text(), dotted(path), is_package=path.name == "__init__.py") == []


def test_no_files_import_each_other_in_a_circle() -> None:
    sources = {dotted(path): (path.read_text(), path.name == "__init__.py") for path in MODULES}
    assert circles(graph(sources)) == []


@pytest.mark.parametrize("package", ROOMS)
def test_every_module_stands_in_a_room(package: str) -> None:
    folder = ROOT / PACKAGE / package
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert names - {"__init__"} <= {name for storey in ROOMS[package] for name in storey}


@pytest.mark.parametrize(
    "room",
    [path for name in ("cq", "cm", "transport") for path in sorted((ROOT / PACKAGE / name).rglob("__init__.py"))],
    ids=dotted,
)
def test_a_room_is_small_and_says_what_is_in_it(room: Path) -> None:
    assert len(list(room.parent.glob("*.py"))) <= FILES_MOST
    assert "May import" in (ast.get_docstring(ast.parse(room.read_text())) or "")


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"a": "import b", "b": "import c", "c": ""}, []),
        ({"a": "import b", "b": "import a"}, [["a", "b"]]),
        ({"a": "import b", "b": "if TYPE_CHECKING:\n    from a import A", "c": "import a"}, [["a", "b"]]),
        ({"a": "from b import B", "b": "def late():\n    import c", "c": "import a", "d": ""}, [["a", "b", "c"]]),
    ],
)
def test_circles_are_found(sources: dict[str, str], found: list[list[str]]) -> None:
    assert circles(graph({module: (source, False) for module, source in sources.items()})) == found


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
        ("aiofabric.cq.source.source", "import asyncio"),
        ("aiofabric.cq.queue", "from .source.source import Source"),
        ("aiofabric.cm.events", "from .queue import EventQueue"),
        ("aiofabric.transport.handle", "from .messages.inbox import Inbox"),
        ("aiofabric.transport.rma.rma", "from ..opening.options import EndpointOptions"),
        ("aiofabric.transport.rma.rma", "if TYPE_CHECKING:\n    from ..workarounds.shm_names import path_of"),
        ("aiofabric.memory", "from trio.lowlevel import checkpoint"),
    ],
)
def test_the_check_sees_what_it_is_for(module: str, source: str) -> None:
    assert len(objections(source, module)) >= 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("aiofabric.transport.endpoint", "from aiofabric.cq.reactor import Reactor\nfrom .. import errors"),
        ("aiofabric.transport.rma.rma", "from ..messages.send import Message\nfrom .operands import Operand"),
        ("aiofabric.memory", "from anyio import ClosedResourceError"),
        ("aiofabric.cm.requests", "if TYPE_CHECKING:\n    from ..transport.connected.endpoint import MessageEndpoint"),
        ("aiofabric.cq.loops.drivers", "import asyncio, trio"),
        ("aiofabric.cli.info", "from aiofabric import getinfo"),
        ("aiofabric.streams", "from aiofabric.channel import Channel"),
    ],
)
def test_the_check_lets_pass_what_points_down(module: str, source: str) -> None:
    assert objections(source, module) == []
