"""``import aiofabric`` is quick: it imports only the modules that the program uses. Type checkers see all of them."""

# Privates: the lists of lazy names are compared with what type checkers see.

import ast
import pydoc
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import aiofabric
from tests.fixtures.children import run_in_child

pytestmark = pytest.mark.once

LOOPS = {"trio", "uvloop"}
SLOW = {"importlib.metadata", "email", "zipfile", "tempfile", "anyio._core._sockets", "anyio.streams.tls", *LOOPS}


def imported(source: str) -> set[str]:
    """The modules of a process that has run ``source``, beyond those that the interpreter has by itself."""
    show = "import sys; print(*sorted(set(sys.modules) - before))"
    ended = run_in_child(f"import sys; before = set(sys.modules)\n{source}\n{show}")
    assert ended.status == 0, ended.err
    return set(ended.out.split())


def test_import_alone_brings_no_loop_and_no_library() -> None:
    modules = imported("import aiofabric")
    assert {name for name in modules if name.startswith("aiofabric")} == {"aiofabric", "aiofabric.starting"}
    assert not modules & {"asyncio", "ssl", "anyio", "_cffi_backend", "socket", "logging", "dataclasses"}
    assert not modules & SLOW
    assert len(modules) < 20


def test_connecting_brings_nothing_that_is_slow_and_not_used() -> None:
    modules = imported(
        "import asyncio; before |= set(sys.modules)\nimport aiofabric; aiofabric.connect; aiofabric.listen"
    )
    assert not modules & SLOW
    assert len(modules) < 200


def test_type_checkers_see_what_there_is() -> None:
    tree = ast.parse(Path(aiofabric.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed: dict[str, object] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.name == alias.asname
            assert node.module is not None
            typed[alias.name] = getattr(import_module(node.module), alias.name)
    assert typed.keys() == aiofabric._MODULE_OF.keys() | aiofabric._ROOMS
    assert all(getattr(aiofabric, name) is value for name, value in typed.items())
    assert typed.keys() <= set(dir(aiofabric))


def test_modules_are_attributes_and_other_names_are_not() -> None:
    ended = run_in_child("""
        import aiofabric
        assert aiofabric.errors.FabricError is aiofabric.FabricError
        assert not hasattr(aiofabric, "nowhere")
        try:
            from aiofabric import nowhere
        except ImportError as error:
            print(error)
        """)
    assert ended.out.startswith("cannot import name 'nowhere' from 'aiofabric'")


def test_star_takes_every_name() -> None:
    names: dict[str, object] = {}
    exec("from aiofabric import *", names)
    assert aiofabric._MODULE_OF.keys() <= names.keys()


def test_version_is_the_distributions() -> None:
    assert aiofabric.__version__ == metadata.version("aiofabric")


def test_an_argument_of_a_program_does_not_replace_its_signal_handler(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, aiofabric\nprint(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    ended = subprocess.run(
        [sys.executable, program, "-m", "aiofabric"], capture_output=True, text=True, check=True, start_new_session=True
    )
    assert ended.stdout == "True\n"


@pytest.mark.parametrize("name", ["aiofabric.streams", "aiofabric.aio", "aiofabric.rpc"])
def test_the_help_of_a_module_has_its_public_names(name: str) -> None:
    module = import_module(name)
    text = pydoc.plain(pydoc.render_doc(module))
    for public in module.__all__:
        assert f"class {public}" in text or f"{public}(" in text or f"{public} = " in text, public
    is_own = {n for n, v in vars(module).items() if getattr(v, "__module__", "").startswith("aiofabric")}
    assert {each for each in is_own if not each.startswith("_")} == set(module.__all__)
