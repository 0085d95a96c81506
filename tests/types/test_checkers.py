"""mypy and pyright find the mistakes of a user's program, and no others."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.once, pytest.mark.timeout(180)]

ROOT = Path(__file__).parent.parent.parent
PROGRAM = Path(__file__).parent / "program.py"

CHECKERS = {
    "mypy": (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=.mypy_cache/user"),
    "pyright": (sys.executable, "-m", "pyright", "--pythonpath", sys.executable),
}
ERROR = re.compile(r"program\.py:(\d+)(?::\d+)?(?: -)?:? error: (.*)")


@pytest.mark.parametrize("name", CHECKERS)
def test_checker_finds_what_is_wrong(name: str) -> None:
    said = subprocess.run([*CHECKERS[name], PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    found = {int(line): words for line, words in ERROR.findall(said.stdout)}
    lines = PROGRAM.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert {number: lines[number - 1] for number in wrong - found.keys()} == {}, "not found"
    assert {number: found[number] for number in found.keys() - wrong} == {}, "found, and not wrong"
