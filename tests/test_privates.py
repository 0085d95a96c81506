"""Tests that use private names, or replace parts of the program, give a reason in a comment of the file."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

TESTS = Path(__file__).parent
REASON, REPLACED = "# Privates: ", "# Doubles: "
PUBLIC = {"_ffi", "_core", "_exit", "_fields", "_replace"}  # modules, os._exit, and methods of named tuples


BY_NAME = {"setattr", "getattr", "delattr", "hasattr", "methods_of"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def privates(source: str) -> list[str]:
    """Private attributes of other objects that a program uses, as attributes, as strings or by import."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=owner, attr=name) if is_private(name):
                if not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                    found.append(f"{node.lineno}: {ast.unparse(node)}")
            case ast.ImportFrom(names=names):
                found += [f"{node.lineno}: import {each.name}" for each in names if is_private(each.name)]
            case ast.Call(func=function, args=arguments) if ast.unparse(function).rpartition(".")[2] in BY_NAME:
                texts = [each.value for each in arguments if isinstance(each, ast.Constant)]
                found += [f"{node.lineno}: {text!r}" for text in texts if isinstance(text, str) and is_private(text)]
    return found


def test_a_file_that_uses_privates_says_why() -> None:
    wrong = []
    for path in sorted(TESTS.rglob("*.py")):
        source = path.read_text()
        says = path.name == "internals.py" or any(line.startswith(REASON) for line in source.splitlines())
        if says != bool(privates(source)):  # a reason without a use is out of date
            wrong.append(f"{path.relative_to(TESTS)}: {privates(source)}")
    assert wrong == []


def doubles(source: str) -> list[str]:
    """Calls that replace an attribute for a time (``monkeypatch.setattr``)."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"
    ]


def test_a_file_that_replaces_attributes_says_why() -> None:
    wrong = []
    for path in sorted(TESTS.rglob("*.py")):
        source = path.read_text()
        says = any(line.startswith(REPLACED) for line in source.splitlines())
        if says != bool(doubles(source)):
            wrong.append(f"{path.relative_to(TESTS)}: {doubles(source)}")
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
    source = "from aiofabric import _core, _x\nmonkeypatch.setattr(Y, '_z', 1)\nprint('_text', getattr(a, 'b'))"
    assert sorted(privates(source)) == ["1: import _x", "2: '_z'"]


def test_the_check_sees_replaced_attributes() -> None:
    assert doubles("monkeypatch.setattr(a, 'b', 1)\nsetattr(a, 'b', 1)") == ["1: monkeypatch.setattr(a, 'b', 1)"]
