"""Put small errors into the code, one at a time. A test must notice each: ``make mutate ARGS="aiofabric/cq"``.

cosmic-ray makes the errors in Python: another comparison, a negated condition, ``break`` for ``continue``, another
exception. In addition, calls whose result is not used are removed. The errors in C are listed in `tools.mutations`.
``--statements`` makes the edits of `tests.coverage.mutations` instead: each takes the behaviour of a statement of
docs/coverage.md out of aiofabric, and the statement's own test must notice.

Everything happens in a copy of the tree. One run of the tests on asyncio and the system's libfabric records which test
executes which line. All these tests must pass before the first error: otherwise a test that always fails would seem to
notice each one. Some tests that execute an error's line run first, then the test files of its room, and finally the
same files on all loops and libraries. Errors that no test noticed are printed as a diff.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import os
import random
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.coverage.mutations import MUTATIONS
from tests.coverage.statements import STATEMENTS, State
from tools.mutations import C_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.coverage.mutations import Edits

ROOT = Path(__file__).parent.parent
NOT_OURS = shutil.ignore_patterns(".git", "build", "dist", ".*_cache", ".hypothesis", "__pycache__")
TIMEOUT = 300  # seconds for a run of tests: an error may make it wait for ever
SHM = Path("/dev/shm")
LOG = "tests.log"  # the output of the last run, in the copy
MOST = 60  # tests that run first for one error
BUILD = (sys.executable, "setup.py", "-q", "build_ext", "--inplace")
QUICK = ("pytest", "-q", "-x", "-n", "2", "-k", "not uvloop and not trio")

# One error for each place. Left out is what is mostly none (`X | None` in annotations, tuning constants), and what any
# test would notice (`*` for `+`).
OPERATORS = (
    "core/AddNot",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/ExceptionReplacer",
    "core/ZeroIterationForLoop",
    "core/ReplaceUnaryOperator_Delete_Not",
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "BitAnd_BitOr", "Mod_Add")),
    *(
        f"core/ReplaceComparisonOperator_{pair}"
        for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")
    ),
)

OF_CALLS = ["tests/rpc/protocol", "tests/rpc/grpc", "tests/rpc/test_tasks.py", "tests/rpc/test_calls.py"]

OF_ALL = ["tests/test_values_are_immutable.py"]  # quick, and about modules of several packages

TESTS = {  # the most specific one counts
    "aiofabric/_core": [
        "tests/streams/test_lengths.py",
        "tests/cq",
        "tests/transport/messages",
        "tests/transport/connected",
    ],
    "aiofabric/_core/rpc": OF_CALLS,
    "aiofabric/_core/rpc/frame_output": [*OF_CALLS, "tests/rpc/test_polls_of_a_server.py"],
    "aiofabric/_ffi": ["tests/_ffi"],
    "aiofabric/aio": ["tests/aio/test_transport.py", "tests/aio/test_server.py", "tests/aio/test_tls.py"],
    "aiofabric/channel": ["tests/channel", "tests/streams", "tests/aio/test_transport.py"],
    "aiofabric/cm": ["tests/cm", "tests/transport/connected", "tests/transport/opening"],
    "aiofabric/cq": ["tests/cq", "tests/state", "tests/transport/messages", "tests/transport/connected"],
    "aiofabric/streams": ["tests/streams", "tests/channel"],
    "aiofabric/transport": ["tests/transport"],
    **{
        f"aiofabric/transport/{room}": [f"tests/transport/{room}", *more]
        for room, more in {
            "connected": ["tests/cm"],
            "connectionless": [
                "tests/transport/tagged",
                "tests/transport/messages",
                "tests/transport/connectionless/test_shm_same_process.py",
            ],
            "messages": ["tests/transport/connected", "tests/transport/connectionless"],
            "opening": [
                "tests/transport/messages",
                "tests/transport/connectionless",
                "tests/transport/test_second_paths.py",
            ],
            "rma": [],
            "tagged": ["tests/transport/connectionless"],
            "virtual": [
                "tests/transport/connected",
                "tests/transport/rma",
                "tests/cm",
                "tests/transport/test_second_paths.py",
                "tests/test_interrupted_wakeups.py",
            ],
            "workarounds": ["tests/adapters"],
        }.items()
    },
}


class Mutation(NamedTuple):
    """One error: the file, what it is called, and how often that occurs before it."""

    file: Path
    operator: str
    occurrence: int


def statements(source: str) -> list[tuple[int, int, int]]:
    """Calls that stand by themselves in a function: first and last line, and column."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
                    place = (node.lineno, node.end_lineno or node.lineno, node.col_offset)
                    if "log." not in ast.unparse(node) and place not in found:
                        found.append(place)
    return found


