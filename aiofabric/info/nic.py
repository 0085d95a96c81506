"""The network device behind an offer (man page: fi_nic)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..flags import BusType, LinkState
from .attributes import Attributes

if TYPE_CHECKING:
    from .._ffi import CData


@dataclass(kw_only=True)
class DeviceAttr(Attributes):
    """The model and driver of the device."""

    _ctype = "struct fi_device_attr"

    name: str = ""
    """The operating system's name of the device."""
    device_id: str = ""
    """The vendor's id of the model."""
    device_version: str = ""
    """Revision of the hardware."""
    vendor_id: str = ""
    """The vendor's id."""
    driver: str = ""
    """Name of the driver."""
    firmware: str = ""
    """Version of the firmware."""


@dataclass(kw_only=True)
class PciAttr(Attributes):
    """The device's address on a PCI bus."""

    _ctype = "struct fi_pci_attr"

    domain_id: int = 0
    """Domain."""
    bus_id: int = 0
    """Bus."""
    device_id: int = 0
    """Device."""
    function_id: int = 0
    """Function."""

    def __str__(self) -> str:
        return f"{self.domain_id:04x}:{self.bus_id:02x}:{self.device_id:02x}.{self.function_id:x}"


@dataclass(kw_only=True)
class LinkAttr(Attributes):
    """The state of the device's link."""

    _ctype = "struct fi_link_attr"

    address: str = ""
    """Link layer address."""
    mtu: int = 0
    """Largest packet, bytes."""
    speed: int = 0
    """Bits per second."""
    state: LinkState = LinkState.UNKNOWN
    """Up or down."""
    network_type: str = ""
    """Ethernet, InfiniBand."""


@dataclass(frozen=True, kw_only=True)
class Nic:
    """A network device; each part is None if the provider does not report it."""

    device_attr: DeviceAttr | None
    """The model and driver."""
    bus_type: BusType
    """How it is attached."""
    pci: PciAttr | None
    """The address on a PCI bus; None if it is not on one."""
    link_attr: LinkAttr | None
    """The state of its link."""

    @classmethod
    def from_native(cls, native: CData) -> Nic | None:
        """Return a copy of a struct fid_nic; None for NULL."""
        if not native:
            return None
        bus = native.bus_attr
        bus_type = BusType(bus.bus_type) if bus else BusType.UNSPEC
        return cls(
            device_attr=DeviceAttr.from_native(native.device_attr) if native.device_attr else None,
            bus_type=bus_type,
            pci=PciAttr.from_native(bus.attr.pci) if bus_type == BusType.PCI else None,
            link_attr=LinkAttr.from_native(native.link_attr) if native.link_attr else None,
        )
