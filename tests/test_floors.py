"""Imports and includes never point up, and only the floors that know a loop import one (docs/design.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
PACKAGE = "aiofabric"

NOUNS, FACES, TOP = 1, 5, 6
FLOORS = {
    "_ffi": 0,
    "_core": 0,
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
FOR_TYPES = {"aiofabric.transport.connected.MessageEndpoint", "aiofabric.transport.keywords.EndpointKeywords"}

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
        ("aiofabric.cm.requests", "from ..transport.connected import MessageEndpoint"),
        ("aiofabric.cm.requests", "if TYPE_CHECKING:\n    from ..transport.connected import VirtualEndpoint"),
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
        ("aiofabric.cm.requests", "if TYPE_CHECKING:\n    from ..transport.connected import MessageEndpoint"),
        ("aiofabric.cq.drivers", "import asyncio, trio"),
        ("aiofabric.cli.info", "from aiofabric import getinfo"),
        ("aiofabric.streams", "from aiofabric.channel import Channel"),
    ],
)
def test_the_check_lets_pass_what_points_down(module: str, source: str) -> None:
    assert objections(source, module) == []


# -- the native core: layers as in docs/native-core.md

CORE = ROOT / PACKAGE / "_core"
LAYERS = (
    {"references", "names", "clock", "upcalls", "freelist", "fifo", "awaitable", "call", "thread_check"},
    {"slots", "registry", "operation"},
    {"completion_queue", "polling", "coalescing", "wakeups", "waiter"},
    {"source", "completions", "arming", "progress"},
    {"submission", "transfer", "posting", "injection", "pending_result"},
    {
        *("message", "inbox", "receive_pool", "pool_buffer", "unpack", "receive_waiter", "next_message"),
        *("send", "receive", "length_prefix"),
    },
    {"fast_path", "module"},
)
LAYER = {stem: number for number, stems in enumerate(LAYERS) for stem in stems}
C_FILES = {path.name: path.read_text() for path in sorted(CORE.glob("*.[ch]"))}


def included(text: str) -> set[str]:
    return set(re.findall(r'^#include "(\w+)\.h"', text, re.MULTILINE))


def graph(files: dict[str, str]) -> dict[str, set[str]]:
    """What each file of C, header and body as one, includes of the others."""
    edges: dict[str, set[str]] = {}
    for name, text in files.items():
        stem = name.partition(".")[0]
        edges.setdefault(stem, set()).update(included(text) - {stem})
    return edges


def code_of(text: str) -> str:
    """Without comments and strings."""
    return re.sub(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', "", text, flags=re.DOTALL)


def declared(header: str) -> set[str]:
    """What a header offers: macros, types, functions, enumerators and variables."""
    text = code_of(header)
    names = set(re.findall(r"^#define (\w+)", text, re.MULTILINE)) | set(re.findall(r"^\} (\w+);", text, re.MULTILINE))
    names |= set(re.findall(r"^(?:typedef )?(?:struct|enum) (\w+) \{", text, re.MULTILINE))
    names |= {word for body in re.findall(r"^enum \w+ \{([^}]*)\}", text, re.MULTILINE) for word in body.split(", ")}
    for line in re.findall(r"^extern (.*);", text, re.MULTILINE):
        names |= set(re.findall(r"\*?(\w+)(?=,|$)", line))
    names |= set(re.findall(r"^[A-Za-z][\w *]*?\b(\w+)\(", text, re.MULTILINE))
    return {name.strip() for name in names if not name.endswith("_H")}


def complaints(files: dict[str, str], layer: dict[str, int]) -> list[str]:
    found = []
    edges = graph(files)
    for stem, below in edges.items():
        found += [f"{stem} (layer {layer[stem]}) includes {each}" for each in below if layer[each] > layer[stem]]
    while free := [stem for stem, below in edges.items() if not below & edges.keys()]:
        for stem in free:
            del edges[stem]
    if edges:
        found.append(f"a circle, or what leads into one: {', '.join(sorted(edges))}")
    offers = {name.partition(".")[0]: declared(text) for name, text in files.items() if name.endswith(".h")}
    for name, text in files.items():
        words = set(re.findall(r"\w+", code_of(text)))
        own = name.partition(".")[0]
        for header, offered in offers.items():
            used = offered & words - (offers.get(own, set()) if header != own else set())
            if header == "references" and not used:  # brings Python.h, which everybody uses
                continue
            if name.endswith(".c") and header != own and bool(used) != (header in included(text)):
                found.append(f"{name}: {'lacks' if used else 'does not use'} {header}.h {sorted(used)}")
    return found


def test_the_native_core_has_layers_without_a_circle() -> None:
    assert complaints(C_FILES, LAYER) == []


def test_every_file_of_the_native_core_is_in_a_layer() -> None:
    assert {name.partition(".")[0] for name in C_FILES} == LAYER.keys()


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"low.h": "", "low.c": '#include "low.h"\n#include "high.h"\nhigh()', "high.h": "int high(void);"}, "layer 0"),
        (
            {
                "low.h": '#include "other.h"\nint low(void);',
                "other.h": "int other(void);",
                "other.c": '#include "other.h"\n#include "low.h"\nlow()',
            },
            "a circle",
        ),
        ({"low.h": "int low(void);", "other.h": "", "other.c": '#include "other.h"\nlow()'}, "lacks low.h"),
        (
            {"low.h": "#define LOW 1\n", "other.h": "", "other.c": '#include "other.h"\n#include "low.h"\n/* LOW */'},
            "does not use low.h",
        ),
    ],
)
def test_the_check_of_the_native_core_sees_what_it_is_for(files: dict[str, str], complaint: str) -> None:
    assert any(complaint in each for each in complaints(files, {"low": 0, "other": 0, "high": 1}))
