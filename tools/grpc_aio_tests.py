"""Run gRPC's own asyncio tests on `aiofabric.rpc.grpc`, and report a table: file, test, result.

python tools/grpc_aio_tests.py FOLDER [--python PROGRAM] [--loop uvloop] [--json FILE] [--markdown FILE] [FILES...]

FOLDER holds `tests_aio`, `tests` and the generated `src/proto` of gRPC's repository. They are not part of this project:
CONTRIBUTING.md describes how to install them. PROGRAM is a Python with pytest, pytest-timeout, and the packages
that those tests import.

Each file runs in a process of its own. There, `aiofabric.rpc.grpc` stands in for `grpc.aio` and for
`grpc.experimental.aio`. The channels, servers and calls of the real `grpc.aio` raise, so no test passes by delegation.
With ``--real`` nothing is replaced: that run is the reference.

`grpc_aio_tests.toml` lists the tests that need more than the public interface, with the reason. They run, too. The exit
code is 1 if any other test did not pass.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_suffix(".toml")
FOLDERS = ("unit", "health_check", "reflection", "status", "channelz", "interop")
FILE_TIMEOUT = 120  # seconds for the process of one file
TEST_TIMEOUT = 15  # seconds for one test
GOOD = ("passed", "skipped")  # gRPC's own marks for skipping and expected failures count as they do on the real one


class Result(NamedTuple):
    """One test of gRPC's."""

    file: str
    test: str
    outcome: str
    beyond: str = ""  # the reason why the test needs more than the public interface
    remark: str = ""  # the last line of a failure


def test_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """All test files of the folder, or those whose path ends with one of the names."""
    found = [path for kind in FOLDERS for path in sorted((folder / "tests_aio" / kind).glob("*_test.py"))]
    return [path for path in found if not names or any(str(path).endswith(name) for name in names)]


def reasons() -> dict[str, str]:
    """The tests that need more than the public interface: `file`, or `file::Class::test`, and the reason."""
    groups = tomllib.loads(LIST.read_text())
    return {name: group["reason"] for group in groups.values() for name in group["tests"]}


def reason_for(file: str, test: str, known: dict[str, str]) -> str:
    by_class = test.rpartition("::")[0]
    return known.get(f"{file}::{test}") or known.get(f"{file}::{by_class}") or known.get(file) or ""


# --- the process of one file ------------------------------------------------------------------------------------------


def forbid_delegation() -> None:
    """Make the real `grpc.aio`'s channels, servers and calls raise."""
    from grpc._cython import cygrpc
    from grpc.aio import _call, _channel, _interceptor, _server

    def refuse(*_arguments: object, **_keywords: object) -> NoReturn:
        raise RuntimeError("the real grpc.aio must not be used here")

    for module, names in (
        (_channel, ("Channel", "_BaseMultiCallable")),
        (_server, ("Server",)),
        (_call, ("Call",)),
        (_interceptor, ("InterceptedCall",)),
    ):
        for name in names:
            getattr(module, name).__init__ = refuse
    for name in ("AioChannel", "AioServer"):
        setattr(cygrpc, name, refuse)


