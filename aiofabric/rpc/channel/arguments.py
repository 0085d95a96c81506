"""Arguments of a channel, checked when it is made: later, they would only be the reason why there is no connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arguments import check_type
from ...transport.opening.keywords import endpoint_options

__all__ = ["check_options", "check_timeout", "made_by"]

_OF_CONNECT = ("provider", "domain", "hints", "info")
_OF_RPC = ("recv_size", "recv_count", "param", "raw", "reservation")


def check_options(options: Any) -> dict[str, Any]:
    """The options of the channel's connections. Raises TypeError or ValueError for what `aiofabric.connect` refuses."""
    if options is None:
        return {}
    check_type("options", options, Mapping)
    found = dict(options)
    for name in found:
        check_type("the name of an option", name, str)
        if name in _OF_RPC:
            raise TypeError(f"options of a Channel cannot have {name}: RPC sets it itself (see Limits.recv_size)")
    left = {name: value for name, value in found.items() if name not in _OF_CONNECT}
    endpoint_options("Channel", left, chosen=_OF_RPC, own=_OF_CONNECT)
    return found


def check_timeout(seconds: Any) -> float:
    """The time for an attempt to connect."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"connect_timeout must be a number of seconds, not {seconds!r:.100}")
    if not seconds > 0:
        raise ValueError(f"connect_timeout must be more than 0 seconds, not {seconds!r}")
    return seconds


def made_by(name: str, make: Any, *methods: str) -> Any:
    """The object that the function ``make`` returns. Raises TypeError unless it has these methods."""
    if not callable(make):
        raise TypeError(f"{name} must be a function that makes one, not {make!r:.100}")
    made = make()
    if missing := [each for each in methods if not callable(getattr(made, each, None))]:
        raise TypeError(f"{name} must make an object with the method {missing[0]}(), but it made {made!r:.100}")
    return made
