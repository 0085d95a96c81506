"""Shortage: why the shm provider is missing: it is offered only while /dev/shm has room for one endpoint per core."""

from __future__ import annotations

import os

_DIRECTORY = "/dev/shm"
_ENDPOINT = 16 << 20  # bytes, with libfabric 1.17; since 2.0 a fifth less


def shortage(provider: str) -> str:
    """A sentence about /dev/shm if it may be the reason that ``provider`` was not found; otherwise an empty text."""
    if provider != "shm":
        return ""
    try:
        room = os.statvfs(_DIRECTORY)
    except OSError as error:
        return f" The provider keeps endpoints in {_DIRECTORY}: {error.strerror}."
    free, cores = room.f_bavail * room.f_frsize, os.cpu_count() or 1
    if free >= cores * _ENDPOINT:
        return ""
    return (
        f" libfabric offers it only while {_DIRECTORY} has some {_ENDPOINT >> 20} MiB for each of the {cores} cores, "
        f"but {free} bytes are available: enlarge it (docker run --shm-size=), or remove files there."
    )