class Recorder:
    """A plugin of pytest that writes the outcome of each test as a line of JSON when it is known."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", buffering=1)  # noqa: SIM115 - it is open until the process ends
        self._outcomes: dict[str, tuple[str, str]] = {}

    def _write(self, test: str, outcome: str, remark: str = "") -> None:
        self._file.write(json.dumps([test, outcome, remark]) + "\n")

    @staticmethod
    def pytest_collection_modifyitems(items: list[Any]) -> None:
        import unittest

        # One of gRPC's helper functions has a name that pytest takes for a test's.
        items[:] = [item for item in items if isinstance(getattr(item, "cls", None), type)]
        items[:] = [item for item in items if issubclass(item.cls, unittest.TestCase)]

    def pytest_collection_finish(self, session: Any) -> None:
        for item in session.items:
            self._write(item.nodeid.partition("::")[2], "collected")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcomes[nodeid] = ("passed", "")

    def pytest_runtest_logreport(self, report: Any) -> None:
        # A failed subtest, set-up or tear-down is a failed test.
        if report.failed:
            lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")] or [""]
            self._outcomes[report.nodeid] = ("failed", lines[0][1:].strip()[:200])
        elif report.skipped and self._outcomes[report.nodeid][0] == "passed":
            self._outcomes[report.nodeid] = ("skipped", "")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid.partition("::")[2], *self._outcomes[nodeid])


def run_here(folder: Path, file: Path, record: str, *, real: bool, loop: str, extra: Sequence[str]) -> int:
    """Run one file in this process."""
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    if loop == "uvloop":
        import uvloop

        uvloop.install()
    if not real:
        from aiofabric.rpc.grpc.shim import stand_in

        forbid_delegation()
        stand_in()
    import pytest

    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "-c",
        os.devnull,
        "-o",
        f"timeout={TEST_TIMEOUT}",
    ]
    return int(pytest.main([*options, *extra, str(file)], plugins=[Recorder(record)]))


# --- the process that starts the others -------------------------------------------------------------------------------


def run_file(arguments: argparse.Namespace, file: Path, records: Path) -> list[Result]:
    """Run one file in a process of its own."""
    name = str(file.relative_to(arguments.folder / "tests_aio"))
    record = records / (name.replace("/", "-") + ".jsonl")
    log = record.with_suffix(".log")
    record.unlink(missing_ok=True)
    command = [arguments.python, __file__, str(arguments.folder), str(file), "--record", str(record)]
    command += ["--loop", arguments.loop, *(["--real"] if arguments.real else [])]
    if arguments.only:
        command += ["--only", arguments.only]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    with log.open("w") as output:
        try:
            ended = subprocess.run(
                command, timeout=FILE_TIMEOUT, stdout=output, stderr=output, env=environment, check=False
            )
            how = f"the process ended with {ended.returncode}"
        except subprocess.TimeoutExpired:
            how = f"the process took longer than {FILE_TIMEOUT} s"
    outcomes: dict[str, tuple[str, str]] = {}
    for line in record.read_text().splitlines() if record.exists() else ():
        test, outcome, remark = json.loads(line)
        outcomes[test] = (outcome, remark)
    if not outcomes and not arguments.only:
        outcomes["(all)"] = ("failed", f"nothing was collected; see {log}")
    known = reasons()
    return [
        Result(
            name,
            test,
            *(
                ("failed", reason_for(name, test, known), how)
                if outcome == "collected"
                else (outcome, reason_for(name, test, known), remark)
            ),
        )
        for test, (outcome, remark) in outcomes.items()
    ]


def counts(results: Iterable[Result]) -> str:
    results = [*results]
    public = [result for result in results if not result.beyond]
    good = sum(result.outcome in GOOD for result in public)
    more = sum(result.outcome in GOOD for result in results if result.beyond)
    return f"{good} of {len(public)} passed; beyond the public interface {more} of {len(results) - len(public)}"


def by_file(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    for file in dict.fromkeys(result.file for result in results):
        yield file, [result for result in results if result.file == file]


def markdown(results: Sequence[Result]) -> str:
    """The table of the documentation."""
    lines = ["| file | passed | of | beyond the public interface | not passed |", "| --- | --- | --- | --- | --- |"]
    for file, own in by_file(results):
        public = [result for result in own if not result.beyond]
        good = sum(result.outcome in GOOD for result in public)
        bad = ", ".join(f"`{result.test.rpartition('::')[2]}`" for result in public if result.outcome not in GOOD)
        lines.append(f"| `{file}` | {good} | {len(public)} | {len(own) - len(public) or ''} | {bad} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("files", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--real", action="store_true", help="run on the real grpc.aio")
    parser.add_argument("--only", default="", help="pytest's -k")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "grpc-aio-tests", help="folder of the logs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--record", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.record:
        extra = ["-k", arguments.only] if arguments.only else []
        file = Path(arguments.files[0])
        return run_here(arguments.folder, file, arguments.record, real=arguments.real, loop=arguments.loop, extra=extra)

    records = arguments.output
    records.mkdir(parents=True, exist_ok=True)
    files = test_files(arguments.folder, arguments.files)
    results: list[Result] = []
    start = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for own in pool.map(lambda file: run_file(arguments, file, records), files):
            results += own
            if own:
                print(f"{own[0].file}: {counts(own)}", flush=True)
            for result in own:
                if result.outcome not in GOOD and not result.beyond:
                    print(f"    {result.outcome} {result.test}: {result.remark}", flush=True)
    print(f"{len(results)} tests in {time.monotonic() - start:.0f} s: {counts(results)}. Output: {records}")
    if arguments.json:
        arguments.json.write_text(json.dumps([result._asdict() for result in results], indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(results))
    return int(any(result.outcome not in GOOD and not result.beyond for result in results) or not results)


if __name__ == "__main__":
    sys.exit(main())
