"""The parts of the build that pyproject.toml cannot describe: the extension modules and the one abi3 wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cffi.pkgconfig import flags_from_pkgconfig
from setuptools import Extension, setup

PACKAGES = "Debian, Ubuntu: apt install {}; Fedora, RHEL: dnf install {}"


def check_headers() -> None:
    """End the build with a sentence where what it needs is not installed."""
    if shutil.which("pkg-config") is None:
        sys.exit(f"aiofabric: building needs pkg-config. {PACKAGES.format('pkg-config', 'pkgconf-pkg-config')}")
    if subprocess.run(["pkg-config", "--exists", "libfabric >= 1.17"], check=False).returncode:
        found = subprocess.run(["pkg-config", "--modversion", "libfabric"], capture_output=True, text=True, check=False)
        there = f"there is {found.stdout.strip()}" if found.returncode == 0 else "pkg-config knows none"
        sys.exit(
            f"aiofabric: building needs the headers of libfabric 1.17 or newer, and {there}. "
            f"{PACKAGES.format('libfabric-dev', 'libfabric-devel')}. For one in a folder of its own, set "
            "PKG_CONFIG_PATH to the folder of its libfabric.pc"
        )


def check_interpreter() -> None:
    if "t" in sys.abiflags:
        sys.exit("aiofabric: needs the GIL, and this Python is a free-threaded build; use an ordinary one")


check_interpreter()
check_headers()
headers = flags_from_pkgconfig(["libfabric"])["include_dirs"]
sources = sorted(map(str, Path("aiofabric/_core").rglob("*.c")))
# Nobody else calls what is in these files: their calls of each other are direct, and so are those of the interpreter.
# Of a request among a hundred connections 1.5 % of the instructions, and 80 of 380 misses of the cache of these.
direct = ["-fvisibility=hidden", "-fno-plt"]

# AIOFABRIC_DEBUG_BUILD=1: with the core's assertions, as `make sanitize` builds it.
# CFLAGS of the environment replace the interpreter's own, so the other builds say that they want none.
direct += ["-UNDEBUG", "-O1", "-g"] if os.environ.get("AIOFABRIC_DEBUG_BUILD") == "1" else ["-DNDEBUG"]

setup(
    ext_modules=[
        Extension(
            "aiofabric._core._core",
            sources,
            depends=sorted(map(str, Path("aiofabric/_core").rglob("*.h"))),
            include_dirs=["aiofabric/_core", *headers],
            py_limited_api=True,
            extra_compile_args=direct,
        )
    ],
    cffi_modules=["aiofabric/_ffi/build.py:constants", "aiofabric/_ffi/build.py:libfabric"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
