"""Promise: the wheel works on each Python that is supported, and with the lowest version of each dependency.

The tests run against the installed wheel: a copy of them stands in a folder without the package's source.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.packaging.conftest import ROOT, run

pytestmark = [pytest.mark.once, pytest.mark.long, pytest.mark.timeout(600)]  # pip fetches wheels; then tests run

LIMIT = 450  # seconds for the tests in one environment, which take 15 to 40 alone
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis", "numpy", "psutil", "trustme")
EXTRAS = PROJECT["project"]["optional-dependencies"]

CORE = [
    "tests/cq",
    "tests/state",
    "tests/cm/test_connections.py",
    *(
        f"tests/transport/{name}.py"
        for name in (
            "connectionless/test_rdm",
            "connected/test_connected_messages",
            "rma/test_connected_rma",
            "tagged/test_tagged",
        )
    ),
    "tests/streams/test_byte.py",
    "tests/rpc/test_calls.py",
    "tests/rpc/test_tasks.py",
]
GRPC = ["tests/rpc/grpc/test_handling.py", "tests/rpc/grpc/test_fast_paths.py"]
INTEGRATIONS = ["tests/integrations", "tests/aio/test_transport.py", "tests/aio/test_reader.py", "tests/streams"]


def interpreter(version: str) -> str | None:
    """The path of a Python with this version, also of `tools/other_python.sh`; a shim that refuses to run is none."""
    roots = sorted(Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/{version}.*/bin/python"))
    unpacked = [each.parent / f"usr/bin/python{version}" for each in ROOT.glob(f"build/python{version}/complete")]
    for candidate in (shutil.which(f"python{version}"), *map(str, (*roots, *unpacked))):
        if candidate is not None:
            asked = [candidate, "-c", "import venv, sys; print('%d.%d' % sys.version_info[:2])"]
            ended = subprocess.run(asked, capture_output=True, text=True, check=False)
            if ended.stdout.strip() == version:
                return candidate
    return None


def environment(python: str, where: Path, *what: str | Path) -> Path:
    """A new virtual environment with ``what`` in it, from wheels only; return its interpreter."""
    run(python, "-m", "venv", "--without-pip", where)
    inside = where / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", inside, "--disable-pip-version-check", "install")
    run(*pip, "--quiet", "--no-compile", "--only-binary=:all:", *what)  # 4 s of the processor; 15 with a pip inside
    return inside


def folder_of_tests(folder: Path) -> Path:
    """A copy of the tests, and of what they read, without the package."""
    for name in ("tests", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "build"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run_tests(python: Path, folder: Path, files: list[str], *arguments: str) -> str:
    """Run test files in ``folder``; return pytest's summary line. Processes that hang tell where.

    Each value of each parameter runs once: a Python or a dependency that does not fit fails everywhere.
    """
    options = [
        "-q",
        "-rfE",
        "--tb=short",
        "-n",
        "2",
        "--dist=loadfile",
        "--max-worker-restart=0",
        "--combinations=values",
    ]
    command: list[str | Path] = [python, "-m", "pytest", *options, *arguments, *files]
    output = folder / "output"
    with (
        output.open("wb") as file,
        subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file) as running,
    ):
        try:
            running.wait(LIMIT)
        except subprocess.TimeoutExpired:
            for process in psutil.Process(running.pid).children(recursive=True):
                with suppress(psutil.Error):  # it has ended meanwhile, or does not end
                    process.send_signal(signal.SIGABRT)  # pytest's faulthandler writes each thread's stack
                    process.wait(10)
            with suppress(subprocess.TimeoutExpired):
                running.wait(30)  # it reports the tests of the processes that have ended
        finally:
            running.kill()
    text = output.read_text(errors="replace")
    assert running.returncode == 0, failures(text)
    return text.rstrip().rpartition("\n")[2]


def failures(text: str) -> str:
    """The part of pytest's output that begins with the first failure; before it, the names of all that failed."""
    names = re.findall(r"^(?:FAILED|ERROR) .*", text, re.MULTILINE)
    return "\n".join([*names, text[max(0, text.find("\n====")) :][:20_000], text[-2_000:]])


def lowest(requirement: str) -> str:
    """``uvloop>=0.19`` as ``uvloop==0.19.*``, whose first release pip cannot be asked for otherwise."""
    return re.sub(r">=([\d.]+)", r"==\1", requirement)


@pytest.mark.parametrize("version", PYTHONS)
def test_the_installed_wheel_on(version: str, wheel: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here; tools/other_python.sh {version} may bring one")
    extras = [*EXTRAS["uvloop"], *EXTRAS["trio"], *EXTRAS["rpc-grpc"], "grpcio-tools"]
    inside = environment(python, tmp_path / "environment", wheel, *TOOLS, *extras)
    folder = folder_of_tests(tmp_path)
    origin = subprocess.run(
        [inside, "-c", "import aiofabric; print(aiofabric.__file__)"], cwd=folder, capture_output=True
    )
    assert str(tmp_path / "environment") in origin.stdout.decode()
    assert "passed" in run_tests(inside, folder, CORE + GRPC, "-k", "not trio")


def test_the_lowest_versions_of_all_dependencies(wheel: Path, tmp_path: Path) -> None:
    required = [*PROJECT["project"]["dependencies"], *(each for extra in EXTRAS.values() for each in extra)]
    # A newer pytest warns of what anyio's old plugin imports.
    # Its protoc imports pkg_resources, which later versions of setuptools do not have.
    protoc = ["grpcio-tools==1.60.*", "setuptools<81"]
    tools = [*TOOLS, "pytest==9.0.*", "opentelemetry-sdk==1.24.*", *protoc]
    inside = environment(sys.executable, tmp_path / "environment", wheel, *tools, *map(lowest, required))
    folder = folder_of_tests(tmp_path)
    assert "passed" in run_tests(inside, folder, CORE + INTEGRATIONS, "-k", "not uvloop")
