"""Promise: docs/native-core.md names every state of the source, and every name of Python that C uses."""

import re

import pytest

from tests.docs.pages import ROOT
from tests.test_native_core_layers import C_FILES, CORE, LAYER, code_of

pytestmark = pytest.mark.once

PAGE = (ROOT / "docs" / "native-core.md").read_text()


def rows(title: str) -> dict[str, set[str]]:
    """The table behind a title: first cell, and the words in code style of the others."""
    section = PAGE[PAGE.index(title) :].partition("\n## ")[0].partition("\n### Elsewhere")[0]
    lines = [line.strip("|").split("|", 1) for line in section.splitlines() if line.startswith("| ")]
    return {first.strip(" `"): set(re.findall(r"`(\w+)`", rest)) for first, rest in lines[2:]}


def test_every_name_that_c_interns_is_on_the_page() -> None:
    table = rows("## Names of Python that C calls")
    for path in sorted(CORE.rglob("*.c")):
        interned = set(re.findall(r'\{&name_\w+, "(\w+)"\}', path.read_text()))
        name = path.relative_to(CORE).as_posix()
        assert interned <= table.get(name, set()), name


def struct(header: str, name: str) -> str:
    """The body of a struct of this name, or the only one in the header that is a type."""
    named = rf"(?:struct {name} {{\n|typedef struct {{\n)((?:\t.*\n)+)}}(?: {name})?;"
    bodies: list[str] = re.findall(named, code_of(header))
    return bodies[-1]


def scalars(body: str) -> set[str]:
    """The fields that are numbers or flags, and those that point to a list's first member."""
    lines = re.findall(r"^\t(?:char|long long|struct tcp_socket) (.*);", body, re.MULTILINE)
    return {name.strip(" *") for line in lines for name in line.split(",")}


def structs_of_the_source() -> dict[str, set[str]]:
    """The scalars of `SourceCore`: the fields of each of its structs, and its own."""
    headers = "".join(
        text for name, text in C_FILES.items() if name.endswith(".h") and name.startswith(("prog", "queue/coal"))
    )
    source = struct(C_FILES["progress/source.h"], "SourceCore")
    found = {name: scalars(struct(headers, name)) for name in re.findall(r"^\tstruct (\w+) \1;", source, re.MULTILINE)}
    return {**found, "SourceCore": scalars(source)}


def test_every_scalar_of_the_source_is_on_the_page() -> None:
    section = PAGE.partition("### SourceCore")[2].partition("\n### ")[0]
    table: dict[str, set[str]] = {}
    for line in section.splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| struct")):
            name, fields = line.strip("|").split("|")[:2]
            table.setdefault(name.strip(" `"), set()).update(re.findall(r"`(\w+)`", fields))
    assert table == structs_of_the_source()


def writes(text: str, name: str) -> list[str]:
    """Where C changes a field of the source's struct ``name``, or takes it by value."""
    path = rf"(?:->|\.){name}\.\w+"
    return re.findall(rf"(?:\+\+|--)[\w>.-]*{path}|{path}\s*(?:\+\+|--|[-+|&]?=(?!=))", code_of(text))


def test_one_file_writes_each_struct_of_the_source() -> None:
    """The others call functions of it. The constructor sets what never changes."""
    section = PAGE.partition("### SourceCore")[2].partition("\n### ")[0]
    owner = dict(re.findall(r"^\| `(\w+)` \|.*\| `([\w/]+)\.[ch]` \|$", section, re.MULTILINE))
    assert len(owner) == 6
    for name, stem in owner.items():
        writers = {file for file, text in C_FILES.items() if writes(text, name)} - {f"{stem}.c", f"{stem}.h"}
        assert writers <= {"progress/source.c"}, name
    constructor = C_FILES["progress/source.c"]
    assert len([write for name in owner for write in writes(constructor, name)]) == 3


def test_the_check_of_writes_sees_them() -> None:
    text = "++self->source->interest.count; x->interest.count--; if (x->interest.count == 1) x->interest.unsent += 1;"
    assert len(writes(text, "interest")) == 3


def test_the_layers_of_the_page_are_those_that_are_checked() -> None:
    files: dict[str, set[str]] = {}
    for name in C_FILES:
        folder, _, rest = name.partition(".")[0].rpartition("/")
        files.setdefault(folder or "module", set()).add(rest)
    table = rows("## Layers")
    assert {first.partition(" ")[2]: stems for first, stems in table.items()} == files
    layers = {first.partition(" ")[2]: int(first.partition(" ")[0]) - 1 for first in table}
    assert layers == LAYER
