"""Hazard: an argument that the native core did not expect crashes the interpreter. Each seed runs in a child."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiofabric._core import ASSERTIONS

SEEDS = int(os.environ.get("FUZZ_EXAMPLES", "100")) // 25
CALLS = 8000

pytestmark = [
    pytest.mark.once,
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(ASSERTIONS), reason="what is called here violates the invariants that this build asserts"),
]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_argument_is_taken_or_refused(seed: int, tmp_path: Path) -> None:
    log = tmp_path / "last call"
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.core_calls", str(seed), str(CALLS), str(log)]
    ended = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, f"{log.read_text().strip()}\n{ended.stderr[-2000:]}"
