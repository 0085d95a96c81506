"""Run Dask's own tests on `fabric://` and on `tcp://`, and report a table: what passes on tcp must pass on the fabric.

python tools/dask_tests.py FOLDER [--python PROGRAM] [--output FOLDER] [--markdown FILE] [FILES...]

FOLDER holds the package `distributed` with its tests, and the `conftest.py` and `pyproject.toml` of its repository.
They are not part of this project: CONTRIBUTING.md describes how to get them. PROGRAM is a Python with aiofabric, the
packages that Dask needs, and pytest-timeout.

Each file runs in two processes, one after the other. In the first one, `fabric` is the scheme of all addresses that
name none. `dask_tests.toml` lists the tests that name tcp, with the reason. They run, too. The exit code is 1 if any
other test passes on tcp and not on the fabric.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Sequence

LIST = Path(__file__).with_suffix(".toml")
FILES = ["comm/tests/test_comms.py"] + [
    f"tests/test_{name}.py"
    for name in (
        "core",
        "client",
        "scheduler",
        "worker",
        "nanny",
        "failed_workers",
        "actor",
        "batched",
        "variable",
        "queues",
        "steal",
        "spill",
    )
]
FILE_TIMEOUT = 1800  # seconds for the process of one file
TEST_TIMEOUT = 90  # seconds for one test
GOOD = ("passed", "skipped")  # Dask's own marks for skipping and expected failures count as they do on tcp


class Compared(NamedTuple):
    """The tests of one file: their outcomes over the fabric, and over tcp."""

    file: str
    fabric: dict[str, str]
    tcp: dict[str, str]
    named: frozenset[str]
    """Tests that name tcp, so that they cannot pass."""

    def worse(self) -> list[str]:
        """The tests that pass on tcp and not on the fabric, without those that name tcp."""
        return [
            test
            for test, outcome in self.tcp.items()
            if outcome in GOOD and self.fabric.get(test) not in GOOD and test not in self.named
        ]

    def row(self) -> str:
        own, theirs = (sum(each == "passed" for each in side.values()) for side in (self.fabric, self.tcp))
        names = sum(self.fabric.get(test) not in GOOD for test in self.named & self.tcp.keys())
        return f"| `{self.file}` | {own} | {theirs} | {names or ''} |"


def outcomes(report: Path) -> dict[str, str]:
    """The outcome of each test in a JUnit report; parameters are part of the name."""
    if not report.exists():
        return {}
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        if found.get(name := case.attrib["name"]) != "failed":  # classes may share a name
            found[name] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
    return found


def run_file(arguments: argparse.Namespace, file: str, scheme: str) -> dict[str, str]:
    """Run one file in a process of its own."""
    stem = arguments.output / f"{scheme}-{file.replace('/', '-')}"
    report, log = stem.with_suffix(".xml"), stem.with_suffix(".log")
    report.unlink(missing_ok=True)
    options = ["-p", "no:cacheprovider", "--timeout", str(TEST_TIMEOUT), "-o", "timeout_method=signal"]
    command = [arguments.python, "-m", "pytest", *options, "--color=no", f"--junitxml={report}", f"distributed/{file}"]
    environment = os.environ | {"DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME": scheme}
    with log.open("w") as output:
        try:
            subprocess.run(
                command,
                cwd=arguments.folder,
                timeout=FILE_TIMEOUT,
                stdout=output,
                stderr=output,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"{file} on {scheme} took longer than {FILE_TIMEOUT} s", flush=True)
    return outcomes(report)


def named() -> dict[str, frozenset[str]]:
    """The tests of each file that name tcp."""
    groups = tomllib.loads(LIST.read_text())
    files: dict[str, frozenset[str]] = {}
    for group in groups.values():
        for name in group["tests"]:
            file, _, test = name.partition("::")
            files[file] = files.get(file, frozenset()) | {test}
    return files


def markdown(results: Sequence[Compared]) -> str:
    """The table of the documentation."""
    head = [
        "| file | passed on fabric | passed on tcp | can pass on tcp only |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *(result.row() for result in results)]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--output", type=lambda text: Path(text).resolve(), default="build/dask-tests")
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_intermixed_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    names, results = named(), []
    for file in arguments.files:
        own, theirs = (run_file(arguments, file, scheme) for scheme in ("fabric", "tcp"))
        results.append(Compared(file, own, theirs, names.get(file, frozenset())))
        print(results[-1].row(), *(f"passes on tcp only: {test}" for test in results[-1].worse()), sep="\n", flush=True)
        if arguments.markdown:
            arguments.markdown.write_text(markdown(results))
    missing = [result.file for result in results if not result.tcp or not result.fabric]
    if missing:
        print(f"no outcomes of {', '.join(missing)}: see {arguments.output}")
    return int(bool(missing) or any(result.worse() for result in results))


if __name__ == "__main__":
    sys.exit(main())
