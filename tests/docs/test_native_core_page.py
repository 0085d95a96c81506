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


def test_every_scalar_of_the_source_has_a_state() -> None:
    struct = code_of((CORE / "progress/source.h").read_text()).partition("} SourceCore;")[0]
    scalars = {
        name.strip()
        for line in re.findall(r"^\t(?:char|long long) (.*);", struct, re.MULTILINE)
        for name in line.split(",")
    }
    assert len(scalars) > 30
    assert scalars <= set.union(*rows("### SourceCore").values())


def test_the_layers_of_the_page_are_those_that_are_checked() -> None:
    files: dict[str, set[str]] = {}
    for name in C_FILES:
        folder, _, rest = name.partition(".")[0].rpartition("/")
        files.setdefault(folder or "module", set()).add(rest)
    table = rows("## Layers")
    assert {first.partition(" ")[2]: stems for first, stems in table.items()} == files
    layers = {first.partition(" ")[2]: int(first.partition(" ")[0]) - 1 for first in table}
    assert layers == LAYER
