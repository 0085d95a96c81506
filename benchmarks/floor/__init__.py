"""The programs in C, compiled where a C compiler and libfabric's headers are."""

import os
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "build" / "floor"
CORES = FOLDER / "build" / "cores"


class BuildError(Exception):
    """Says which command failed and how."""


def run(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise BuildError(f"{command[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{command[0]}: {error.stderr.strip()}") from None


@cache
def build() -> None:
    """Bring the programs up to date; raise `BuildError` where that is impossible."""
    newest = max(source.stat().st_mtime for source in FOLDER.glob("*.[ch]"))
    if all(program.exists() and program.stat().st_mtime > newest for program in (PROGRAM, CORES)):
        return
    PROGRAM.parent.mkdir(exist_ok=True)
    libfabric = shlex.split(run("pkg-config", "--cflags", "--libs", "libfabric"))
    with tempfile.TemporaryDirectory(dir=PROGRAM.parent) as folder:  # another run may build, or use them, just now
        run("cc", "-O2", "-o", f"{folder}/floor", str(FOLDER / "floor.c"), *libfabric)
        run("cc", "-O2", "-pthread", "-o", f"{folder}/cores", str(FOLDER / "cores.c"))
        os.replace(f"{folder}/floor", PROGRAM)
        os.replace(f"{folder}/cores", CORES)
