"""The declarations, the stub that types them, and the extension agree."""

import ast
import re
from pathlib import Path

import pytest

import aiofabric._ffi
from aiofabric._ffi import constants, lib

pytestmark = pytest.mark.once

HERE = Path(aiofabric._ffi.__file__).parent


def declared() -> dict[str, int]:
    """Each function of the cdef and the number of its parameters."""
    source = re.sub(r"/\*.*?\*/", "", (HERE / "libfabric.cdef.h").read_text(), flags=re.DOTALL)
    while re.search(r"\{[^{}]*\}", source):
        source = re.sub(r"\{[^{}]*\}", "", source)
    found = re.findall(r"(\w+)\(([^()]*)\);", source)
    return {name: 0 if parameters == "void" else parameters.count(",") + 1 for name, parameters in found}


def typed() -> dict[str, int]:
    """Each method of the stub's Lib and the number of its parameters."""
    tree = ast.parse((HERE / "_libfabric.pyi").read_text())
    [lib_class] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        node.name: len(node.args.posonlyargs + node.args.args) - 1
        for node in lib_class.body
        if isinstance(node, ast.FunctionDef)
    }


def test_the_stub_types_every_call() -> None:
    assert typed() == declared()


@pytest.mark.parametrize("name", sorted(declared()))
def test_every_declared_call_is_there(name: str) -> None:
    assert callable(getattr(lib, name))


def test_every_constant_is_a_number() -> None:
    names = re.findall(r"#define (\w+) \.\.\.", (HERE / "constants.cdef.h").read_text())
    assert len(names) == len(set(names)) > 400
    assert all(isinstance(getattr(constants, name), int) for name in names)


def test_no_number_of_libfabrics_is_typed_by_hand() -> None:
    """Every line of the constants' declarations leaves the value to the compiler."""
    lines = re.sub(r"/\*.*?\*/", "", (HERE / "constants.cdef.h").read_text(), flags=re.DOTALL).split("\n")
    assert {line for line in lines if line} == {line for line in lines if re.fullmatch(r"#define \w+ \.\.\.", line)}
