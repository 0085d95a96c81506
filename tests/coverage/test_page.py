"""docs/coverage.md agrees with the names of the pages, with aiofabric and with the tests."""

import ast
import json
from functools import cache, reduce
from typing import Any

import pytest

import aiofabric
from tests.coverage.carriers import ARTEFACTS, CARRIERS, GAPS, REASONS
from tests.coverage.names import PAGES
from tests.coverage.page import PAGE, RECORDED, ROOT, count_names, rows, text, twin
from tests.coverage.ran import RAN, checksum, named_tests, ran_on
from tests.coverage.statements import STATEMENTS, State

pytestmark = pytest.mark.once

NAMES = {name for page in PAGES.values() for name in page}


def test_the_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text() == text(), "run python -m tests.coverage"


def test_every_name_of_the_pages_is_listed_or_an_artefact() -> None:
    listed = {name for row in rows() for name in (row.name, row.kernel)}
    assert {name for name in NAMES if not {name, twin(name)} & (listed | set(ARTEFACTS))} == set()


def test_every_name_has_a_test_or_a_reason() -> None:
    assert [row.name for row in rows() if not row.test and (not row.reason or row.reason in GAPS)] == []


def test_every_name_that_has_a_test_has_a_carrier() -> None:
    assert [row.name for row in rows() if row.test and not row.python] == []


def test_no_name_of_the_pages_was_lost() -> None:
    assert count_names() == 290


def test_every_name_of_python_resolves() -> None:
    assert [path for row in rows() for path in row.python if not _resolves(path)] == []


def _resolves(path: str) -> bool:
    *parts, last = path.split(".")[1:]
    owner: Any = reduce(getattr, parts, aiofabric)
    return hasattr(owner, last) or last in vars(owner)  # a member that the headers at hand lack is there, unreadable


def test_every_recorded_test_exists() -> None:
    recorded = json.loads(RECORDED.read_text())
    tests = {test for run in recorded.values() for _, test in run.values()}
    assert {test for test in tests if not _exists(test)} == set()


def _exists(test: str) -> bool:
    file, *names = test.split("::")
    return set(names) <= _definitions(file)


@cache
def _definitions(file: str) -> set[str]:
    path = ROOT / file
    nodes = ast.walk(ast.parse(path.read_text())) if path.exists() else ()
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def test_every_test_of_a_statement_exists() -> None:
    assert {each.node for each in STATEMENTS if each.test and not _exists(each.node)} == set()


def test_every_statement_that_holds_has_a_test_that_ran_as_it_is_now() -> None:
    """The column `ran on` is of the test that stands there."""
    assert [each.text for each in STATEMENTS if each.state is State.HOLDS and not each.test] == []
    ran = json.loads(RAN.read_text())
    for seen in ran.values():
        changed = [test for test, (of, *_) in seen.items() if of != checksum(test)]
        assert changed == [], "run python -m tests.coverage ran"
    assert set().union(*ran.values()) == set(named_tests()), "run python -m tests.coverage ran"


def test_places_are_short() -> None:
    ran = {"1.17": {"t": ["", "getinfo", "tcp;ofi_rxm", "net"]}, "2.5": {"t": ["", "getinfo", "tcp;ofi_rxm", "shm"]}}
    assert ran_on("t", ran) == "rxm; both. net; 1.17. shm; 2.5"
    assert ran_on("t", {"1.17": {"t": ["", "getinfo"]}, "2.5": {}}) == "getinfo; 1.17"
    assert ran_on("t", {"1.17": {"t": [""]}, "2.5": {"t": [""]}}) == "-; both"


def test_a_statement_that_does_not_hold_has_a_note() -> None:
    """A provider's test may say enough; a refusal never does."""
    silent = [each.text for each in STATEMENTS if each.state is not State.HOLDS and not (each.note or each.test)]
    assert silent + [each.text for each in STATEMENTS if each.state is State.REFUSED and not each.note] == []


def test_no_statement_stands_twice() -> None:
    texts = [(each.page, each.section, each.text) for each in STATEMENTS]
    assert len(texts) == len(set(texts))


def test_the_tables_speak_of_names_on_the_pages() -> None:
    known = NAMES | {twin(name) for name in NAMES}
    assert {name for name in (*ARTEFACTS, *CARRIERS, *REASONS) if name not in known} == set()
