"""Device failures: providers of devices that offer endpoints here and cannot open one, and their other devices."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...info import EpAttr, FabricAttr, Hints, Info
from ...info.discovery import offers
from ...info.interfaces import names_of

if TYPE_CHECKING:
    from ...errors import FabricError

__all__ = ["is_device", "is_unusable", "leave_out", "name_other_devices"]

_log = logging.getLogger("aiofabric")

_unusable: set[str] = set()
"""Providers of devices that offered endpoints in this process, and then could not open one: used only if named."""
_SOFTWARE = frozenset({"tcp", "udp", "shm", "sm2", "net", "sockets"})
_OPENING = frozenset({"fi_fabric", "fi_domain", "fi_cq_open", "fi_eq_open", "fi_endpoint", "fi_ep_bind", "fi_enable"})


def is_unusable(name: str) -> bool:
    """Whether a provider could not open an endpoint before; then it is used only if it is named."""
    return name in _unusable


def is_device(info: Info) -> bool:
    """Whether the provider needs a device, and may lack what it needs on this host."""
    return info.fabric_attr.prov_name.partition(";")[0] not in _SOFTWARE


def leave_out(info: Info, error: FabricError) -> bool:
    """Whether to choose another provider, because this one, of a device, could not open an endpoint.

    It is then not chosen again. Software providers fail for reasons of the program, or of the whole process.
    """
    name = info.fabric_attr.prov_name
    if error.call not in _OPENING or not is_device(info) or name in _unusable:
        return False
    _unusable.add(name)
    _log.warning(
        "The provider %s offers endpoints here, but cannot open one: %s. The next provider is used instead, "
        "and %s only if a program names it",
        name,
        error,
        name,
    )
    return True


def name_other_devices(info: Info, error: FabricError) -> None:
    """Name the provider's other devices in an error of opening this one."""
    if error.call not in _OPENING or not is_device(info):
        return
    hints = Hints(fabric_attr=FabricAttr(prov_name=info.fabric_attr.prov_name), ep_attr=EpAttr(type=info.ep_attr.type))
    others = [name for name in names_of(offers(hints=hints)) if name and name != info.domain_attr.name]
    if others:
        own = info.domain_attr.name
        words = f"The device is {own}; interface= chooses another one: {', '.join(map(repr, others))}"
        error.detail = ". ".join(filter(None, (error.detail.rstrip("."), words)))
