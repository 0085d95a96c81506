"""Names of our own for endpoints in shared memory, and the removal of those that dead processes left.

By default the shm provider names an endpoint after its process. A killed process leaves its name and some 16 MB in
/dev/shm behind, and when its number comes round again the new process is refused (-FI_EBUSY, util_shm.c).
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..address import Address
from ..flags import AddressFormat

if TYPE_CHECKING:
    from ..info import Info

__all__ = ["is_own", "own_name", "path_of", "sweep"]

_DIRECTORY = Path("/dev/shm")
_NAME = re.compile(r"aiofabric-([0-9a-f]+)-(\d+)-")


def _namespace() -> int:
    """What process numbers are to be read in: containers may share /dev/shm and count their own."""
    return os.stat("/proc/self/ns/pid").st_ino


def own_name(info: Info) -> Address | None:
    """A name that nobody else has; None where the provider's endpoints have no names."""
    if info.addr_format != AddressFormat.ADDR_STR or info.src_addr is None:
        return None
    scheme = str(info.src_addr).partition("://")[0]
    name = f"{scheme}://aiofabric-{_namespace():x}-{os.getpid()}-{secrets.token_hex(4)}"
    return Address(AddressFormat.ADDR_STR, name.encode())


def path_of(name: Address) -> Path:
    """Where the provider has the memory of an endpoint."""
    return _DIRECTORY / name.raw.rstrip(b"\0").decode().partition("://")[2]


def is_own(address: Address) -> bool:
    """Whether the address is a name that this process gave."""
    if address.format != AddressFormat.ADDR_STR:
        return False
    match = _NAME.search(address.raw.decode(errors="replace"))
    return match is not None and (match[1], match[2]) == (f"{_namespace():x}", str(os.getpid()))


def sweep() -> None:
    """Remove what processes of this machine left that are not there any more."""
    here = _namespace()
    for path in _DIRECTORY.glob("aiofabric-*"):
        match = _NAME.match(path.name)
        if match and int(match[1], 16) == here and not Path("/proc", match[2]).exists():
            with suppress(OSError):
                path.unlink()
