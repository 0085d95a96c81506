"""CPython's own tests of streams, TLS, buffered protocols and servers pass with our transport.

Each module runs twice: with the stock loop, and with the loop's transport class replaced by ours over a kernel-socket
channel. Every test that passes in the first run must pass in the second.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MODULES = (
    "test_streams",
    pytest.param("test_ssl", marks=pytest.mark.long),
    pytest.param("test_sslproto", marks=pytest.mark.long),
    "test_buffered_proto",
    "test_server",
)


def has_suite() -> bool:
    try:
        return importlib.util.find_spec("test.test_asyncio.test_streams") is not None
    except ModuleNotFoundError:
        return False


def run(transports: str, module: str) -> dict[str, Any]:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "default",
            str(Path(__file__).with_name("cpython_suite.py")),
            transports,
            module,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.once
@pytest.mark.skipif(
    not has_suite(),
    reason="this interpreter comes without its test package (Debian: apt install libpython3.11-testsuite)",
)
@pytest.mark.timeout(360)
@pytest.mark.parametrize("module", MODULES)
def test_what_passes_on_the_stock_transport_passes_on_ours(module: str) -> None:
    module = f"test.test_asyncio.{module}"
    stock, ours = run("stock", module), run("ours", module)
    assert stock["transports"] == 0
    assert ours["transports"] > 0
    passing = {name for name, outcome in stock["outcomes"].items() if outcome == "passed"}
    assert passing
    assert {name: ours["outcomes"].get(name) for name in passing if ours["outcomes"].get(name) != "passed"} == {}
