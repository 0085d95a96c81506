"""Connecting, accepting and listening over a provider that has connected endpoints (FI_EP_MSG)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._ffi import constants
from ...cm.passive import PassiveHandle
from ...cq.reactor import Reactor
from ...errors import FabricConnectionAbortedError, FabricError
from ...features import Quirk, quirks
from ..opening.shared_objects import acquire_fabric
from .endpoint import MessageEndpoint

if TYPE_CHECKING:
    from ...address import Address
    from ...cm.requests import ConnectionRequest
    from ...cm.reservation import Reservation
    from ...domain import Domain
    from ...info import Info
    from ..opening.connect_options import ConnectOptions
    from ..opening.options import EndpointOptions

__all__ = ["accept_native", "connect_native", "listen_native"]


async def connect_native(
    info: Info, node: str | Address | None, service: str | int | None, wanted: ConnectOptions
) -> MessageEndpoint:
    """Connect over a provider that has connected endpoints, to the address in ``info``; see `connect`."""
    reservation = wanted.reservation
    descriptor = None
    if reservation is not None:
        reservation._handle.check_open()
        if Quirk.CLOSE_ENDS_REQUEST in quirks(info):  # fi_close would free the reservation: it takes it for a request
            info = info.replace(src_addr=reservation.info.src_addr)
        else:
            info = info.replace(handle=reservation)
        descriptor = next((each.descriptor for each in reservation.sockets), None)
    endpoint = MessageEndpoint(info, wanted.domain, wanted.endpoint, info.dest_addr, descriptor)
    if reservation is not None:  # it is empty: the endpoint has its address now
        reservation.close()
    await endpoint._connect(wanted.param)
    return endpoint


async def accept_native(
    request: ConnectionRequest, domain: Domain | None, options: EndpointOptions, param: bytes
) -> MessageEndpoint:
    """Accept a request that came to a passive endpoint."""
    try:
        endpoint = MessageEndpoint(request.info, domain, options, request.address, request._descriptor, request)
    except BaseException as error:
        request._listener.withdraw(request)
        if _has_left(request, error):
            detail = "The peer went away before the request was accepted"
            raise FabricConnectionAbortedError(
                constants.FI_ECONNABORTED, "fi_accept", peer=request.address, detail=detail
            ) from None
        raise
    await endpoint._accept(param, request.preface)
    return endpoint


def _has_left(request: ConnectionRequest, error: BaseException) -> bool:
    """Whether an endpoint could not be opened because the peer of the request has left (Quirk.LEFT_PEER_IS_INVALID)."""
    return (
        Quirk.LEFT_PEER_IS_INVALID in quirks(request.info)
        and isinstance(error, FabricError)
        and (error.call, error.errno) == ("fi_enable", constants.FI_EINVAL)
    )


def listen_native(info: Info, backlog: int, reservation: Reservation | None) -> PassiveHandle:
    """Open a passive endpoint on the loop's fabric, and listen."""
    fabric, release = acquire_fabric(Reactor.current(), info)
    try:
        handle = PassiveHandle(info, fabric, backlog, reservation)
    except BaseException:
        release()
        raise
    handle.on_release = release
    return handle
