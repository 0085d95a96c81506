"""The files that a user installs: an sdist that builds, and one wheel for every Python and both generations of
libfabric.
"""

import email
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import aiofabric
from tests.fixtures.libraries import CHOICE, libraries
from tests.packaging.conftest import NOT_SOURCE, ROOT, attempt, run

pytestmark = [pytest.mark.once, pytest.mark.long, pytest.mark.timeout(180)]  # pip fetches build tools


def test_one_wheel_serves_every_python(wheel: Path) -> None:
    assert wheel.name.startswith("aiofabric-")
    assert "-cp311-abi3-linux_" in wheel.name


def test_wheel_holds_the_package_and_no_libfabric(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "aiofabric/py.typed",
        "aiofabric/_ffi/_constants.abi3.so",
        "aiofabric/_ffi/_libfabric.abi3.so",
    } <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"aiofabric"}
    assert not [name for name in names if "libfabric.so" in name or name.endswith((".pyc", "_libfabric.c"))]


def test_sdist_holds_the_licence_the_changelog_and_the_tests(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "tests/fixtures/peers.py",
        "docs/first-steps.md",
        "examples/demo.py",
        "aiofabric/_ffi/libfabric.cdef.h",
        "aiofabric/_ffi/libfabric.src.c",
    } <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


@pytest.mark.parametrize("name", libraries())
def test_wheel_runs_on(name: str, bare_python: Path) -> None:
    chosen = {CHOICE: path} if (path := libraries()[name]) else {}
    source = "import aiofabric; print([i.fabric_attr.prov_name for i in aiofabric.getinfo()])"
    assert "'tcp'" in run(bare_python, "-c", source, **chosen)


def test_names_import_where_the_library_is_missing(bare_python: Path) -> None:
    source = """
import aiofabric
for name in dir(aiofabric):
    getattr(aiofabric, name)
try:
    aiofabric.getinfo()
except aiofabric.LibfabricNotFound as error:
    print(error)
"""
    assert "/nowhere/libfabric.so.1" in run(bare_python, "-c", source, **{CHOICE: "/nowhere/libfabric.so.1"})


def test_metadata_tells_who_where_and_which_pythons(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Version"] == aiofabric.__version__
    assert metadata["Author"]
    assert metadata.get_all("Project-URL")
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(
        metadata.get_all("Classifier", [])
    )
    assert set(metadata.get_all("Provides-Extra", [])) == {
        "arrow",
        "uvloop",
        "trio",
        "http",
        "grpc",
        "rpc-grpc",
        "dask",
        "metrics",
    }


def test_a_source_tree_that_hides_the_installed_package_says_so(bare_python: Path, tmp_path: Path) -> None:
    """Python searches the working directory first."""
    tree = tmp_path / "aiofabric"
    shutil.copytree(ROOT / "aiofabric", tree / "aiofabric", ignore=NOT_SOURCE)
    shutil.copy(ROOT / "pyproject.toml", tree)
    words = f"{tree}/aiofabric is aiofabric's source, which is not built, and hides an installed aiofabric"
    for code in (["-m", "aiofabric", "info"], ["-c", "import aiofabric; aiofabric.connect"]):
        ended = attempt("sh", "-c", 'cd "$0" && exec "$@"', tree, bare_python, *code)
        assert ended.returncode == 1
        assert words in ended.stderr
        assert f"pip install -e {tree}" in ended.stderr
        assert ("Traceback" in ended.stderr) == (code[0] == "-c")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {"PKG_CONFIG_LIBDIR": "/nowhere", "PKG_CONFIG_PATH": ""},
            "pkg-config knows none. .*apt install libfabric-dev",
        ),
        ({"PATH": "/nowhere"}, "building needs pkg-config. .*apt install pkg-config"),
    ],
    ids=["headers", "pkg-config"],
)
def test_a_build_without_what_it_needs_names_the_package(environment: dict[str, str], words: str) -> None:
    ended = attempt(
        sys.executable,
        "-c",
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); os.chdir({str(ROOT)!r}); import setup",
        **environment,
    )
    assert ended.returncode == 1
    assert re.search(words, ended.stderr)
    assert "Traceback" not in ended.stderr
