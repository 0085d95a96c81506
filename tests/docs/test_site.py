"""The site builds without a warning, and its reference has every public name."""

import subprocess
import sys
from importlib import import_module
from inspect import ismodule
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

from tests.docs.pages import ROOT

pytestmark = [pytest.mark.once, pytest.mark.long, pytest.mark.timeout(120)]

PUBLIC = [
    "aiofabric",
    "aiofabric.aio",
    "aiofabric.features",
    "aiofabric.integrations.opentelemetry",
    "aiofabric.integrations.prometheus",
    "aiofabric.metrics",
    "aiofabric.observe",
    "aiofabric.streams",
    "aiofabric.testing",
]


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
