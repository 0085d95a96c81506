"""Unique names for endpoints in shared memory, and the workaround ``shm_files``, which needs them.

By default the shm provider names an endpoint after its process. A killed process leaves its name and 16 MB in /dev/shm.
When its process id is used again, the new process is refused (-FI_EBUSY, util_shm.c). So each endpoint gets a unique
name that contains the id of its process.

A name that the program chose may be used again. But the provider keeps all names that endpoints of its process have
had, with the memory of each, also of closed ones, and the oldest is found first (smr_map_to_region): messages went to
another endpoint, or the process hung or crashed. So each use of a name in one process differs for the provider, by one
slash more before it. They all name the same file (shm_open).
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..._ffi import constants
from ...address import Address
from ...address_vector import LONGEST_NAME
from ...errors import FabricError, from_errno
from ...flags import AddressFormat
from ...workarounds import is_on

if TYPE_CHECKING:
    from ...info import Info

__all__ = [
    "is_own",
    "name_for",
    "native_form",
    "own_namespace",
    "path_of",
    "process_of",
    "remove",
    "reserve_memory",
    "sweep",
    "take_over",
    "with_slashes",
]

_DIRECTORY = Path("/dev/shm")
_NAME = re.compile(r"aiofabric-([0-9a-f]+)-(\d+)-")

_uses: Counter[Path] = Counter()  # of the names that the program chose for endpoints of this process


def own_namespace() -> int:
    """Identify the PID namespace: containers may share /dev/shm and have process ids of their own."""
    return os.stat("/proc/self/ns/pid").st_ino


def name_for(info: Info) -> Address | None:
    """The name that the program has chosen, or a unique one; None if the provider's endpoints have no names.

    libfabric would append numbers to a chosen name, so no peer could find it.
    """
    if info.addr_format != AddressFormat.ADDR_STR or info.src_addr is None:
        return None
    scheme, _, chosen = str(info.src_addr).partition("://")
    if chosen != str(os.getpid()):
        return info.src_addr
    name = f"{scheme}://aiofabric-{own_namespace():x}-{os.getpid()}-{secrets.token_hex(4)}"
    return Address(AddressFormat.ADDR_STR, name.encode())


def take_over(name: Address) -> Address:
    """Prepare the use of a chosen name; one that this process made is free. Return its form for the provider.

    2.x removes the file of a living endpoint, and then ends the process (smr_ep.c). A file that no process maps was
    left by one that was killed. Both libraries write over it; but 2.x ends the process if another version wrote it. A
    process that has the memory of an earlier endpoint of this name mapped hangs or crashes when another process with
    this name sends to it (smr_progress_connreq). One whose own endpoint it was has nothing mapped, and crashes, too.

    Raises:
        FabricError: (FI_EADDRINUSE) an endpoint has the name, or this process has used it too often.
    """
    if is_own(name):
        return name
    path = path_of(name)
    if users := _users(path):
        raise _in_use(f"Process {users[0]} has an endpoint of this name, or is connected with one that had it")
    if is_on("shm_files"):
        path.unlink(missing_ok=True)
    form = native_form(name, is_open=False)
    _uses[path] += 1
    return form


def native_form(name: Address, *, is_open: bool) -> Address:
    """The form of a name for the provider. ``is_open``: whether an endpoint of this process has it now.

    Raises:
        FabricError: (FI_EADDRINUSE) this process has used the name too often.
    """
    return with_slashes(name, _uses[path_of(name)] - is_open if _uses else 0)


def with_slashes(name: Address, count: int) -> Address:
    """Another name of the same file. Raises `FabricError` if it is longer than the provider takes."""
    if count < 1:
        return name
    scheme, _, rest = name.raw.partition(b"://")
    form = Address(AddressFormat.ADDR_STR, scheme + b"://" + b"/" * count + rest)
    if len(form.raw) > LONGEST_NAME:
        raise _in_use(f"The provider keeps all earlier uses of a name; with {count} slashes for them it is too long")
    return form


def _in_use(detail: str) -> FabricError:
    error = from_errno(constants.FI_EADDRINUSE, "fi_setname", detail=detail)
    error.cure = "Choose another name, or none for a unique one"
    return error


def _users(path: Path) -> list[str]:
    """The processes that have mapped a file, or one that had its name, as far as this one may see them."""
    found = []
    mapped = re.compile(rf" {re.escape(str(path))}( \(deleted\))?\n")
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if mapped.search(maps.read_text()):
                found.append(maps.parent.name)
    return found


def path_of(name: Address) -> Path:
    """The file in which the provider keeps the memory of an endpoint."""
    return _DIRECTORY / name.raw.rstrip(b"\0").decode().partition("://")[2].lstrip("/")


def is_own(address: Address) -> bool:
    """Whether this process made the name."""
    if address.format != AddressFormat.ADDR_STR:
        return False
    match = _NAME.search(address.raw.decode(errors="replace"))
    return match is not None and (match[1], match[2]) == (f"{own_namespace():x}", str(os.getpid()))


def reserve_memory(name: Address) -> None:
    """Allocate all pages of an endpoint of this process: a page that is missing later is a SIGBUS, in any send.

    Raises:
        FabricError: (FI_ENOSPC) /dev/shm has too little room.
    """
    if not is_own(name) or not is_on("shm_files"):
        return
    try:
        file = path_of(name).open("r+b")
    except FileNotFoundError:  # the provider keeps its memory elsewhere
        return
    with file:
        status = os.fstat(file.fileno())
        try:
            os.posix_fallocate(file.fileno(), 0, status.st_size)
        except OSError as error:
            if error.errno != errno.ENOSPC:  # the file system cannot reserve pages
                return
            room = os.fstatvfs(file.fileno())
            free = room.f_bavail * room.f_frsize + status.st_blocks * 512
            raise FabricError(
                constants.FI_ENOSPC,
                "fi_enable",
                detail=f"{_DIRECTORY} is full: an endpoint in shared memory takes {status.st_size} bytes there, and "
                f"{free} are available. Enlarge it (docker run --shm-size=), or close endpoints",
            ) from None


def remove(name: Address) -> None:
    """Remove the file of a closed endpoint of this process, so that no other process finds it."""
    if is_own(name) and is_on("shm_files"):
        path_of(name).unlink(missing_ok=True)


def process_of(address: Address) -> int | None:
    """The process id in the name; None if aiofabric did not make the name, or in another PID namespace."""
    match = _NAME.search(address.raw.decode(errors="replace"))
    return int(match[2]) if match is not None and int(match[1], 16) == own_namespace() else None


def sweep() -> None:
    """Remove the files of processes of this machine that have ended."""
    if not is_on("shm_files"):
        return
    here = own_namespace()
    for path in _DIRECTORY.glob("aiofabric-*"):
        match = _NAME.match(path.name)
        if match and int(match[1], 16) == here and not Path("/proc", match[2]).exists():
            with suppress(OSError):
                path.unlink()
