"""Tests that use private names give a reason: in fixtures/internals.py, or in a comment of the file."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

TESTS = Path(__file__).parent
REASON = "# Privates: "
PUBLIC = {"_ffi", "_core", "_exit", "_fields", "_replace"}  # modules, os._exit, and methods of named tuples


def privates(source: str) -> list[str]:
    """Private attributes of other objects that a program uses."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in PUBLIC
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def test_a_file_that_uses_privates_says_why() -> None:
    wrong = []
    for path in sorted(TESTS.rglob("*.py")):
        source = path.read_text()
        says = path.name == "internals.py" or any(line.startswith(REASON) for line in source.splitlines())
        if says != bool(privates(source)):  # a reason without a use is out of date
            wrong.append(f"{path.relative_to(TESTS)}: {privates(source)}")
    assert wrong == []


def test_handles_are_reached_by_helpers_only() -> None:
    found = [
        f"{path}:{each}"
        for path in TESTS.rglob("*.py")
        for each in privates(path.read_text())
        if each.endswith(("._handle", "._channel")) and path.name != "internals.py"
    ]
    assert found == []


def test_the_check_sees_privates_of_others_only() -> None:
    source = "self._own = a._handle.x + os._exit(named._replace(b=c().__doc__)) + self.a._b"
    assert sorted(privates(source)) == ["1: a._handle", "1: self.a._b"]