def mutations(files: list[Path]) -> Iterator[Mutation]:
    """All errors that can be put into some files of Python."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    for file in files:
        source = file.read_text()
        yield from (Mutation(file, "left out", number) for number in range(len(statements(source))))
        nodes = list(ast_nodes(get_ast(source)))
        for name in OPERATORS:
            operator = plugins.get_operator(name)()
            count = sum(1 for node in nodes for _ in operator.mutation_positions(node))
            yield from (Mutation(file, name, number) for number in range(count))


def mutated(mutation: Mutation) -> str:
    """The file's text with the error in it."""
    source = mutation.file.read_text()
    if mutation.operator == "left out":
        first, last, column = statements(source)[mutation.occurrence]
        lines = source.splitlines(keepends=True)
        return "".join([*lines[: first - 1], " " * column + "pass\n", *lines[last:]])
    from cosmic_ray import plugins
    from cosmic_ray.mutating import mutate_code

    text: str | None = mutate_code(source, plugins.get_operator(mutation.operator)(), mutation.occurrence)
    assert text is not None
    return text


def tests_of(file: Path) -> list[str]:
    """The test files and folders that must notice an error in a file."""
    return [*TESTS[max((prefix for prefix in TESTS if file.as_posix().startswith(prefix)), key=len)], *OF_ALL]


class Executed:
    """Which tests execute which line of a copy of the tree, in the test's own process."""

    def __init__(self, copy: Path, tests: list[str]) -> None:
        from coverage import CoverageData

        self.copy = copy
        data = ("--cov=aiofabric", "--cov-context=test", "--cov-report=", "--timeout=200")
        if not run(copy, *QUICK, *data, *tests, timeout=3600):
            raise SystemExit(f"without any error, these tests do not all pass; see {copy / LOG}")
        self._data = CoverageData(str(copy / ".coverage"))
        self._data.read()

    def tests(self, file: Path, line: int) -> list[str]:
        """At most `MOST` tests that execute a line, or the last line before it that a test executes."""
        contexts = self._data.contexts_by_lineno(str(file))
        line = max((each for each in contexts if each <= line), default=line)
        by_file: dict[str, list[str]] = {}
        for context in sorted(contexts.get(line, ())):
            if context:
                node = context.rpartition("|")[0]
                by_file.setdefault(node.partition("::")[0], []).append(node)
        for nodes in by_file.values():
            random.Random(0).shuffle(nodes)
        turns = itertools.zip_longest(*by_file.values())
        return [node for turn in turns for node in turn if node is not None][:MOST]


