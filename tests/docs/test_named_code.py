"""Promise: the pages for maintainers name files and classes that exist."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.once

RECIPES = sorted((ROOT / "docs" / "project").glob("add-*.md"))
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs" / name for name in ("design.md", "native-core.md", "glossary.md")),
    *RECIPES,
]
PLACES = [
    ROOT,
    *(ROOT / each for each in ("aiofabric", "tests", "aiofabric/transport", "aiofabric/_core", "aiofabric/_ffi")),
]
PATH = re.compile(r"[\w./*-]+\.(py|pyi|c|h|md|sh)|[\w-]+/[\w./-]*")
PLACEHOLDERS = re.compile(r"NAME|ROOM|[<>*…{]|^build/")  # build/ exists after a build only


@cache
def code() -> str:
    """The package and its tests."""
    files = [path for folder in ("aiofabric", "tests") for path in (ROOT / folder).rglob("*.*")]
    return "\n".join(path.read_text() for path in files if path.suffix in (".py", ".pyi", ".c", ".h"))


def named(text: str) -> list[str]:
    """Words in code style, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_each_file_that_a_page_names_exists(page: Path) -> None:
    paths = [name for name in named(page.read_text()) if PATH.fullmatch(name) and not PLACEHOLDERS.search(name)]
    assert [name for name in paths if not any((place / name).exists() for place in PLACES)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_each_class_and_private_name_of_a_page_exists(page: Path) -> None:
    found = re.findall(r"\b(?:[A-Z][a-z]+[A-Z]\w*|_[a-z]\w+)\b", "\n".join(named(page.read_text())))
    assert {name for name in found if name not in code()} == set()


@pytest.mark.parametrize("page", RECIPES, ids=lambda path: path.stem)
def test_each_attribute_in_the_code_of_a_recipe_exists(page: Path) -> None:
    attributes = set(re.findall(r"\b(?:route|handle|region|stream)\.(\w+)", page.read_text()))
    assert {name for name in attributes if not re.search(rf"\b{name}\b", code())} == set()
