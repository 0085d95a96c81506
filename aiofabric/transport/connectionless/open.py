"""open_endpoint: find a provider for a connectionless endpoint, and open the endpoint (man page: fi_endpoint)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from ..._ffi import constants
from ...address_vector import AddressVector
from ...errors import NoProviderError, NotSupportedError
from ...flags import AvType, Caps, EndpointType
from ...info import Hints
from ..opening.chosen import check_wishes
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
    hints: Hints | None = None,
    info: Info | None = None,
    av_type: AvType = AvType.UNSPEC,
    address_vector: AddressVector | None = None,
    **options: Unpack[EndpointKeywords],
) -> AsyncIterator[Any]:
    """Open a connectionless endpoint: ``async with open_endpoint(EndpointType.RDM) as ep``.

    Args:
        type: ``EndpointType.RDM`` gives an `RdmEndpoint`, ``EndpointType.DGRAM`` a `DatagramEndpoint`.
        node: the local address, where it has to be a certain one.
        service: the local port or service name.
        provider: by name; by default the first that has such endpoints.
        domain: open it on this domain instead of one that the loop's endpoints share.
        caps: what it must be capable of; by default what the domain was opened with, or all that aiofabric uses. Calls
            that they leave out raise `NotSupportedError`; ``Caps.SEND`` or ``Caps.RECV`` alone restrict messages.
        hints: further wishes (`Hints`).
        info: open it with this `Info` and no other; ``node`` and ``service`` change its local address.
        av_type: how the address vector numbers peers.
        address_vector: one of the domain that several endpoints share, instead of its own; not over shm and sm2.
        options: see `EndpointOptions`. ``recv_size`` is also the room of `RdmEndpoint.recv_tagged`.

    Leaving the block closes the endpoint; operations in flight end with ClosedResourceError.

    Raises:
        NoProviderError: no provider here has such endpoints, with these capabilities.
        NotSupportedError: they are of a kind that nobody has (FI_EP_SOCK_STREAM, FI_EP_SOCK_DGRAM).
        ValueError: provider, domain, hints, info and av_type contradict each other; the endpoint is to have
            capabilities that the domain was opened without.
        OSError: the local address is in use, or not this machine's.

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
    check_wishes(provider, domain, hints, info)
    if address_vector is not None:
        domain = _home_of(address_vector, domain, av_type)
    domain = chosen.home(domain)
    if caps is not None:  # to be had, not only to be preferred
        hints = Hints() if hints is None else hints
        hints = replace(hints, caps=hints.caps | caps | (Caps.MULTI_RECV if chosen.multi_recv else Caps(0)))
    info = await find(
        node,
        service,
        kind=type,
        caps=_CAPS[type] | (Caps.MULTI_RECV if chosen.multi_recv else Caps(0)),
        provider=provider,
        domain=domain,
        hints=hints,
        info=info,
        passive=node is not None or service is not None,
    )
    async with kind(info, domain, chosen, av_type, address_vector) as endpoint:
        yield endpoint


def _home_of(vector: AddressVector, domain: Domain | None, av_type: AvType) -> Domain:
    """The domain of an address vector that endpoints share.

    Raises:
        TypeError: it is none.
        ValueError: the endpoint is to be opened on another domain, or with other numbers.
        ClosedResourceError: it is closed.
    """
    if not isinstance(vector, AddressVector):
        raise TypeError(f"address_vector is an AddressVector, or None, not {vector!r}")
    vector._handle.check_open()
    if domain is not None and domain is not vector.domain:
        raise ValueError(f"{vector!r} is not of the domain of the endpoint, {domain!r}")
    if av_type != AvType.UNSPEC:
        raise ValueError("av_type is the address vector's: leave it out beside address_vector")
    return vector.domain


async def _refuse(type: EndpointType, provider: str | None, hints: Hints | None) -> NoReturn:
    """Endpoints of another kind: the providers' own answer, which was no whenever it was heard."""
    try:
        info = await find(None, None, kind=type, caps=Caps.MSG, provider=provider, hints=hints)
        detail = f"The provider {info.fabric_attr.prov_name} offers {type}, which aiofabric has no use for"
    except NoProviderError as error:
        detail = error.detail
    raise NotSupportedError(constants.FI_ENODATA, "fi_getinfo", detail=detail)


_KINDS = {EndpointType.RDM: RdmEndpoint, EndpointType.DGRAM: DatagramEndpoint}
