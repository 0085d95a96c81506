"""Promise: make test tries each value and each pair of values; make test-long each three values together."""

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.fixtures.combinations import Candidate, chosen
from tests.fixtures.libraries import CHOICE

pytestmark = pytest.mark.once

LOOPS = ("asyncio", "uvloop", "trio")


def every(**axes: tuple[object, ...]) -> list[Candidate]:
    return [
        Candidate(f"test{values}", library, frozenset({("library", library), *zip(axes, values, strict=True)}))
        for values in product(*axes.values())
        for library in ("old", "new")
    ]


@pytest.mark.parametrize("seed", ["a", "b", "c"])
@pytest.mark.parametrize(("together", "part"), [(2, 1 / 3), (3, 2 / 3)])
def test_all_values_together_are_covered_by_few(together: int, part: float, seed: str) -> None:
    candidates = every(anyio_backend=LOOPS, provider=("tcp", "shm", "udp"), size=(1, 2, 3, 4))
    found = chosen(candidates, seed, together)
    assert {values for each in found for values in each.targets(together)} == {
        values for each in candidates for values in each.targets(together)
    }
    assert len(found) <= len(candidates) * part


def test_the_choice_for_three_values_has_the_one_for_two() -> None:
    candidates = every(anyio_backend=LOOPS, provider=("tcp", "shm", "udp"), size=(1, 2, 3, 4))
    pairs = chosen(candidates, "x")
    assert chosen(candidates, "x", 3)[: len(pairs)] == pairs


def test_three_values_of_a_test_are_tried_together_on_one_library_at_least() -> None:
    candidates = every(anyio_backend=LOOPS, provider=("tcp", "shm"), size=(1, 2))
    found = {each.test for each in chosen(candidates, "x", 3)}
    assert found == {each.test for each in candidates}


def test_a_test_over_loops_alone_runs_on_each_loop_and_each_library() -> None:
    found = chosen(every(anyio_backend=LOOPS), "x")
    assert len(found) == 3
    values = {value for each in found for value in each.values}
    assert values == {("library", "old"), ("library", "new"), *(("anyio_backend", loop) for loop in LOOPS)}


def test_a_test_without_parameters_runs_on_each_library() -> None:
    assert len(chosen(every(), "x")) == 2


def test_the_choice_is_the_same_in_each_process() -> None:
    candidates = every(anyio_backend=LOOPS, provider=("tcp", "shm"))
    assert chosen(candidates, "x") == chosen(candidates[::-1], "x")


def test_a_value_that_a_library_lacks_is_taken_from_the_other() -> None:
    candidates = [
        each
        for each in every(anyio_backend=LOOPS, provider=("tcp", "sm2"))
        if {("provider", "sm2"), ("library", "old")} - each.values
    ]
    assert sum(("provider", "sm2") in each.values for each in chosen(candidates, "x")) == 3


def test_pytest_alone_says_that_it_cannot_choose() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "--combinations=pairs", __file__]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--combinations chooses among tests of several libraries: python -m tests" in ended.stderr


EACH_VALUE = """
import pytest

@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("provider", ["verbs", "rxm"])
@pytest.mark.parametrize("size", [1, 300, 5000])
def test_it(anyio_backend, provider, size):
    pass
"""


def test_two_runs_cover_each_value_whatever_their_loops(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(EACH_VALUE)
    collect = [sys.executable, "-m", "pytest", "-q", "--collect-only", "--combinations=values", f"--rootdir={tmp_path}"]
    runs = []
    for loop, chosen_library in (("asyncio", {}), ("trio", {CHOICE: "library"})):
        command = [*collect, "-p", "tests.fixtures.combinations", "-p", "no:xdist", "-k", loop, str(tmp_path)]
        variables = {name: value for name, value in os.environ.items() if name != CHOICE} | chosen_library
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        runs.append(set(re.findall(r"\[(.*)\]", ended.stdout)))
    first, second = runs
    assert first
    assert second
    assert len(first) + len(second) == 3
    values = {value for name in first | second for value in name.split("-")}
    assert values == {"1", "300", "5000", "verbs", "rxm", "asyncio", "trio"}
