"""The site builds without a warning, and its reference has every public name."""

import builtins
import collections.abc
import re
import subprocess
import sys
import typing
from html import unescape
from importlib import import_module
from inspect import getattr_static, ismodule
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

import aiofabric
from tests.docs.pages import ROOT, WIDTH

pytestmark = [pytest.mark.once, pytest.mark.long, pytest.mark.timeout(500)]  # 40 s alone, 150 s beside others

PUBLIC = [
    "aiofabric",
    "aiofabric.aio",
    "aiofabric.features",
    "aiofabric.integrations.opentelemetry",
    "aiofabric.integrations.prometheus",
    "aiofabric.metrics",
    "aiofabric.observe",
    "aiofabric.pipeline",
    "aiofabric.rpc",
    "aiofabric.streams",
    "aiofabric.testing",
]

ENDPOINTS = (
    aiofabric.MessageEndpoint,
    aiofabric.RdmEndpoint,
    aiofabric.DatagramEndpoint,
    aiofabric.ScalableEndpoint,
    aiofabric.TransmitContext,
    aiofabric.ReceiveContext,
    aiofabric.SharedReceive,
    aiofabric.SharedTransmit,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does."""
    out = tmp_path_factory.mktemp("site")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        ROOT / "docs",
        out,
    ]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)
    return out


@pytest.fixture(scope="module")
def documented(site: Path) -> set[str]:
    """The last part of every name in the reference."""
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    return {
        name.rpartition(".")[2] for kind, names in inventory.data.items() if kind.startswith("py:") for name in names
    }


@pytest.mark.parametrize("module", PUBLIC)
def test_reference_has_every_public_name(module: str, documented: set[str]) -> None:
    found = import_module(module)
    names = getattr(found, "__all__", None) or [
        name for name in dir(found) if not name.startswith("_") and not ismodule(getattr(found, name))
    ]
    missing = {name for name in names if name not in documented}
    assert missing == set(), "name them in one of docs/reference/*.md"


def test_every_page_has_its_heading(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        html = (site / page.relative_to(ROOT / "docs").with_suffix(".html")).read_text()
        assert html.count("<h1>") == 1, page


def reference(site: Path) -> dict[str, str]:
    """The pages of the reference."""
    pages = {str(path.relative_to(site)): path.read_text() for path in (site / "reference").rglob("*.html")}
    assert len(pages) > 10
    return pages


def text_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_each_type_field_of_the_reference_is_a_type(site: Path, documented: set[str]) -> None:
    known = {*dir(builtins), *dir(typing), *dir(collections.abc), *documented}
    field = re.compile(r"<dt[^>]*>Type<span.*?</dt>\s*<dd[^>]*>(.*?)</dd>", re.DOTALL)
    types = {(page, text_of(each).strip()) for page, html in reference(site).items() for each in field.findall(html)}
    assert types, "the pattern finds no field any more"
    assert {each for each in types if not set(re.findall(r"[^\W\d][\w.]*|\d[\w.]*", each[1])) <= known} == set()


def test_no_signature_or_value_of_the_reference_shows_an_object(site: Path) -> None:
    for page, html in reference(site).items():
        for signature in re.findall(r'<dt class="sig .*?</dt>', html, re.DOTALL):
            assert not re.search(r"<(?!\W)|object at 0x", text_of(signature)), f"{page}: {text_of(signature)}"
            assert len(text_of(signature)) < 1500, f"{page}: {text_of(signature)}"
            assert not re.search(r"\b\d{15,}\b", text_of(signature)), f"{page}: {text_of(signature)}: a flag by number"


def test_each_raises_of_the_reference_is_a_field(site: Path) -> None:
    for page, html in reference(site).items():
        text = text_of(re.sub(r"<(dt|pre)\b.*?</\1>", "", html, flags=re.DOTALL))
        assert "Raises:" not in text, page


def test_no_line_of_code_is_wider_than_a_page(site: Path) -> None:
    """Also that of docstrings and of included files."""
    for path in site.rglob("*.html"):
        if "_modules" in path.parts:
            continue
        for block in re.findall(r"<pre>(.*?)</pre>", path.read_text(), re.DOTALL):
            assert [line for line in text_of(block).splitlines() if len(line) > WIDTH] == [], path


def test_definition_lists_are_rendered(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not re.search(r"<p>[^<]*\n: ", path.read_text()), path


def test_reference_has_each_member_of_an_endpoint_once(site: Path) -> None:
    """A member that several classes inherit is documented at one of them; the others link to it."""
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    known = {name for kind, names in inventory.data.items() if kind.startswith("py:") for name in names}
    documented = {
        id(getattr_static(cls, name))
        for cls in ENDPOINTS
        for name in dir(cls)
        if f"aiofabric.{cls.__name__}.{name}" in known
    }
    for cls in ENDPOINTS:
        public = [name for name in dir(cls) if not name.startswith("_")]
        assert [name for name in public if id(getattr_static(cls, name)) not in documented] == [], cls
