"""Every block of code in the documentation runs, in the order of the page."""

import re
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, WIDTH, Page, blocks
from tests.fixtures.ports import FIRST_EPHEMERAL_PORT

resource_tracker.ensure_running()  # multiprocessing's helper stays until the end: it is there before leaks are counted

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]  # pages name ports: one run at a time

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [path for path in PAGES if next(blocks(path), None)]
HOWTO = ROOT / "docs" / "howto"
SLOW = {  # 4 to 17 seconds each
    *(ROOT / "docs" / name for name in ("first-steps.md", "rpc.md", "reference/cli.md")),
    *(HOWTO / name for name in ("cancel.md", "http-and-grpc.md", "provider.md", "shutdown.md", "tune.md")),
}
assert set(WITH_CODE) >= SLOW, "a slow page was renamed"
TO_RUN = [pytest.param(path, marks=pytest.mark.long if path in SLOW else ()) for path in WITH_CODE]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])
@pytest.mark.parametrize("path", TO_RUN, ids=lambda path: str(path.relative_to(ROOT)))
async def test_page(path: Path, tmp_path: Path) -> None:
    await Page(path, tmp_path).run()


@pytest.mark.parametrize("path", WITH_CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_of_a_page_is_run_by_it(path: Path) -> None:
    files = {block.kind for block in blocks(path) if block.kind.endswith(".py")}
    sessions = "\n".join(block.text for block in blocks(path) if block.kind == "console")
    assert {name for name in files if name not in sessions} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_line_of_code_is_wider_than_a_page(path: Path) -> None:
    shown = re.sub(
        r"^<!-- .*?-->$", lambda hidden: "\n" * hidden[0].count("\n"), path.read_text(), flags=re.DOTALL | re.M
    )
    for block in re.finditer(r"^(```+).*?^\1$", shown, re.DOTALL | re.MULTILINE):
        assert [line for line in block[0].splitlines() if len(line) > WIDTH] == []


def test_each_example_is_on_a_page() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    assert [path.name for path in (ROOT / "examples").glob("*.py") if f"<../examples/{path.name}>" not in page] == []


def test_pages_name_no_port_that_the_system_may_have_given_away() -> None:
    sessions = "\n".join(block.text for path in WITH_CODE for block in blocks(path) if block.kind == "console")
    ports = [int(port) for port in re.findall(r" (?:--port|-B) (\d+)", sessions)]
    assert ports
    assert [port for port in ports if port >= FIRST_EPHEMERAL_PORT] == []
