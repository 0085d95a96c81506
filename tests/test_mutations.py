"""The lists of errors (`tools.mutations`, `tests.coverage.mutations`) fit the code; ``make mutate`` puts them in."""

from pathlib import Path

import pytest

from tests.coverage.mutations import MUTATIONS
from tests.coverage.statements import STATEMENTS, State
from tools.mutate import TESTS
from tools.mutations import C_ERRORS

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("name", "old", "new"), C_ERRORS, ids=range(len(C_ERRORS)))
def test_the_text_that_an_error_replaces_is_there_once(name: str, old: str, new: str) -> None:
    assert (ROOT / "aiofabric/_core" / name).read_text().count(old) == 1
    assert old != new


def test_each_statement_that_holds_has_its_edits() -> None:
    assert set(MUTATIONS) == {each.text for each in STATEMENTS if each.state is State.HOLDS}


@pytest.mark.parametrize("text", MUTATIONS)
def test_the_text_that_an_edit_replaces_is_there_once(text: str) -> None:
    for name, old, new in MUTATIONS[text]:
        assert (ROOT / "aiofabric" / name).read_text().count(old) == 1, old
        assert old != new


@pytest.mark.parametrize("prefix", TESTS)
def test_the_tests_of_a_module_exist(prefix: str) -> None:
    assert list(ROOT.glob(f"{prefix}*"))
    assert [path for path in TESTS[prefix] if not (ROOT / path).exists()] == []
