"""Chosen: checks of the caller's provider, domain, hints and Info, and that they do not contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...domain import Domain
from ...info import Hints, Info, check_info
from ...info.matching import contradictions, same_provider
from ...resource import check_resource
from ...settings import check_receive_flags

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_agreement", "check_capabilities", "check_arguments"]


def check_arguments(
    provider: object, domain: object, hints: object, info: object = None, interface: object = None
) -> None:
    """Raise TypeError for keywords of a wrong type.

    Raises:
        ValueError: default flags that no endpoint can use, or an interface beside a domain or an info.
    """
    if not isinstance(provider, str | None):
        raise TypeError(f"provider must be a provider's name, such as 'tcp', or None, not {provider!r}")
    if not isinstance(domain, Domain | None):
        raise TypeError(f"domain must be a Domain or None, not {domain!r}")
    if not isinstance(hints, Hints | None):
        raise TypeError(f"hints must be a Hints or None, not {hints!r}")
    if not isinstance(info, Info | None):
        raise TypeError(f"info must be an Info, as getinfo() returns it, or None, not {info!r}")
    if hints is not None:
        check_receive_flags(hints.rx_attr.op_flags)
    if not isinstance(interface, str | None):
        raise TypeError(f"interface must be the name of a network interface or device, or None, not {interface!r}")
    if interface is None:
        return
    if not interface or "\0" in interface:
        raise ValueError(f"{interface!r} is not the name of a network interface or device")
    for what, opened in (("domain", domain), ("info", info)):
        if opened is not None:
            raise ValueError(f"interface={interface!r} contradicts {what}=, which has a device: leave one of them out")


def check_agreement(provider: str | None, domain: Domain | None, hints: Hints | None, info: Info | None) -> None:
    """Raise ValueError if two of these contradict each other, instead of ignoring one of them."""
    if domain is not None:
        check_resource("domain", domain, "Domain")
    for what, opened in (("info", info), ("domain", None if domain is None else domain.info)):
        if opened is None:
            continue
        offered = opened.fabric_attr.prov_name
        if provider is not None and not same_provider(provider, offered):
            raise ValueError(f"provider={provider!r} contradicts {what}=, which is of {offered}: leave one of them out")
    named = "" if hints is None else hints.fabric_attr.prov_name
    if provider is not None and named and not (same_provider(provider, named) or same_provider(named, provider)):
        raise ValueError(f"provider={provider!r} contradicts the hints, which name {named}: leave one of them out")
    if hints is not None and info is not None and (unmet := contradictions(info, hints)):
        raise ValueError(f"the info does not have what the hints ask for ({', '.join(unmet)}): leave one of them out")
    if domain is not None:
        for what, other in (("info", info), ("hints", hints)):
            if unlike := list(_other_names(domain.info, other)):
                raise ValueError(f"{what}= ({', '.join(unlike)}) contradicts domain=, which is {domain!r}")


def _other_names(own: Info, other: Info | Hints | None) -> Iterator[str]:
    if other is None:
        return
    if (name := other.fabric_attr.prov_name) and not same_provider(name, own.fabric_attr.prov_name):
        yield f"provider {name}"
    if (name := other.fabric_attr.name) and name != own.fabric_attr.name:
        yield f"fabric {name}"
    if (name := other.domain_attr.name) and name != own.domain_attr.name:
        yield f"domain {name}"


def check_capabilities(info: Info, domain: Domain) -> None:
    """Refuse an endpoint with capabilities or modes that its domain was opened without.

    1.17's rxm would read through a null pointer at the first message, because the domain has no table for FI_SOURCE.

    Raises:
        ValueError: the text names them.
    """
    check_info(info)
    if missing := info.caps & ~domain.info.caps:
        raise ValueError(
            f"the endpoint needs {missing}, but {domain!r} was opened without: open the domain with an Info that has "
            "them, getinfo(hints=Hints(caps=...)), or leave them out of the endpoint's capabilities"
        )
