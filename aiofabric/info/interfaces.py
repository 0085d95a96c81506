"""Interfaces: the offers that use a network interface or device, by the name that a program knows it by."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .discovery import Info

__all__ = ["devices_of", "names_of", "uses"]

_SYSTEM = Path("/sys/class")
_KINDS = ("infiniband", "cxi")  # of devices that a network interface may belong to


def devices_of(interface: str, system: Path = _SYSTEM) -> frozenset[str]:
    """The name itself, and the RDMA and Slingshot devices of a network interface of that name.

    Linux lists them below the interface's device: mlx5_0 is the device of ib0, cxi0 that of hsn0. Soft RoCE's devices
    name their interface in the file ``parent``.
    """
    found = {interface}
    if "/" in interface:
        return frozenset(found)
    for kind in _KINDS:
        with suppress(OSError):
            found.update(path.name for path in (system / "net" / interface / "device" / kind).iterdir())
    with suppress(OSError):
        for device in (system / "infiniband").iterdir():
            with suppress(OSError):
                if (device / "parent").read_text().strip() == interface:
                    found.add(device.name)
    return frozenset(found)


def uses(info: Info, devices: frozenset[str]) -> bool:
    """Whether an offer is for one of these devices.

    verbs and EFA append the type of endpoint to the name of a device: mlx5_0-dgram, rdmap0s6-rdm.
    """
    domain = info.domain_attr.name
    if domain in devices or domain.rpartition("-")[0] in devices:
        return True
    nic = info.nic
    return nic is not None and nic.device_attr is not None and nic.device_attr.name in devices


def names_of(offers: Iterable[Info]) -> list[str]:
    """The names of the devices of offers, each once, in their order."""
    return list(dict.fromkeys(info.domain_attr.name for info in offers))