def run(copy: Path, *command: str, timeout: float = TIMEOUT) -> bool:
    """Whether tests pass in the copy; tests that do not end have noticed."""
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    with (
        (copy / LOG).open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=copy,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            return process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return False


def survives(copy: Path, tests: list[str], first: list[str], *, quick: bool) -> bool:
    if first:
        listed = copy / "first.txt"
        listed.write_text("\n".join(first))
        if not run(copy, *QUICK, "--timeout=30", f"@{listed}"):
            return False
    if not run(copy, *QUICK, "--dist", "loadfile", *tests):
        return False
    return quick or run(copy, "tests", "--combinations=pairs", "-q", "-x", *tests)


def require_passing(copy: Path, all_tests: Iterable[list[str]], *, quick: bool) -> None:
    """End the program if a test fails on the tree without an error."""
    for tests in {tuple(each): each for each in all_tests}.values():
        if not survives(copy, tests, [], quick=quick):
            raise SystemExit(f"without any error, not all of {' '.join(tests)} pass; see {copy / LOG}")
        print(f"without an error, all pass: {' '.join(tests)}", flush=True)


def in_python(copy: Path, names: list[str], count: int, seed: int, *, quick: bool) -> list[str]:
    """Try errors in Python; return the diffs of those that nothing noticed."""
    folders = [copy / name for name in names]
    files = [file for folder in folders for file in (sorted(folder.rglob("*.py")) if folder.is_dir() else [folder])]
    chosen = random.Random(seed).sample(every := sorted(mutations(files)), min(count, len(every)))
    if not chosen:
        return []
    if not quick:  # the run that records the executed lines is a quick one
        require_passing(copy, (tests_of(each.file.relative_to(copy)) for each in chosen), quick=False)
    executed = Executed(copy, sorted({test for each in chosen for test in tests_of(each.file.relative_to(copy))}))
    left = []
    for number, mutation in enumerate(chosen, 1):
        here = mutation.file.relative_to(copy)
        own, other = mutation.file.read_text(), mutated(mutation)
        before, after = own.splitlines(True), other.splitlines(True)
        diff = "".join(difflib.unified_diff(before, after, str(here), str(here), n=1))
        line = next(place for place, (old, new) in enumerate(zip(before, after, strict=False), 1) if old != new)
        if "TYPE_CHECKING" in before[line - 1]:  # imports for types have no effect at run time
            print(f"{number}/{len(chosen)} left out {here} {mutation.operator}", flush=True)
            continue
        mutation.file.write_text(other)
        try:
            missed = survives(copy, tests_of(here), executed.tests(mutation.file, line), quick=quick)
        finally:
            mutation.file.write_text(own)
        print(f"{number}/{len(chosen)} {'MISSED' if missed else 'noticed'} {here} {mutation.operator}", flush=True)
        if missed:
            print(diff, flush=True)
            left.append(diff)
    return left


def in_c(copy: Path, names: list[str], *, quick: bool) -> list[str]:
    """Try the errors of `tools.mutations` in some files; return those that nothing noticed."""
    left = []
    core = Path("aiofabric/_core")
    chosen = [error for error in C_ERRORS if (core / error[0]).as_posix().startswith(tuple(names))]
    require_passing(copy, (tests_of(core / name) for name, _, _ in chosen), quick=quick)
    for name, old, new in chosen:
        with edited(copy, ((f"_core/{name}", old, new),)):
            missed = survives(copy, tests_of(core / name), [], quick=quick)
        print(f"{'MISSED' if missed else 'noticed'} {name}: {new.strip()}", flush=True)
        left += [f"{name}: {new}"] if missed else []
    subprocess.run(BUILD, cwd=copy, check=True)
    return left


def in_statements(copy: Path) -> list[str]:
    """Take out the behaviour of each statement that holds; return the statements whose test did not notice."""
    tests = {each.text: each.node for each in STATEMENTS if each.state is State.HOLDS}
    if not run(copy, *QUICK, *sorted({*tests.values()}), timeout=1200):
        raise SystemExit(f"without an edit, the tests of the statements do not all pass; see {copy / LOG}")
    left = []
    for text, edits in sorted(MUTATIONS.items(), key=lambda item: is_native(item[1])):
        with edited(copy, edits):
            missed = run(copy, *QUICK, "-n", "0", "--timeout=30", tests[text])
        print(f"{'MISSED' if missed else 'noticed'} {text}", flush=True)
        left += [text] if missed else []
    return left


@contextmanager
def edited(copy: Path, edits: Edits) -> Iterator[None]:
    """Replace texts in the copy's files of aiofabric; afterwards they are as before, but C is not built again."""
    own: dict[Path, str] = {}
    try:
        for name, old, new in edits:
            file = copy / "aiofabric" / name
            text = file.read_text()
            own.setdefault(file, text)
            assert text.count(old) == 1, f"{name}: {old!r} is there {text.count(old)} times"
            file.write_text(text.replace(old, new))
        if is_native(edits):
            subprocess.run(BUILD, cwd=copy, check=True)
        yield
    finally:
        for file, text in own.items():
            file.write_text(text)


def is_native(edits: Edits) -> bool:
    """Whether an edit is in C."""
    return any(name.endswith(".c") for name, _, _ in edits)


def changed(since: str) -> list[str]:
    """The modules that changed since a commit."""
    listed = subprocess.run(["git", "diff", "--name-only", since], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split() if name.startswith(tuple(TESTS)) and (ROOT / name).exists()]
    return [name for name in names if name.endswith((".py", ".c"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="folders or modules; otherwise those that changed")
    parser.add_argument("--since", default="HEAD~1", help="the commit since which they changed")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="asyncio and one libfabric only: may miss more")
    parser.add_argument("--statements", action="store_true", help="only the edits for the statements of coverage.md")
    wishes = parser.parse_args()
    names = wishes.names or changed(wishes.since)
    copy = ROOT / "build" / "mutate"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT, copy, ignore=lambda folder, names: {*NOT_OURS(folder, names), ".venv"})
    before = set(SHM.iterdir())
    if wishes.statements:
        left = in_statements(copy)
    else:
        python = [name for name in names if not name.endswith(".c")]
        left = in_python(copy, python, wishes.count, wishes.seed, quick=wishes.quick)
        if any(name.startswith("aiofabric/_core") for name in names):
            left += in_c(copy, names, quick=wishes.quick)
    print(f"{len(left)} were not noticed")
    if files := sorted(set(SHM.iterdir()) - before):
        # Beside a file of libfabric's own naming, no orphaned entry is released: later tests would fail.
        print("remove these files, which tests with an error in the code left:", *files)
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
