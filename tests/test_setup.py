"""tools/setup.sh on a machine where it cannot work prints one clear sentence and changes nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

SETUP = Path(__file__).parent.parent / "tools" / "setup.sh"


def setup(path: Path, python: str = sys.executable, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with the commands that ``path`` holds and no others."""
    for tool in ("bash", "dirname"):
        found = shutil.which(tool)
        assert found is not None
        (path / tool).symlink_to(found)
    return subprocess.run(
        [path / "bash", SETUP],
        env={"PATH": str(path), "PYTHON": python, "HOME": os.environ.get("HOME", "/")} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def command(path: Path, name: str, body: str) -> None:
    (path / name).write_text(f"#!/bin/sh\n{body}\n")
    (path / name).chmod(0o755)


def test_no_python_that_is_new_enough(tmp_path: Path) -> None:
    command(tmp_path, "python3.10", "exit 1")
    ended = setup(tmp_path, "python3.10")
    assert ended.returncode == 1
    assert ended.stderr.startswith("setup: no Python 3.11 or newer among: python3.10.")


def test_no_apt(tmp_path: Path) -> None:
    ended = setup(tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith("setup: this system has no apt-get, so what is missing could not be installed.")
    assert "apt-get install gcc libc6-dev" in ended.stderr


def test_neither_root_nor_sudo(tmp_path: Path) -> None:
    command(tmp_path, "apt-get", "echo installed")
    command(tmp_path, "id", "echo 1000")
    ended = setup(tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith("setup: you are not root and there is no sudo, so")
    assert "libfabric-dev" in ended.stderr


def test_apt_asks_as_root_for_what_is_missing(tmp_path: Path) -> None:
    command(tmp_path, "apt-get", "exit 1")  # only sudo may run it
    command(tmp_path, "id", "echo 1000")
    command(tmp_path, "sudo", f'echo "$@" >> {tmp_path}/asked; exit 0')
    ended = setup(tmp_path)
    update, install = (tmp_path / "asked").read_text().splitlines()
    assert update.endswith("update")
    assert "apt-get" in install
    assert " install --no-install-recommends gcc libc6-dev " in install
    assert ended.returncode == 1  # it had no effect, and the script checks again
    assert "still lacks" in ended.stderr
