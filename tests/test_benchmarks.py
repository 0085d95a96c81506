"""The benchmark runs, and reports truly which parts it could not run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import bars, roster
from benchmarks.__main__ import run
from benchmarks.cores import Cores
from benchmarks.measures import COLUMNS
from benchmarks.report import render
from benchmarks.results import Results
from benchmarks.slower import slower
from benchmarks.targets import TARGETS

ROOT = Path(__file__).parent.parent


@pytest.mark.alone
def test_benchmark_measures_pairs_of_processes(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--measure", "ping", "--json", str(report)]
    rows = ["aiofabric on asyncio", "asyncio streams"]
    only = [argument for row in rows for argument in ("--only", row)]
    output = subprocess.run([*command, *only], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    found = json.loads(report.read_text())
    assert found["failed"] == found["absent"] == {}
    assert all(found["medians"][row]["round trip"] > 0 for row in rows)
    assert all(row in output for row in rows)


@pytest.mark.alone
@pytest.mark.once
def test_benchmark_of_pipelines_runs() -> None:
    command = [sys.executable, "-m", "benchmarks.pipelines", "--quick"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=60).stdout
    assert "1 MiB, items a second" in output
    assert output.count("GB/s") >= 6  # at least three contenders, two sizes


@pytest.mark.alone
@pytest.mark.once
def test_benchmark_of_arrow_runs_and_copies_no_column() -> None:
    command = [sys.executable, "-m", "benchmarks.arrow", "--quick"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=60).stdout
    copied = {line[:30].strip(): float(line.split()[-2]) for line in output.splitlines() if "GB/s" in line}
    assert len(copied) == 6
    assert all(copied[row] < 1 for row in copied if "tagged" not in row)  # MB, of 134


@pytest.mark.long
@pytest.mark.once
def test_benchmark_of_integrations_runs() -> None:
    rows = ["httpx to uvicorn, 100 MB up", "grpclib, 32 at a time", "Dask, 5,000 tasks"]
    command = [sys.executable, "-m", "benchmarks.integrations", "--quick"]
    only = [argument for row in rows for argument in ("--only", row)]
    output = subprocess.run([*command, *only], check=True, capture_output=True, text=True, cwd=ROOT, timeout=120).stdout
    for row in rows:
        (line,) = (line for line in output.splitlines() if line.startswith(row))
        assert line.count("(") == 2  # the ratios of tcp and shm to sockets


def test_benchmark_names_what_is_absent() -> None:
    row = roster.python("a peer", "streams", "asyncio", ("ping",), needs="a_package_that_nobody_has")
    assert row.absent() == "a_package_that_nobody_has not installed"


def test_benchmark_says_why_a_contender_failed() -> None:
    row = roster.python("a peer", "no_such_contender", "asyncio", ("ping",))
    results = Results(rounds=1)
    run(row, ["ping"], 0.01, results, Cores())
    assert "no_such_contender" in results.failed["a peer"]


def test_benchmark_says_which_signal_ended_a_contender() -> None:
    row = roster.Row("a peer", ("sh", "-c", "kill -KILL $$"), ("ping",), absent=lambda: None)
    results = Results(rounds=1)
    run(row, ["ping"], 0.01, results, Cores())
    assert results.failed["a peer"] == "ended by SIGKILL"


def test_benchmark_targets_name_columns_that_exist() -> None:
    for target in TARGETS:
        assert {column for _, column in filter(None, (target.cell, target.to))} <= COLUMNS.keys()


def test_benchmark_leaves_out_what_was_measured_while_the_cores_were_far_apart() -> None:
    results = Results(rounds=1)
    for seconds, apart in ((1.0, 50.0), (3.0, 300.0), (3.0, 300.0)):
        results.add("near and far", "ping", {"count": 1, "seconds": seconds, "apart": apart})
    results.add("far only", "ping", {"count": 1, "seconds": 3.0, "apart": 300.0})
    results.add("unknown", "ping", {"count": 1, "seconds": 2.0})
    assert [results.value(row, "round trip") for row in results.samples] == [1e6, 3e6, 2e6]
    assert "50 ns from one core to the other and back. 3 of 4 samples" in render(results)


def test_benchmark_does_not_take_a_moment_for_the_rule() -> None:
    results = Results(rounds=1)
    for apart in (33.0, *[105.0] * 20):
        results.add("a row", "ping", {"count": 1, "seconds": apart, "apart": apart})
    assert results.value("a row", "round trip") == 105e6
    assert "105 ns from one core to the other and back. 0 of 21 samples" in render(results)


def test_benchmark_knows_how_far_apart_the_cores_are() -> None:
    with Cores() as cores:
        if cores.process is None:
            pytest.skip("no C compiler, or only one core")
        before = len(cores.found)
        assert cores.distance() > 0
        assert len(cores.found) == before + 1


def test_the_report_says_where_sockets_are_faster() -> None:
    results = Results(1)
    for row, seconds in (("FabricStream on uvloop", 2.0), ("uvloop streams", 1.0), ("uvloop Protocol", 1.0)):
        for measure in ("ping", "ping/4194304"):
            results.add(row, measure, {"count": 1, "seconds": seconds, "cpu": 1})
        results.add(row, "rate", {"count": 1, "seconds": 1.0})
        results.add(row, "flood/1024", {"count": 1, "seconds": seconds})
    told = "round trip 0.50, round trip of 4 MiB 0.50, one way of 1 KiB 0.50."
    assert list(slower(results)) == [f"FabricStream on uvloop beside uvloop streams: {told}"]


def test_the_picture_of_the_readme_shows_the_figures_of_the_page() -> None:
    page = (ROOT / "docs/performance.md").read_text()
    assert bars.round_trips(page).keys() == bars.CONTENDERS.keys()
    assert bars.drawn(page) == (ROOT / "docs/round-trips.svg").read_text()
