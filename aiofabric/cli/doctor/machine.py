"""Checks of the operating system: locked memory, open files, shared memory, RDMA devices."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from aiofabric.cli.doctor.findings import Finding, Level
from aiofabric.info import getinfo

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["infiniband", "locked_memory", "open_files", "shared_memory"]

_DEVICES = Path("/dev/infiniband")
_SHARED = Path("/dev/shm")
_MIB = 1 << 20
_ENOUGH_SHARED = 128 * _MIB  # the shm provider takes 10 MiB for each endpoint; Docker grants 64 MiB
_ENOUGH_FILES = 1024
_SOFTWARE = frozenset({"tcp", "net", "udp", "shm", "sm2", "sockets", "lnx", "ofi_rxm", "ofi_rxd"})


def _devices() -> list[Path]:
    return sorted(_DEVICES.glob("uverbs*"))


def locked_memory() -> Iterator[Finding]:
    """RLIMIT_MEMLOCK: RDMA hardware accesses memory that must be locked."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        yield Finding(Level.OK, "locked memory", "no limit")
    elif _devices():
        yield Finding(
            Level.WARNING,
            "locked memory",
            f"at most {_size(limit)} may be locked: registering more than that for the RDMA devices here fails",
            "ulimit -l unlimited, for good in /etc/security/limits.conf; systemd: LimitMEMLOCK=infinity; "
            "Docker: --ulimit memlock=-1",
        )
    else:
        yield Finding(Level.OK, "locked memory", f"at most {_size(limit)}; software providers lock none")


def open_files() -> Iterator[Finding]:
    """RLIMIT_NOFILE: connections of the tcp provider are sockets, and each queue has descriptors of its own."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit < _ENOUGH_FILES:
        yield Finding(
            Level.WARNING,
            "open files",
            f"at most {limit}: a queue takes about ten of them, a connection one or two",
            "ulimit -n 65536, for good in /etc/security/limits.conf; systemd: LimitNOFILE=65536",
        )
    else:
        yield Finding(Level.OK, "open files", "no limit" if limit == resource.RLIM_INFINITY else f"at most {limit}")


def shared_memory() -> Iterator[Finding]:
    """/dev/shm: the memory of the shm provider."""
    try:
        found = os.statvfs(_SHARED)
    except OSError as error:
        yield Finding(
            Level.WARNING, str(_SHARED), f"missing ({error.strerror}): the shm provider cannot work",
            f"mount -t tmpfs tmpfs {_SHARED}",
        )  # fmt: skip
        return
    free = found.f_bavail * found.f_frsize
    if not os.access(_SHARED, os.W_OK | os.X_OK):
        yield Finding(
            Level.WARNING, str(_SHARED), "not writable: the shm provider cannot work",
            f"chmod 1777 {_SHARED}, or mount -o remount,rw {_SHARED}",
        )  # fmt: skip
    elif free < _ENOUGH_SHARED:
        yield Finding(
            Level.WARNING,
            str(_SHARED),
            f"{_size(free)} free: a few endpoints of the shm provider fill it, and more end in a bus error",
            f"mount -o remount,size=1g {_SHARED}; Docker: --shm-size=1g; or remove files of ended programs in it",
        )
    else:
        yield Finding(Level.OK, str(_SHARED), f"{_size(free)} free")


def infiniband() -> Iterator[Finding]:
    """/dev/infiniband: RDMA devices, the permission to use them, and a provider for them."""
    devices = _devices()
    if not devices:
        yield Finding(Level.OK, str(_DEVICES), "no RDMA devices; software providers need none")
        return
    names = " ".join(device.name for device in devices)
    closed = [device.name for device in devices if not os.access(device, os.R_OK | os.W_OK)]
    drivers = {info.fabric_attr.prov_name for info in getinfo() if not _is_software(info.fabric_attr.prov_name)}
    if closed:
        yield Finding(
            Level.WARNING,
            str(_DEVICES),
            f"this user may not open {' '.join(closed)}",
            "join the group that owns them (often rdma), or set their mode to 0666 in a udev rule",
        )
    elif not drivers:
        yield Finding(
            Level.WARNING,
            str(_DEVICES),
            f"{names}, but no provider of this libfabric drives them",
            "install the hardware's libfabric (EFA, Cray: their installers; otherwise one built with verbs and "
            "rdma-core's libraries) and name it in AIOFABRIC_LIBFABRIC",
        )
    else:
        yield Finding(Level.OK, str(_DEVICES), f"{names}, driven by {' '.join(sorted(drivers))}")


def _is_software(provider: str) -> bool:
    return set(provider.split(";")) <= _SOFTWARE


def _size(count: int) -> str:
    for unit, size in (("GiB", _MIB << 10), ("MiB", _MIB), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count // size} {unit}"
    return f"{count} bytes"
