"""open_endpoint: find a provider for a connectionless endpoint, and open the endpoint (man page: fi_endpoint)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from ..._ffi import constants
from ...address_vector import AddressVector
from ...errors import FabricError, NoProviderError, NotSupportedError
from ...flags import AvType, Caps, EndpointType
from ...info import Hints
from ...info.place import place_in_hints
from ..opening.chosen import check_arguments
from ..opening.device_failures import name_other_devices
from ..opening.keywords import endpoint_options
from ..opening.selection import find
from .endpoint import DatagramEndpoint, RdmEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    from ...address import Address
    from ...domain import Domain
    from ...info import Info
    from ..opening.keywords import EndpointKeywords

__all__ = ["open_endpoint"]

_CAPS = {
    EndpointType.RDM: Caps.MSG | Caps.TAGGED | Caps.RMA | Caps.SOURCE | Caps.DIRECTED_RECV,
    EndpointType.DGRAM: Caps.MSG | Caps.SOURCE,
}


@overload
def open_endpoint(
    type: Literal[EndpointType.RDM],
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    caps: Caps | None = None,
    interface: str | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    av_type: AvType = AvType.UNSPEC,
    address_vector: AddressVector | None = None,
    **options: Unpack[EndpointKeywords],
) -> AbstractAsyncContextManager[RdmEndpoint]: ...
@overload
def open_endpoint(
    type: Literal[EndpointType.DGRAM],
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    caps: Caps | None = None,
    interface: str | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    av_type: AvType = AvType.UNSPEC,
    address_vector: AddressVector | None = None,
    **options: Unpack[EndpointKeywords],
) -> AbstractAsyncContextManager[DatagramEndpoint]: ...
@overload
def open_endpoint(
    type: EndpointType,
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    caps: Caps | None = None,
    interface: str | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    av_type: AvType = AvType.UNSPEC,
    address_vector: AddressVector | None = None,
    **options: Unpack[EndpointKeywords],
) -> AbstractAsyncContextManager[Any]: ...
@asynccontextmanager
async def open_endpoint(
    type: EndpointType,
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    caps: Caps | None = None,
    interface: str | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    av_type: AvType = AvType.UNSPEC,
    address_vector: AddressVector | None = None,
    **options: Unpack[EndpointKeywords],
) -> AsyncIterator[Any]:
    """Open a connectionless endpoint: ``async with open_endpoint(EndpointType.RDM) as ep``.

    Args:
        type: ``EndpointType.RDM`` gives an `RdmEndpoint`, ``EndpointType.DGRAM`` a `DatagramEndpoint`.
        node: the local address, if it must be a specific one; None for the ``src_addr`` of the hints.
        service: the local port or service name.
        provider: by name; by default the first that has such endpoints.
        domain: open it on this domain instead of one that the loop's endpoints share.
        caps: required capabilities; by default those of the domain, or all that aiofabric uses. Calls that need others
            raise `NotSupportedError`; ``Caps.SEND`` or ``Caps.RECV`` alone restrict messages.
        interface: the network interface (``"eth0"``, ``"ib0"``) or the device (``"mlx5_0"``, ``"cxi1"``) to use; by
            default the first of the provider.
        hints: further requirements (`Hints`).
        info: open it with this `Info` and no other; ``node`` and ``service`` change its local address.
        av_type: how the address vector numbers peers.
        address_vector: an address vector of the domain that several endpoints share; not over shm and sm2.
        options: see `EndpointOptions`. ``recv_size`` is also the default size of `RdmEndpoint.recv_tagged`.

    Leaving the block closes the endpoint; operations in flight end with ClosedResourceError.

    Raises:
        NoProviderError: no provider here has such endpoints, with these capabilities, over this interface.
        NotSupportedError: no provider has endpoints of this type (FI_EP_SOCK_STREAM, FI_EP_SOCK_DGRAM).
        ValueError: provider, domain, interface, hints, info and av_type contradict each other, or the domain was opened
            without capabilities that the endpoint needs.
        OSError: the local address is in use, or is not an address of this machine.

    Man page: fi_endpoint.
    """
    if not isinstance(type, EndpointType):
        raise TypeError(f"open_endpoint() takes the type first, EndpointType.RDM or EndpointType.DGRAM, not {type!r}")
    try:
        kind = _KINDS[type]
    except KeyError:
        if type in (EndpointType.MSG, EndpointType.UNSPEC):
            raise ValueError(f"{type} endpoints have one peer: use connect() and listen()") from None
        await _refuse(type, provider, hints)
    chosen = endpoint_options("open_endpoint", options)
    check_arguments(provider, domain, hints, info, interface)
    node = place_in_hints(node, service, hints, "src_addr")
    if address_vector is not None:
        domain = _domain_of(address_vector, domain, av_type)
    domain = chosen.domain_for(domain)
    if caps is not None:  # required, not only preferred
        if not isinstance(caps, int):
            raise TypeError(f"caps must be Caps, such as Caps.MSG | Caps.RMA, or None, not {caps!r}")
        hints = Hints() if hints is None else hints
        hints = replace(hints, caps=hints.caps | caps | (Caps.MULTI_RECV if chosen.multi_recv else Caps(0)))
    info = await find(
        node,
        service,
        kind=type,
        caps=_CAPS[type] | (Caps.MULTI_RECV if chosen.multi_recv else Caps(0)),
        provider=provider,
        domain=domain,
        hints=chosen.complete(hints, info),
        info=info,
        passive=node is not None or service is not None,
        interface=interface,
    )
    try:
        opened = kind(info, domain, chosen, av_type, address_vector)
    except FabricError as error:
        name_other_devices(info, error)
        raise
    async with opened as endpoint:
        yield endpoint


def _domain_of(vector: AddressVector, domain: Domain | None, av_type: AvType) -> Domain:
    """The domain of an address vector that endpoints share.

    Raises:
        TypeError: ``vector`` is not an address vector.
        ValueError: the endpoint has another domain, or another ``av_type``.
        ClosedResourceError: the address vector is closed.
    """
    if not isinstance(vector, AddressVector):
        raise TypeError(f"address_vector must be an AddressVector or None, not {vector!r}")
    vector._handle.check_open()
    if domain is not None and domain is not vector.domain:
        raise ValueError(f"{vector!r} is not of the domain of the endpoint, {domain!r}")
    if av_type != AvType.UNSPEC:
        raise ValueError("the address vector already has a type: leave out av_type beside address_vector")
    return vector.domain


async def _refuse(type: EndpointType, provider: str | None, hints: Hints | None) -> NoReturn:
    """Raise for endpoints of another type, with the providers' reason; no known provider has them."""
    try:
        info = await find(None, None, kind=type, caps=Caps.MSG, provider=provider, hints=hints)
        detail = f"The provider {info.fabric_attr.prov_name} offers {type}, which aiofabric does not support"
    except NoProviderError as error:
        detail = error.detail
    raise NotSupportedError(constants.FI_ENODATA, "fi_getinfo", detail=detail)


_KINDS = {EndpointType.RDM: RdmEndpoint, EndpointType.DGRAM: DatagramEndpoint}
