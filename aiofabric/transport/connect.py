"""connect and listen: the same endpoints on every provider (man page: fi_cm).

If a provider has connected endpoints, `connect` and `listen` use these. If it has none, connections run over its
connectionless endpoints. Only this module makes that choice.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, SupportsIndex

from ..address import Address, split_uri
from ..cm.accept_predicate import AcceptPredicate
from ..cm.handshake import check_param
from ..cm.listener import Listener
from ..cm.preface import MAX_PARAM, MOST_REDIRECTIONS, redirected_port
from ..cm.reservation import Reservation
from ..cq.reactor import Reactor
from ..errors import (
    FabricConnectionRefusedError,
    FabricConnectionRejectedError,
    FabricError,
    FabricTimeoutError,
    NoProviderError,
    UnreachableError,
)
from ..flags import EndpointType
from ..info import Hints
from ..info.place import check_remote, place_in_hints
from ..observe import span
from .connected.connect import accept_native, connect_native, listen_native
from .opening.chosen import check_arguments
from .opening.connect_options import ConnectOptions, any_provider
from .opening.device_failures import is_device, leave_out, name_other_devices
from .opening.keywords import endpoint_options
from .opening.resolution import at_port, must_resolve, places
from .opening.selection import find, find_connectable
from .opening.shared_objects import acquire_fabric, open_once
from .virtual.endpoint import accept_virtual, connect_virtual, listen_virtual

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Unpack

    from typing_extensions import Buffer

    from ..cm.requests import ConnectionRequest, RequestQueue
    from ..domain import Domain
    from ..info import Info
    from .connected.endpoint import MessageEndpoint
    from .opening.keywords import EndpointKeywords

__all__ = ["connect", "listen", "reserve"]


async def connect(
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    param: Buffer = b"",
    reservation: Reservation | None = None,
    raw: bool = False,
    interface: str | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    **options: Unpack[EndpointKeywords],
) -> MessageEndpoint:
    """Connect to a listener; return the connected endpoint.

    Args:
        node: host name (its addresses are tried in turn), numeric address, ``fi_sockaddr://host:port`` (then without
            service), an `Address`, or the text of one, such as ``fi_shm://...``; None for the ``dest_addr`` of the
            hints.
        service: port number or service name.
        provider: by name, such as ``"tcp"`` or ``"shm"``; by default the first that reaches the node.
        domain: open the endpoint on this domain instead of one that the loop's endpoints share.
        param: private data for the listener, at most 256 bytes, over verbs 55.
        reservation: connect from this address. A reservation can be used once.
        raw: ``node`` is the listener's ``fabric_address``. Needed only if that is an IP address, and so looks like the
            listener's ``address``; an address of another format is always a ``fabric_address``.
        interface: the network interface (``"eth0"``, ``"ib0"``, ``"hsn0"``) or the device (``"mlx5_0"``, ``"cxi1"``)
            to use; by default the first of the provider. Over a provider without connected endpoints, TCP finds the
            peer over any interface.
        hints: further requirements (`Hints`).
        info: open the endpoint with this `Info` and no other. Without a node, its ``dest_addr`` is the peer.
        options: see `EndpointOptions`: ``recv_size``, ``recv_count``, ``cancel_grace``, ``waiting``, ``busy_poll``.

    Returns when the listener has accepted; `MessageEndpoint.param` is the listener's answer. A listener may send the
    client on to another port of its host (`ConnectionRequest.redirect`). Cancelling closes the incomplete connection.
    libfabric has no time limit of its own: use `anyio.fail_after`.

    Raises:
        FabricConnectionRejectedError: the listener rejected the request (``param`` holds the answer).
        FabricConnectionRefusedError: no process listens at the address.
        UnreachableError, FabricTimeoutError: the network reported it. Or, over a provider without connected endpoints,
            TCP reaches the listener, and the fabric does not: no message passed within 10 seconds.
        NameResolutionError: the name does not resolve; it is a `socket.gaierror`, too.
        NoProviderError: no provider on this machine reaches the node with these hints, over this interface.
        ValueError: too much private data, no port, or an address of an unsupported form. Also: provider, domain,
            interface, hints and info contradict each other, or the domain was opened without capabilities that the
            endpoint needs.

    Man page: fi_cm (fi_connect).
    """
    chosen = endpoint_options("connect", options)
    check_arguments(provider, domain, hints, info, interface)
    node = place_in_hints(node, service, hints, "dest_addr")
    if info is not None and node is None and service is None:
        node, raw = info.dest_addr, info.ep_attr.type != EndpointType.MSG
    data = check_param(param, MAX_PARAM)
    check_remote(node, service)
    if isinstance(node, str) and "://" in node and (raw or split_uri(node) is None):
        node = Address.from_str(node)
    if raw and not isinstance(node, Address):
        raise TypeError(f"a raw address must be an Address, or its text, not {node!r}")
    wanted = ConnectOptions(
        provider=provider,
        domain=chosen.domain_for(domain),
        hints=_at(reservation, chosen.complete(hints, info)),
        info=info,
        endpoint=chosen,
        param=data,
        reservation=reservation,
        raw=raw or (isinstance(node, Address) and not node.family),
        interface=interface,
    )
    failure: FabricError | None = None
    for place in [(node, service)] if reservation is not None else await places(node, service):
        try:
            return await _follow(*place, wanted)
        except (FabricConnectionRefusedError, UnreachableError, FabricTimeoutError, NoProviderError) as error:
            if isinstance(error, FabricConnectionRejectedError):  # a listener answered: no other address is tried
                raise
            failure = failure or error
    assert failure is not None
    raise failure


async def _follow(node: str | Address | None, service: str | int | None, wanted: ConnectOptions) -> MessageEndpoint:
    """Connect to one place, or to the port to which its listener sends this client on."""
    for _ in range(1 + MOST_REDIRECTIONS):
        try:
            return await _connect_to(node, service, wanted)
        except FabricConnectionRejectedError as error:
            port = redirected_port(error.param)
            if port is None:
                raise
            if wanted.raw or wanted.info is not None or wanted.reservation is not None:
                error.detail = (
                    f"The listener sends clients on to port {port}, which raw=, info= and reservation= exclude"
                )
                raise
            rejection = error
        node, service = at_port(node, port)
    rejection.detail = f"Each of {1 + MOST_REDIRECTIONS} listeners sent the request on to another port"
    raise rejection


async def _connect_to(node: str | Address | None, service: str | int | None, wanted: ConnectOptions) -> MessageEndpoint:
    """Connect to one place, with connected endpoints or over connectionless ones."""
    while True:
        info = await find_connectable(
            node,
            service,
            provider=wanted.provider,
            domain=wanted.domain,
            hints=wanted.hints,
            info=wanted.info,
            interface=wanted.interface,
        )
        connect_over = connect_native if info.ep_attr.type == EndpointType.MSG else connect_virtual
        try:
            with span("connect", peer=info.dest_addr or node, provider=info.fabric_attr.prov_name):
                return await connect_over(info, node, service, wanted)
        except FabricError as error:
            if not (wanted.any_provider and leave_out(info, error)):
                name_other_devices(info, error)
                raise


@asynccontextmanager
async def listen(
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    backlog: int = 128,
    reservation: Reservation | None = None,
    accept: Callable[[ConnectionRequest], bool] | None = None,
    interface: str | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    **options: Unpack[EndpointKeywords],
) -> AsyncIterator[Listener]:
    """Listen for connections: ``async with listen(node, service) as listener``.

    Args:
        node: the local address; None for the ``src_addr`` of the hints, or else for all addresses.
        service: port number or service name; 0 or None for a free port (``listener.address.port``).
        provider: by name; by default the first that offers connected endpoints at this address.
        domain: open accepted endpoints on this domain.
        backlog: number of requests that may wait to be accepted; further requests are rejected.
        reservation: listen at this address, instead of ``node`` and ``service``. A reservation can be used once.
        accept: a plain function that gets each request (peer address, private data) before anything is opened for it.
            True queues the request; any other result rejects it. A result that is not a bool is reported to the loop's
            exception handler, once.
        interface: the network interface or the device to use, as for `connect`. Without ``node``, the listener is at
            the address of the interface; over a provider without connected endpoints, its TCP port is at all addresses.
        hints: further requirements (`Hints`).
        info: listen with this `Info` and no other. Without a node, its ``src_addr`` is the local address.
        options: of the accepted endpoints; see `EndpointOptions`.

    Leaving the block closes the listener and rejects the waiting requests; accepted endpoints stay open.

    Raises:
        OSError: the address is in use, or is not an address of this machine.
        NameResolutionError: the name does not resolve.
        TypeError: ``accept`` is async or not a function, or ``node`` is not an address.
        NoProviderError: no provider on this machine has such endpoints, at this address or over this interface.
        ValueError: provider, domain, interface, hints and info contradict each other.

    Man page: fi_cm (fi_listen).
    """
    defaults = endpoint_options("listen", options)
    check_arguments(provider, domain, hints, info, interface)
    predicate = None if accept is None else AcceptPredicate(accept)
    if isinstance(backlog, bool) or not isinstance(backlog, SupportsIndex):
        raise TypeError(f"backlog must be a number of requests, not {backlog!r}")
    if backlog < 1:
        raise ValueError(f"backlog must be at least 1, not {backlog}")

    async def open_accepted(request: ConnectionRequest, param: bytes, overrides: EndpointKeywords) -> MessageEndpoint:
        try:
            chosen = endpoint_options("accept", {**options, **overrides}) if overrides else defaults
        except BaseException:
            request._listener.withdraw(request)
            raise
        accept_over = accept_native if found.ep_attr.type == EndpointType.MSG else accept_virtual
        return await accept_over(request, domain, chosen, param)

    node = place_in_hints(node, service, hints, "src_addr")
    domain, hints = defaults.domain_for(domain), _at(reservation, defaults.complete(hints, info))
    if reservation is not None:
        node, service = reservation.address, None
    await must_resolve(node, service)
    free_choice = reservation is None and any_provider(provider, domain, hints, info)
    handle: RequestQueue
    while True:
        found = await find_connectable(
            node, service, provider=provider, domain=domain, hints=hints, info=info, passive=True, interface=interface
        )
        try:
            if found.ep_attr.type == EndpointType.MSG:
                if free_choice and is_device(found):
                    open_once(found)  # the queues of an accepted endpoint may be all that cannot be opened
                handle = listen_native(found, backlog, reservation)
            else:
                handle = await listen_virtual(found, node, service, domain, defaults, backlog)
            break
        except FabricError as error:
            if not (free_choice and leave_out(found, error)):
                name_other_devices(found, error)
                raise
    handle.screen = predicate
    async with Listener(handle, found, open_accepted) as listener:
        yield listener


@asynccontextmanager
async def reserve(
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    hints: Hints | None = None,
) -> AsyncIterator[Reservation]:
    """Reserve a local address for a later `connect` or `listen`: ``async with reserve(node) as reservation``.

    Args:
        node: the local address; None for the ``src_addr`` of the hints, or else for all addresses.
        service: port number or service name; 0 or None for a free port.
        provider: by name; by default the first that offers connected endpoints at this address.
        hints: further requirements (`Hints`).

    Pass the `Reservation` to `connect` or to `listen`. If it was not used, leaving the block frees the address.

    Raises:
        NoProviderError: no provider on this machine has connected endpoints of its own.
        OSError: the address is in use, or is not an address of this machine.

    Man page: fi_endpoint (fi_passive_ep), fi_getinfo (handle).
    """
    check_arguments(provider, None, hints)
    node = place_in_hints(node, service, hints, "src_addr")
    await must_resolve(node, service)
    info = await find(node, service, provider=provider, hints=hints, passive=True)
    fabric, release = acquire_fabric(Reactor.current(), info)
    try:
        reservation = Reservation(info, fabric)
    except BaseException:
        release()
        raise
    reservation._handle.on_release = release
    with reservation:
        yield reservation


def _at(reservation: Reservation | None, hints: Hints | None) -> Hints | None:
    """Add to the hints what a reserved address fixes: provider and fabric."""
    if reservation is None:
        return hints
    if not isinstance(reservation, Reservation):
        raise TypeError(f"reservation must be a Reservation or None, not {reservation!r}")
    hints = Hints() if hints is None else hints
    attr, own = replace(hints.fabric_attr), reservation.info.fabric_attr
    attr.prov_name, attr.name = own.prov_name, own.name
    return replace(hints, fabric_attr=attr)
