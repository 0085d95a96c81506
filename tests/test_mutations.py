"""The list of errors for the native core (`tools.mutations`) fits the code; ``make mutate`` puts them in."""

from pathlib import Path

import pytest

from tools.mutate import TESTS
from tools.mutations import C_ERRORS

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("name", "old", "new"), C_ERRORS, ids=range(len(C_ERRORS)))
def test_the_text_that_an_error_replaces_is_there_once(name: str, old: str, new: str) -> None:
    assert (ROOT / "aiofabric/_core" / name).read_text().count(old) == 1
    assert old != new


@pytest.mark.parametrize("prefix", TESTS)
def test_the_tests_of_a_module_exist(prefix: str) -> None:
    assert list(ROOT.glob(f"{prefix}*"))
    assert [path for path in TESTS[prefix] if not (ROOT / path).exists()] == []
