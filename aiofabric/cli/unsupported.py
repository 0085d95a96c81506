"""Errors for options that no provider supports; they name the command's flags, and not the fields of libfabric's
structures.
"""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from aiofabric.errors import NoProviderError
from aiofabric.info import FabricAttr, Hints, getinfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["UsageError", "check_provider", "port", "unmet"]


class UsageError(ValueError):
    """The command was used wrongly: exit status 2."""


def port(text: str) -> int:
    """A port number, for argparse."""
    if not text.isdecimal() or int(text) >= 1 << 16:
        raise ArgumentTypeError(f"a port must be 0 to 65535, not {text!r}")
    return int(text)


def check_provider(name: str | None) -> None:
    """Refuse a provider that does not exist.

    Raises:
        UsageError: the text lists the existing ones.
    """
    if not name:
        return
    try:
        getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name=name)))
    except NoProviderError:
        there = sorted({info.fabric_attr.prov_name for info in getinfo()})
        raise UsageError(f"no provider {name!r}; there are {', '.join(there)}") from None


def unmet(options: Namespace, flags: Mapping[str, str], ask: Callable[[Namespace], Sequence[object]]) -> str:
    """Describe that nothing matches the flags, and which flag excludes all offers.

    Args:
        flags: the names of the options that restrict the offers, and their flags.
        ask: returns the offers for other options; NoProviderError if there are none.
    """
    given = {name: flag for name, flag in flags.items() if getattr(options, name)}
    words = {name: f"{flag} {_typed(getattr(options, name))}" for name, flag in given.items()}

    def matches_without(name: str) -> bool:
        value = getattr(options, name)
        others = Namespace(**{**vars(options), name: type(value)(0) if isinstance(value, int) else ""})
        try:
            return bool(ask(others))
        except (NoProviderError, OSError):
            return False

    text = f"no provider has all of {' '.join(words.values())}" if words else "no provider on this machine has an offer"
    blamed = [words[name] for name in given if matches_without(name)]
    return f"{text}; it would match without {' or without '.join(blamed)}" if blamed and len(words) > 1 else text


def _typed(value: object) -> str:
    return "|".join(part.removeprefix("FI_").removeprefix("EP_").lower() for part in str(value).split(" | "))
