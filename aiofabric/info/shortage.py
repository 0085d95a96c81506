"""Why the shm provider is not there: it is offered only while /dev/shm has room for an endpoint of each core."""

from __future__ import annotations

import os

_DIRECTORY = "/dev/shm"
_ENDPOINT = 16 << 20  # bytes, with libfabric 1.17; since 2.0 a fifth less


def shortage(provider: str) -> str:
    """A sentence about /dev/shm where it may be the reason that ``provider`` was not found; else nothing."""
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
        f"and {free} bytes are available: enlarge it (docker run --shm-size=), or remove what lies there."
    )
