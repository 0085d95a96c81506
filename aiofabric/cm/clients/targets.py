"""Targets: the addresses that a channel's target stands for.

A target is ``host:port``, ``dns:///host:port``, ``ipv4:1.2.3.4:port``, ``ipv6:[::1]:port`` (several, with commas
between them), or the text of an `Address`. A resolver of the program replaces this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from anyio import getaddrinfo

from ...address import Address

__all__ = ["NOT_SUPPORTED", "Resolver", "Target", "resolve", "split_host_port"]

Target = tuple[str | Address, int | str | None]
"""Node and service of `aiofabric.connect`."""

Resolver = Callable[[str], Awaitable[Sequence[Target]]]
"""Returns the addresses of a target; raises OSError if there are none now. It is asked again after failures."""


NOT_SUPPORTED = ("unix", "unix-abstract", "vsock", "xds", "google-c2p")


def split_host_port(text: str) -> tuple[str, str]:
    """``host:port`` or ``[host]:port``; ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not port or not host:
        raise ValueError(f"{text!r} is not of the form host:port")
    if host.startswith("["):
        if not host.endswith("]"):
            raise ValueError(f"{text!r} is not of the form [host]:port")
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address needs brackets, as in [::1]:50051")
    if port.lstrip("-").isdecimal() and not 0 <= int(port) <= 65535:
        raise ValueError(f"{text!r}: a port is at {'least 0' if port.startswith('-') else 'most 65535'}")
    return host, port


async def resolve(target: str) -> Sequence[Target]:
    """The addresses of ``target``, in the order of preference."""
    scheme, colon, rest = target.partition(":")
    if colon and (scheme in NOT_SUPPORTED or ("://" in target and not scheme.startswith(("fi_", "dns")))):
        raise ValueError(f"the scheme {scheme} of the target {target!r} is not supported: use a host and a port")
    if colon and scheme in ("ipv4", "ipv6"):
        return [split_host_port(each) for each in rest.lstrip("/").split(",")]
    if colon and scheme == "dns":
        rest = rest.removeprefix("//").partition("/")[2] if rest.startswith("//") else rest
        return await _names(rest)
    if "://" in target:
        address = Address.from_str(target)
        return [(address, None)]
    return await _names(target)


async def _names(text: str) -> Sequence[Target]:
    host, port = split_host_port(text)
    found = await getaddrinfo(host, port, type=1)
    return list(dict.fromkeys((str(entry[4][0]), int(entry[4][1])) for entry in found))
