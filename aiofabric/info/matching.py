"""Matching: whether an offer meets hints, because providers do not compare all of them."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..flags import AddressFormat, Caps, Flags
from .attributes import DomainAttr, EpAttr, RxAttr, TxAttr
from .hints import Hints, differences, words

if TYPE_CHECKING:
    from .attributes import FabricAttr

__all__ = ["contradictions", "of_provider", "same_provider", "suitable"]


class Offer(Protocol):
    """The parts of an `Info` that are compared with hints."""

    @property
    def caps(self) -> Caps: ...
    @property
    def addr_format(self) -> AddressFormat: ...
    @property
    def fabric_attr(self) -> FabricAttr: ...
    @property
    def domain_attr(self) -> DomainAttr: ...


_Offer = TypeVar("_Offer", bound=Offer)
_PARTS = {"tx_attr": TxAttr, "rx_attr": RxAttr, "ep_attr": EpAttr, "domain_attr": DomainAttr}
_SIZES = [
    f"{part}.{field.name}"
    for part, cls in _PARTS.items()
    for field in fields(cls)
    if type(field.default) in (int, bytes)
]
_all_sizes = attrgetter(*_SIZES)
_ABILITIES = ("mode", "domain_attr.mr_mode")
"""Fields with what the program supports: an offer must require no more."""
_OPEN = ("handle", "fabric_attr.fabric", "domain_attr.domain")


def of_provider(offers: list[_Offer], hints: Hints) -> list[_Offer]:
    """Return the offers of the provider that the hints name: with FI_PROV_ATTR_ONLY libfabric ignores the hints."""
    names = hints.fabric_attr.prov_name.split(";")
    return [info for info in offers if names == [""] or info.fabric_attr.prov_name in names]


def suitable(offers: list[_Offer], hints: Hints) -> list[_Offer]:
    """Return the offers that have the names and capabilities of the hints, and at least their sizes.

    Seen on loopback, with 1.17 and 2.5: no provider compares mr_key_size, cq_cnt, ep_cnt and most of the numbers of
    contexts; 1.17 drops an authorization key; with a node they have addresses of its IP version. rxm and rxd of 2.5
    offer the loopback device also for FI_REMOTE_COMM, without granting it.
    """
    sizes = [(path, wanted) for path, wanted in zip(_SIZES, _all_sizes(hints), strict=True) if wanted]
    return [
        info
        for info in offers
        if _is_named(info, hints)
        and not int(hints.caps) & ~int(info.caps)
        and _has_format(info, hints.addr_format)
        and all(_is_enough(path, wanted, attrgetter(path)(info)) for path, wanted in sizes)
    ]


def contradictions(info: Offer, hints: Hints) -> list[str]:
    """Return the hints that an info does not meet."""
    nothing = Hints()
    found = [
        f"{path}={words(path, wanted)}"
        for path, wanted in differences(hints, nothing)
        if path not in _OPEN and not _meets(path, wanted, attrgetter(path)(nothing), attrgetter(path)(info))
    ]
    return found or [str(hints)] * (not _is_named(info, hints))


def same_provider(wanted: str, offered: str) -> bool:
    """Return whether a provider's name, or the name of one layer, matches the offered one; layers come in any order."""
    return set(wanted.split(";")) <= set(offered.split(";"))


def _meets(path: str, wanted: Any, default: Any, offered: Any) -> bool:
    if path in _ABILITIES:
        return not int(offered) & ~int(wanted)
    if isinstance(default, Flags):
        return not int(wanted) & ~int(offered)
    if path in _SIZES:
        return _is_enough(path, wanted, offered)
    if path == "fabric_attr.prov_name":
        return same_provider(wanted, offered)
    return bool(wanted == offered) or wanted is AddressFormat.SOCKADDR


def _is_enough(path: str, wanted: Any, offered: Any) -> bool:
    if isinstance(wanted, bytes):
        return bool(wanted == offered)
    if path == "ep_attr.mem_tag_format":  # not a size but fields of a tag; the highest bit gives the length of tags
        return bool(offered.bit_length() >= wanted.bit_length())
    return bool(offered >= wanted)


def _has_format(info: Offer, wanted: AddressFormat) -> bool:
    """Return whether the addresses are of the IP version that the hints ask for: libfabric takes that of the node."""
    return wanted not in (AddressFormat.SOCKADDR_IN, AddressFormat.SOCKADDR_IN6) or info.addr_format == wanted


def _is_named(info: Offer, hints: Hints) -> bool:
    """Return whether fabric and domain have the names in the hints, or of the open objects in the hints.

    Seen on loopback: 1.17's IP providers do not compare the names, and no provider checks open objects.
    """
    fabric = getattr(hints.fabric_attr.fabric, "info", None)
    domain = getattr(hints.domain_attr.domain, "info", None)
    pairs = [
        (hints.fabric_attr.name, info.fabric_attr.name),
        (hints.domain_attr.name, info.domain_attr.name),
    ]
    for opened in filter(None, (fabric, domain)):
        pairs.append((opened.fabric_attr.prov_name, info.fabric_attr.prov_name))
        pairs.append((opened.fabric_attr.name, info.fabric_attr.name))
    if domain is not None:
        pairs.append((domain.domain_attr.name, info.domain_attr.name))
    return all(not wanted or wanted == offered for wanted, offered in pairs)
