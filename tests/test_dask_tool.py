"""tools/dask_tests.py, on a sample of tests in the place of Dask's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

SAMPLE = """
import os
import pytest

FABRIC = os.environ["DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME"] == "fabric"

def test_both():
    pass

@pytest.mark.parametrize("size", [1, 2])
def test_tcp_only(size):
    assert not FABRIC or size == 1

def test_neither():
    assert False

@pytest.mark.skip
def test_skipped():
    pass
"""


def run(folder: Path, *options: str) -> tuple[int, str]:
    tests = folder / "distributed" / "tests"
    tests.mkdir(parents=True)
    (tests / "test_sample.py").write_text(SAMPLE)
    tool = [sys.executable, str(ROOT / "tools" / "dask_tests.py"), str(folder), "tests/test_sample.py"]
    ended = subprocess.run(
        [*tool, "--output", str(folder / "logs"), *options], capture_output=True, text=True, timeout=50, check=False
    )
    return ended.returncode, ended.stdout


def test_what_passes_on_tcp_only_fails_the_run(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    code, said = run(tmp_path, "--markdown", str(table))
    row = "| `tests/test_sample.py` | 2 | 3 |  |"
    assert code == 1
    assert f"{row}\npasses on tcp only: test_tcp_only[2]\n" in said
    assert row in table.read_text()
