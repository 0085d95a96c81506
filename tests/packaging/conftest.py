"""An sdist, its wheel, and environments that hold the wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.libraries import CHOICE

ROOT = Path(__file__).parent.parent.parent
NOT_SOURCE = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so", "__pycache__", "_libfabric.c")


def attempt(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with the libfabric that it finds by itself."""
    return subprocess.run(
        command,
        env={name: value for name, value in os.environ.items() if name != CHOICE} | environment,
        cwd="/",  # not beside the source
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def run(*command: str | Path, **environment: str) -> str:
    """The output of a command that must succeed."""
    ended = attempt(*command, **environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="package")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built out of the unpacked sdist alone."""
    source = tmp_path_factory.mktemp("packaging") / "source"
    shutil.copytree(ROOT, source, ignore=NOT_SOURCE)
    run(sys.executable, "-m", "build", source)
    return source / "dist"


@pytest.fixture(scope="package")
def wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


def install(environment: Path, *what: str | Path) -> Path:
    """A new virtual environment with wheels only; return its interpreter. There is no compiler to be found."""
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install")
    run(*pip, "--quiet", "--only-binary=:all:", *what, PATH="/nowhere", CC="/nowhere")
    return python


@pytest.fixture(scope="package")
def bare_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it requires."""
    return install(tmp_path_factory.mktemp("bare"), wheel)
