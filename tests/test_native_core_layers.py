"""The C of aiofabric/_core: layers as in docs/native-core.md, no circle, and an include for each name that is used."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

CORE = Path(__file__).parent.parent / "aiofabric/_core"
LAYERS = (  # of folders, and of the module; the folders of one layer do not know each other
    {"base"},
    {"operations", "queue"},
    {"progress"},
    {"submission"},
    {"messages", "rpc"},
    {"channel", "endpoint"},
    {"module"},
)
LAYER = {folder: number for number, folders in enumerate(LAYERS) for folder in folders}
C_FILES = {path.relative_to(CORE).as_posix(): path.read_text() for path in sorted(CORE.rglob("*.[ch]"))}


def folder_of(stem: str) -> str:
    return stem.partition("/")[0]


def included(text: str) -> set[str]:
    return set(re.findall(r'^#include "([\w/]+)\.h"', text, re.MULTILINE))


def graph(files: dict[str, str]) -> dict[str, set[str]]:
    """The includes of each file of C among the others; a header and its body count as one file."""
    edges: dict[str, set[str]] = {}
    for name, text in files.items():
        stem = name.partition(".")[0]
        edges.setdefault(stem, set()).update(included(text) - {stem})
    return edges


def code_of(text: str) -> str:
    """Without comments and strings."""
    return re.sub(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', "", text, flags=re.DOTALL)


def declared(header: str) -> set[str]:
    """The declarations of a header: macros, types, functions, enumerators and variables."""
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
        own = folder_of(stem)
        for each in below:
            other = folder_of(each)
            if other != own and layer[other] >= layer[own]:
                found.append(f"{stem} (layer {layer[own]}) includes {each}")
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
            if header == "base/references" and not used:  # includes Python.h, which every file uses
                continue
            if name.endswith(".c") and header != own and bool(used) != (header in included(text)):
                found.append(f"{name}: {'lacks' if used else 'does not use'} {header}.h {sorted(used)}")
    return found


def test_the_native_core_has_layers_without_a_circle() -> None:
    assert complaints(C_FILES, LAYER) == []


def test_every_file_of_the_native_core_is_in_a_layer() -> None:
    assert {folder_of(name.partition(".")[0]) for name in C_FILES} == LAYER.keys()


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"low.h": "", "low.c": '#include "low.h"\n#include "high.h"\nhigh()', "high.h": "int high(void);"}, "layer 0"),
        (
            {"low/a.h": "", "low/a.c": '#include "low/a.h"\n#include "other/b.h"\nb()', "other/b.h": "int b(void);"},
            "layer 0",
        ),
        (
            {
                "low/low.h": '#include "low/other.h"\nint low(void);',
                "low/other.h": "int other(void);",
                "low/other.c": '#include "low/other.h"\n#include "low/low.h"\nlow()',
            },
            "a circle",
        ),
        (
            {"low/low.h": "int low(void);", "low/other.h": "", "low/other.c": '#include "low/other.h"\nlow()'},
            "lacks low/low.h",
        ),
        (
            {
                "low/low.h": "#define LOW 1\n",
                "low/other.h": "",
                "low/other.c": '#include "low/other.h"\n#include "low/low.h"\n/* LOW */',
            },
            "does not use low/low.h",
        ),
    ],
)
def test_the_check_of_the_native_core_sees_what_it_is_for(files: dict[str, str], complaint: str) -> None:
    assert any(complaint in each for each in complaints(files, {"low": 0, "other": 0, "high": 1}))


KNOW_ASYNCIO = {"queue/wakeups.c", "queue/waiter.c", "rpc/task_set.c", "rpc/stub.c", "rpc/response.c"}


def test_only_listed_files_of_the_native_core_know_asyncio() -> None:
    known = {name for name, text in C_FILES.items() if re.search(r'"_?asyncio\b', text)}
    assert known == KNOW_ASYNCIO
