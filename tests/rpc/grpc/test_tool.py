"""tools/grpc_aio_tests.py, on a sample of tests in the place of gRPC's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SAMPLE = """
import asyncio
import unittest

import grpc
from grpc.experimental import aio


class TestSample(unittest.IsolatedAsyncioTestCase):
    async def test_call(self):
        async def reverse(request, context):
            return request[::-1]

        server = aio.server()
        handlers = {"Reverse": grpc.unary_unary_rpc_method_handler(reverse)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("sample", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            self.assertEqual(await channel.unary_unary("/sample/Reverse")(b"abc"), b"cba")
        await server.stop(None)

    async def test_failure(self):
        self.fail("as it should")

    async def test_delegation(self):
        from grpc.aio import _channel

        _channel.Channel("127.0.0.1:1", (), None, None, None)

    @unittest.skip("on the real one, too")
    async def test_skipped(self):
        pass
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_outcome_of_each_test_is_reported(loop: str, tmp_path: Path) -> None:
    folder = tmp_path / "tests_aio" / "unit"
    folder.mkdir(parents=True)
    (folder / "sample_test.py").write_text(SAMPLE)
    report, table = tmp_path / "report.json", tmp_path / "table.md"
    tool = [sys.executable, str(ROOT / "tools" / "grpc_aio_tests.py"), str(tmp_path)]
    options = ["--loop", loop, "--json", str(report), "--markdown", str(table), "--output", str(tmp_path / "logs")]
    ended = subprocess.run([*tool, *options], capture_output=True, text=True, timeout=50, check=False)
    outcomes = {each["test"].rpartition("::")[2]: each["outcome"] for each in json.loads(report.read_text())}
    expected = {"test_call": "passed", "test_failure": "failed", "test_delegation": "failed", "test_skipped": "skipped"}
    assert outcomes == expected, ended.stdout
    assert ended.returncode == 1
    assert "| `unit/sample_test.py` | 2 | 4 |" in table.read_text()
