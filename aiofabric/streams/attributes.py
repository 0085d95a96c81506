"""Typed attributes of streams and listeners: those of anyio's sockets, and those that only a fabric has."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from anyio import TypedAttributeSet, typed_attribute
from anyio.abc import SocketAttribute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiofabric.address import Address
    from aiofabric.info import Info

__all__ = ["FabricAttribute", "address_attributes"]


class FabricAttribute(TypedAttributeSet):
    """Attributes of a stream or listener over a fabric: ``stream.extra(FabricAttribute.…)``.

    Streams and listeners also have anyio's `SocketAttribute`: addresses and ports, and the family if the fabric has IP
    addresses. They do not have ``raw_socket``.
    """

    info: Info = typed_attribute()
    """The Info that it was opened from: provider, fabric, domain and their attributes.

    :meta hide-value:
    """
    provider: str = typed_attribute()
    """The provider's name, layers included.

    :meta hide-value:
    """
    local_address: Address = typed_attribute()
    """The fabric address of this end.

    :meta hide-value:
    """
    remote_address: Address = typed_attribute()
    """The fabric address of the other end; streams only.

    :meta hide-value:
    """


def address_attributes(info: Info, local: Address, remote: Address | None = None) -> Mapping[Any, Callable[[], Any]]:
    """The attributes of an object with these addresses; anyio's attributes need a host and a port."""
    found: dict[Any, Callable[[], Any]] = {
        FabricAttribute.info: lambda: info,
        FabricAttribute.provider: lambda: info.fabric_attr.prov_name,
        FabricAttribute.local_address: lambda: local,
    }
    if local.host is not None:
        family = socket.AF_INET6 if ":" in local.host else socket.AF_INET
        found[SocketAttribute.family] = lambda: family
        found[SocketAttribute.local_address] = lambda: (local.host, local.port)
        found[SocketAttribute.local_port] = lambda: local.port
    if remote is not None:
        found[FabricAttribute.remote_address] = lambda: remote
        if remote.host is not None:
            found[SocketAttribute.remote_address] = lambda: (remote.host, remote.port)
            found[SocketAttribute.remote_port] = lambda: remote.port
    return found
