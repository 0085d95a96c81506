"""Targets and peers as gRPC writes them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ...cm.clients.targets import NOT_SUPPORTED, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...address import Address
    from ...cm.clients.targets import Target

__all__ = ["peer_name", "resolve_name"]

_PORT = "443"  # gRPC's, of a target without one


async def resolve_name(target: str) -> Sequence[Target]:
    """The addresses of a target: a name of gRPC's, or the text of an `Address`."""
    scheme, colon, rest = target.partition(":")
    if colon and scheme in NOT_SUPPORTED:
        return await resolve(target)
    if colon and scheme in ("ipv4", "ipv6"):
        return await resolve(f"{scheme}:" + ",".join(_with_port(each) for each in rest.lstrip("/").split(",")))
    if "://" in target and scheme != "dns":
        return await resolve(target)
    return await resolve(_with_port(target))


def _with_port(name: str) -> str:
    host = name.rpartition("/")[2].rpartition("]")[2]
    return name if ":" in host.removeprefix("dns:") else f"{name}:{_PORT}"


def peer_name(address: Address | None) -> str:
    """The address of a peer, such as ``ipv4:10.0.0.1:5000``."""
    if address is None:
        return "unknown"
    if address.family == socket.AF_INET:
        return f"ipv4:{address.host}:{address.port}"
    if address.family == socket.AF_INET6:
        return f"ipv6:[{address.host}]:{address.port}"
    return str(address)
