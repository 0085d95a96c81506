"""What a user installs: an sdist that builds, and one wheel for every Python and both generations."""

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.fixtures.libraries import CHOICE, libraries
from tests.packaging.conftest import run

pytestmark = [pytest.mark.once, pytest.mark.timeout(180)]  # pip fetches build tools


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
