"""Selection: the one Info that an endpoint is opened with, chosen from the results of getinfo."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from ..._ffi import constants
from ...address import Address, is_ip, split_uri
from ...errors import NoProviderError
from ...features import Quirk, quirks
from ...flags import AddressFormat, Caps, EndpointType, MrMode
from ...info import DomainAttr, EpAttr, FabricAttr, Hints, Info
from ...info.discovery import offers
from ...info.interfaces import devices_of, names_of, uses
from ...info.place import check_place
from .chosen import check_agreement
from .device_failures import is_unusable
from .resolution import resolve

if TYPE_CHECKING:
    from ...domain import Domain

__all__ = ["find", "find_connectable"]

# Used only if named: libfabric 1.17's net keeps its descriptor readable all the time (59,000 empty wake-ups in 100 ms
# were seen), and sockets blocks inside fi_connect. In 2.x both are removed or deprecated. lnx has no plain messages.
_BY_NAME_ONLY = frozenset({"net", "sockets", "lnx"})
# EFA 2.x lists this fabric before its own reliable datagrams, and it has neither tags nor segmentation (efa_prov.c).
_BY_FABRIC_ONLY = frozenset({"efa-direct"})


def _by_name_only(provider: str) -> bool:
    return provider in _BY_NAME_ONLY or is_unusable(provider)


class OfferHints(NamedTuple):
    """Requirements for an offer."""

    hints: Hints
    interface: str | None = None
    """The network interface, or the device."""
    local: bool = True
    """Whether FI_MR_LOCAL stays in an offer of a provider that does not need it."""


async def find(
    node: str | Address | None,
    service: str | int | None,
    *,
    kind: EndpointType = EndpointType.MSG,
    caps: Caps = Caps.MSG | Caps.RMA,
    provider: str | None = None,
    domain: Domain | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    passive: bool = False,
    interface: str | None = None,
) -> Info:
    """The Info of the first suitable provider for endpoints of type ``kind``.

    Args:
        caps: requested if neither hints nor domain name capabilities; if no provider has all, FI_MSG alone is
            requested.
        info: the caller's own choice; only its address is set.
        interface: the network interface, or the device, that the offer must use.
        passive: ``node`` and ``service`` are the local address.

    Raises:
        NoProviderError: nothing matches; the text names the requirements.
        NameResolutionError: nothing matches because the name does not resolve.
        TypeError, ValueError: an invalid address, or arguments that contradict each other.
    """
    check_place(node, service)
    check_agreement(provider, domain, hints, info)
    if info is not None:
        if info.ep_attr.type != kind:
            raise ValueError(f"the info is of {info.ep_attr.type}, but the endpoint to open is {kind}")
        return await _placed(info, node, service, passive=passive)
    wanted = _complete(hints, kind, provider, domain, interface)
    preferred = (caps, Caps(0)) if domain is None else (_caps_of(domain), caps & _caps_of(domain))
    return await _best(node, service, wanted, preferred, passive)


def _caps_of(domain: Domain) -> Caps:
    """The capabilities that an endpoint of the domain may ask for: one that getinfo without hints grants is refused."""
    return domain.info.caps & ~Caps.AV_USER_ID


async def _best(
    node: str | Address | None,
    service: str | int | None,
    wanted: OfferHints,
    preferred: tuple[Caps, ...],
    passive: bool,
) -> Info:
    """The result of `_first`; if there is none, raise an error with the reasons."""
    info = await _first(node, service, wanted, preferred, passive)
    return info or await _reasons(node, service, wanted, passive)


async def _reasons(
    node: str | Address | None, service: str | int | None, wanted: OfferHints, passive: bool, *others: OfferHints
) -> Info:
    """Raise an error with the reasons why there is no offer. ``others`` may name further devices."""
    if wanted.interface is not None:
        found = [info for each in (wanted, *others) for info in await resolve(None, None, each.hints, call=offers)]
        if found and not any(uses(info, devices_of(wanted.interface)) for info in found):
            detail = (
                f"No offer is for the interface {wanted.interface!r}. Without interface=, there are offers for "
                f"{', '.join(names_of(found))}"
            )
            raise NoProviderError(constants.FI_ENODATA, "fi_getinfo", detail=detail)
    found = await resolve(node, service, wanted.hints, passive=passive)
    if wanted.interface is not None:
        reached = ", ".join(names_of(found))
        detail = f"{node or service} is not reached over the interface {wanted.interface!r}, but over {reached}"
        raise NoProviderError(constants.FI_ENODATA, "fi_getinfo", detail=detail)
    return found[0]


async def _first(
    node: str | Address | None,
    service: str | int | None,
    wanted: OfferHints,
    preferred: tuple[Caps, ...],
    passive: bool,
) -> Info | None:
    devices = frozenset[str]() if wanted.interface is None else devices_of(wanted.interface)

    async def ask(hints: Hints) -> list[Info]:
        place, port = node, service
        if devices and passive and node is None:
            found = [info for info in await resolve(None, None, hints, call=offers) if uses(info, devices)]
            own = found[0].src_addr if found else None
            if own is not None and own.family:  # the address of the interface, instead of all addresses
                place = own.host
        found = await resolve(place, port, hints, passive=passive, call=offers)
        schemes = {_scheme_of(info) for info in found}
        found = [info for info in found if _understands(info, place, schemes)]
        return [info for info in found if uses(info, devices)] if devices else found

    hints = wanted.hints
    found: list[Info] = []
    for caps in (hints.caps,) if hints.caps else preferred:
        if not found:
            hints = replace(hints, caps=caps)
            found = await ask(hints)
    if not hints.fabric_attr.prov_name:
        found = [i for i in found if not _by_name_only(i.fabric_attr.prov_name)] or found
    if not hints.fabric_attr.name:
        found = [i for i in found if i.fabric_attr.name not in _BY_FABRIC_ONLY] or found
    if not found:
        return None
    if wanted.hints.caps:
        await _refuse_layers(found, hints)
        found = _with_sources(found, hints)
    chosen = found[0]
    if MrMode.LOCAL in chosen.domain_attr.mr_mode and not wanted.local:
        attr = replace(hints.domain_attr, mr_mode=hints.domain_attr.mr_mode & ~MrMode.LOCAL)
        same = (info for info in await ask(replace(hints, domain_attr=attr)) if _names(info) == _names(chosen))
        chosen = next(same, chosen)
    return chosen


async def _refuse_layers(found: list[Info], hints: Hints) -> None:
    """Refuse a layer above the provider that the hints name, if that has such endpoints itself: the two have different
    protocols, so a peer that the provider itself opens reads the layer's header as data.

    Raises:
        NoProviderError: only the layer has what the hints ask for.
    """
    name, kind = hints.fabric_attr.prov_name, hints.ep_attr.type
    if not name or any(info.fabric_attr.prov_name == name for info in found):
        return
    bare = Hints(fabric_attr=FabricAttr(prov_name=name), ep_attr=EpAttr(type=kind))
    if any(info.fabric_attr.prov_name == name for info in await resolve(None, None, bare, call=offers)):
        layer = found[0].fabric_attr.prov_name
        detail = (
            f"{name} has {kind} endpoints, but not with {hints.caps}. {layer} has them, with another protocol: name it "
            "as provider, on both sides"
        )
        raise NoProviderError(constants.FI_ENODATA, "fi_getinfo", detail=detail)


def _with_sources(found: list[Info], hints: Hints) -> list[Info]:
    """Leave out offers that grant FI_SOURCE, and name no sender, if the hints ask for it.

    Raises:
        NoProviderError: no other offer is left.
    """
    if Caps.SOURCE not in hints.caps:
        return found
    left = [info for info in found if Quirk.NAMES_NO_SOURCE not in quirks(info)]
    if not left:
        name = found[0].fabric_attr.prov_name
        detail = f"{name} grants {Caps.SOURCE}, but its messages name no sender: put the sender into the message"
        raise NoProviderError(constants.FI_ENODATA, "fi_getinfo", detail=detail)
    return left


def _names(info: Info) -> tuple[object, ...]:
    """Fabric, domain and kind of endpoint of an offer: its requirements on memory may differ."""
    return (info.fabric_attr, info.domain_attr.name, info.ep_attr.type, info.ep_attr.protocol, info.addr_format)


def _scheme_of(info: Info) -> str:
    """How the text addresses of shm and sm2 begin."""
    return f"fi_{info.fabric_attr.prov_name}"


def _understands(info: Info, node: str | Address | None, schemes: set[str]) -> bool:
    """Whether a text address is of the provider's own format: sm2 would also accept shm's, and shm sm2's.

    Args:
        schemes: of all providers that accept the address.
    """
    if not isinstance(node, Address) or node.format != AddressFormat.ADDR_STR or info.src_addr is None:
        return True
    scheme = str(node).partition("://")[0]
    if scheme in schemes and scheme != _scheme_of(info):  # a local address becomes the src_addr of this Info, too
        return False
    return str(info.src_addr).partition("://")[0] == scheme


async def find_connectable(
    node: str | Address | None,
    service: str | int | None,
    *,
    provider: str | None,
    domain: Domain | None,
    hints: Hints | None,
    info: Info | None = None,
    passive: bool = False,
    interface: str | None = None,
) -> Info:
    """An Info for connections: of type FI_EP_MSG, or else FI_EP_RDM with tags.

    Connectionless endpoints are also chosen if the hints or the domain are for them. The node is then the host where
    TCP finds the peer. If the provider has IP addresses, the node also selects the interface.
    """
    check_agreement(provider, domain, hints, info)
    if info is not None:
        if info.ep_attr.type == EndpointType.DGRAM:
            raise ValueError(f"connections are made with FI_EP_MSG or FI_EP_RDM; the info is of {info.ep_attr.type}")
        connectionless = info.ep_attr.type == EndpointType.RDM
        return info if connectionless else await _placed(info, node, service, passive=passive)
    wanted = _complete(hints, EndpointType.MSG, provider, domain, interface)
    for_sure = (hints.ep_attr.type if hints is not None else 0) or (
        domain.info.ep_attr.type if domain is not None else 0
    )
    # The sockets provider refuses a peer with capabilities that the listener lacks: request few, though the domain
    # has more.
    offered = None if domain is None else _caps_of(domain)

    def preferred(caps: Caps) -> tuple[Caps, ...]:
        return (caps, Caps(0)) if offered is None else (caps & offered, offered)

    connected, tagged = preferred(Caps.MSG | Caps.RMA), preferred(Caps.TAGGED | Caps.RMA)
    if for_sure != EndpointType.RDM and (info := await _first(node, service, wanted, connected, passive)) is not None:
        return info
    if hints is not None and hints.caps:
        hints = replace(hints, caps=hints.caps | Caps.TAGGED)
    unconnected = _complete(hints, EndpointType.RDM, provider, domain, interface)
    raw = node if isinstance(node, Address) and not node.family else None  # of one provider's format
    info = await _first(raw, None, unconnected, tagged, False)
    if info is None:  # a second call, for the reasons
        for_both = unconnected if for_sure == EndpointType.RDM else wanted
        return await _reasons(node, service, for_both, passive, unconnected)
    host = _host(node)
    if passive and (raw is not None or (host is not None and "://" in host)):
        raise ValueError(
            f"{node} is an address of {info.fabric_attr.prov_name}, whose listeners share one endpoint of the loop: "
            "listen at a host and port, where TCP finds it"
        )
    if host is not None and info.src_addr is not None and info.src_addr.family:
        if passive and is_ip(host) and ip_address(host.partition("%")[0]).is_unspecified:
            # TCP listens at all addresses. The endpoint needs one of them: rxm takes no peer at 0.0.0.0 or [::].
            host = await _address_of_this_machine(unconnected, ":" in host) or host
        return await _best(host, None, unconnected, tagged, passive)
    return info


async def _address_of_this_machine(wanted: OfferHints, ipv6: bool) -> str | None:
    """The first address of the provider; one that is valid on its link only, if there is no other."""
    family = AddressFormat.SOCKADDR_IN6 if ipv6 else AddressFormat.SOCKADDR_IN
    found = await resolve(None, None, replace(wanted.hints, addr_format=family), call=offers)
    if wanted.interface is not None:
        found = [info for info in found if uses(info, devices_of(wanted.interface))]
    hosts = [info.src_addr.host for info in found if info.src_addr is not None and info.src_addr.host is not None]
    return min(hosts, key=lambda host: ip_address(host.partition("%")[0]).is_link_local, default=None)


def _host(node: str | Address | None) -> str | None:
    if isinstance(node, Address):
        return node.host
    if node is not None and (parts := split_uri(node)) is not None:
        return parts[0]
    return node


def _complete(
    hints: Hints | None,
    kind: EndpointType,
    provider: str | None,
    domain: Domain | None,
    interface: str | None = None,
) -> OfferHints:
    """Add the arguments of the call to the caller's hints."""
    hints = Hints() if hints is None else hints
    # A program that chose the modes, or opened the domain, decides about FI_MR_LOCAL itself.
    local = domain is not None or hints.domain_attr.mr_mode != DomainAttr().mr_mode
    hints = replace(hints, ep_attr=replace(hints.ep_attr, type=kind))
    if provider is not None:
        hints = replace(hints, fabric_attr=replace(hints.fabric_attr, prov_name=provider))
    if domain is not None:
        info = domain.info
        fabric = replace(hints.fabric_attr, prov_name=info.fabric_attr.prov_name, name=info.fabric_attr.name)
        hints = replace(hints, fabric_attr=fabric, domain_attr=replace(hints.domain_attr, name=info.domain_attr.name))
    return OfferHints(hints, interface, local)


async def _placed(info: Info, node: str | Address | None, service: str | int | None, *, passive: bool) -> Info:
    """Set the local (``passive``) or the peer's address in the caller's info; without node and service it stays as it
    is.

    Raises:
        NoProviderError: the info has addresses of another format.
    """
    if node is None and service is None:
        return info
    side = "src_addr" if passive else "dest_addr"
    if node is None and passive and info.src_addr is not None:
        node = info.src_addr.host  # getinfo has an interface for a port without a host over rxm only
    if not isinstance(node, Address):
        fabric, name = info.fabric_attr, info.domain_attr.name
        hints = Hints(
            addr_format=info.addr_format,
            ep_attr=EpAttr(type=info.ep_attr.type),
            fabric_attr=FabricAttr(prov_name=fabric.prov_name, name=fabric.name),
            domain_attr=DomainAttr(name=name),
        )
        node = getattr((await resolve(node, service, hints, passive=passive))[0], side)
    try:
        return info.replace(**{side: node})
    except ValueError as error:
        raise NoProviderError(constants.FI_ENODATA, "fi_getinfo", detail=str(error)) from None
