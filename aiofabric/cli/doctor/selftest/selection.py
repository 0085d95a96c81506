"""The checks that fit the offers of this host: which providers, kinds of endpoints, and operations."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from aiofabric.cli.doctor.selftest.baseline import COMPARE
from aiofabric.cli.doctor.selftest.options import CONNECTED, DATAGRAM, RELIABLE, CheckOptions
from aiofabric.cli.unsupported import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["checks", "providers_of"]

SIZES = (1, 300, 1 << 16, 1 << 24)
_BY_NAME_ONLY = frozenset({"net", "sockets", "udp"})  # old, or without a use of their own
_ONE_HOST = frozenset({"shm", "sm2"})
_TYPES = {"FI_EP_MSG": CONNECTED, "FI_EP_RDM": RELIABLE, "FI_EP_DGRAM": DATAGRAM}

Offers = list[dict[str, Any]]


def providers_of(offers: Offers, named: Sequence[str], theirs: Offers | None) -> list[str]:
    """The providers to check: the named ones, or all that are of use here.

    Args:
        theirs: the offers of the other host, if there is one.

    Raises:
        UsageError: a named provider has no offers on one of the hosts.
    """
    there, at_peer = _names(offers), None if theirs is None else _names(theirs)
    for name in named:
        if name not in there:
            raise UsageError(f"no provider {name!r}; there are {', '.join(there)}")
        if at_peer is not None and name not in at_peer:
            raise UsageError(f"the other host has no provider {name!r}; it has {', '.join(at_peer)}")
    if named:
        return list(dict.fromkeys(named))
    found = [name for name in there if name.partition(";")[0] not in _BY_NAME_ONLY]
    if at_peer is None:
        return found
    return [name for name in found if name in at_peer and name not in _ONE_HOST]


def _names(offers: Offers) -> list[str]:
    return list(dict.fromkeys(offer["fabric_attr"]["prov_name"] for offer in offers))


def checks(offers: Offers, provider: str, named: Sequence[str], idle: float) -> Iterator[CheckOptions]:
    """The named checks of a provider, or all. A provider with reliable datagrams only has virtual connections."""
    for check in _all_checks(offers, provider, idle):
        if not named or check.check in named:
            yield check


def _all_checks(offers: Offers, provider: str, idle: float) -> Iterator[CheckOptions]:
    found: dict[str, Offers] = {}
    for offer in offers:
        if offer["fabric_attr"]["prov_name"] == provider and offer["ep_attr"]["type"] in _TYPES:
            found.setdefault(_TYPES[offer["ep_attr"]["type"]], []).append(offer)
    if CONNECTED in found or RELIABLE in found:
        yield from _of_kind(CONNECTED, found.get(CONNECTED) or found[RELIABLE], provider, idle)
    for kind in (RELIABLE, DATAGRAM):
        if kind in found:
            yield from _of_kind(kind, found[kind], provider, idle)


def _of_kind(kind: str, offers: Offers, provider: str, idle: float) -> Iterator[CheckOptions]:
    caps = {cap for offer in offers for cap in offer["caps"]}
    sizes = [size for size in SIZES if size <= max(offer["ep_attr"]["max_msg_size"] for offer in offers)]
    carries_data = any(offer["domain_attr"]["cq_data_size"] for offer in offers)
    names = ["messages"]
    if kind != DATAGRAM:
        names += ["remote data"] if carries_data else []
        names += ["tagged"] if kind == RELIABLE and "FI_TAGGED" in caps else []
        names += ["read", "write"] if "FI_RMA" in caps else []
        names += ["write with data"] if "FI_RMA" in caps and carries_data else []
        names += ["atomics"] if kind == RELIABLE and "FI_ATOMIC" in caps else []
    names += ["connections"] if kind == CONNECTED else []
    names += ["idle", "interrupt"]
    native = _TYPES[offers[0]["ep_attr"]["type"]] == kind
    names += [COMPARE] if native and shutil.which(COMPARE) else []
    for name in names:
        yield CheckOptions(provider, kind, name, sizes, idle)
