"""Where the tests of the statements that hold have run: on which providers, with which versions of libfabric."""

import ast
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

from tests.coverage.names import HERE
from tests.coverage.statements import STATEMENTS, State
from tests.fixtures.libraries import CHOICE, libraries

ROOT = HERE.parent.parent
RAN = HERE / "ran.json"

Ran: TypeAlias = dict[str, dict[str, list[str]]]
"""Version of libfabric: test: the checksum of its source, and what ``--record-runs`` noted."""

_SHORT = {"tcp;ofi_rxm": "rxm", "udp;ofi_rxd": "rxd"}
_VERSION = "import aiofabric; print(aiofabric.library_version())"


def named_tests() -> list[str]:
    """The tests of the statements that hold."""
    return sorted({each.node for each in STATEMENTS if each.state is State.HOLDS and each.test})


@cache
def sources(file: str) -> dict[str, str]:
    """The source of each test in a file, with its decorators."""
    text = (ROOT / file).read_text() if (ROOT / file).exists() else ""
    lines, found = text.splitlines(), {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(each.lineno for each in (node, *node.decorator_list))
            found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found


def checksum(test: str) -> str:
    """Changes with the source of the test, which may run elsewhere then."""
    file, _, name = test.partition("::")
    return f"{crc32(sources(file).get(name, '').encode()):08x}"


def ran_on(test: str, ran: Ran) -> str:
    """The column of the page: ``tcp, shm; both. rxm; 2.5``."""
    versions = {version: set(seen[test][1:]) for version, seen in ran.items() if test in seen}
    opened = {
        name: tuple(v for v, names in versions.items() if name in names) for name in set().union(*versions.values())
    }
    asked = opened.pop("getinfo", None)
    if not opened:
        opened = {"getinfo": asked} if asked else {"-": tuple(versions)}
    places: dict[tuple[str, ...], list[str]] = {}
    for name, where in sorted(opened.items(), key=lambda each: (-len(each[1]), each)):
        places.setdefault(where, []).append(_SHORT.get(name, name))
    return ". ".join(
        f"{', '.join(names)}; {'both' if len(where) == len(ran) else ', '.join(where)}"
        for where, names in places.items()
    )


def run(*, again: bool) -> None:
    """Run the tests that have changed, or with ``again`` all, on each libfabric; write down where they passed."""
    ran: Ran = json.loads(RAN.read_text())
    for path in libraries().values():
        variables = os.environ | ({CHOICE: path} if path else {})
        asked = subprocess.run([sys.executable, "-c", _VERSION], env=variables, stdout=subprocess.PIPE, check=True)
        version = asked.stdout.decode().strip()
        seen = {} if again else ran.get(version, {})
        kept = {test: seen[test] for test in named_tests() if test in seen and seen[test][0] == checksum(test)}
        if missing := [test for test in named_tests() if test not in kept]:
            kept |= {test: [checksum(test), *found] for test, found in _run(missing, variables).items()}
        ran[version] = dict(sorted(kept.items()))
    RAN.write_text(json.dumps(ran, indent=1) + "\n")


def _run(tests: list[str], variables: dict[str, str]) -> dict[str, list[str]]:
    with tempfile.NamedTemporaryFile() as file:
        options = ["-q", "-n", "0", "-k", "not uvloop and not trio", f"--record-runs={file.name}"]
        ended = subprocess.run([sys.executable, "-m", "pytest", *options, *tests], env=variables)
        if ended.returncode:
            sys.exit("a test failed: the page stays as it is")
        noted: dict[str, list[str]] = json.loads(Path(file.name).read_text())
    return noted
