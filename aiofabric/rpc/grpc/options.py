"""Channel arguments: checked as gRPC does, and translated where the runtime has something like them.

docs/howto/grpc-aio.md has the table of what is translated, and what is ignored.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...cm.clients.backoff import Backoff
from ...cm.workarounds.keepalive import LEAST, MOST
from ..channel.service_config import ServiceConfig
from ..protocol.connection import DEFAULT_LIMITS, Limits
from ..protocol.preface import MOST_METADATA

__all__ = ["channel_arguments", "checked", "compressions", "endpoint_arguments", "limits_of", "number"]

_UNLIMITED = (1 << 31) - 1
_KEEPALIVE_TIMEOUT = 20_000  # gRPC's default, in milliseconds

_ALL = 0b111  # identity, deflate, gzip
_COMPRESSIONS = {"deflate": 1, "gzip": 2}


def checked(options: Any) -> dict[str, Any]:
    """The options by name. Raises TypeError or ValueError for what is not a sequence of pairs of a name and a value."""
    if isinstance(options, str | bytes | dict):
        raise TypeError(f"Options must be a sequence of pairs of a name and a value, not {options!r}")
    found: dict[str, Any] = {}
    for option in options or ():
        try:
            name, value = option
        except (TypeError, ValueError):
            raise ValueError(f"An option must be a pair of a name and a value, not {option!r}") from None
        if isinstance(name, bytes):
            name = name.decode()
        if not isinstance(name, str):
            raise TypeError(f"The name of an option must be str or bytes, not {name!r}")
        if not isinstance(value, int | str | bytes | tuple) and not hasattr(value, "__int__"):
            raise TypeError(f"The value of the option {name!r} must be int, str or bytes, not {value!r}")
        found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def number(options: dict[str, Any], name: str, default: int | None = None) -> int | None:
    """An option that must be an integer."""
    value = options.get(name, default)
    if value is not None and not isinstance(value, int):
        raise TypeError(f"The option {name!r} must be an integer, not {value!r}")
    return value


def compressions(options: dict[str, Any]) -> frozenset[str]:
    """The compressions that a server accepts calls with. (Nothing is compressed.)"""
    bits = number(options, "grpc.compression_enabled_algorithms_bitset", _ALL)
    assert bits is not None
    return frozenset(name for name, bit in _COMPRESSIONS.items() if bits >> bit & 1)


def limits_of(options: dict[str, Any]) -> Limits:
    """The limits of a channel or of a server."""
    changes: dict[str, Any] = {}
    for name, field in (
        ("grpc.max_receive_message_length", "max_message"),
        ("grpc.max_metadata_size", "max_metadata"),
        ("grpc.max_concurrent_streams", "max_calls"),
    ):
        value = number(options, name)
        if value is not None:
            changes[field] = value if value >= 0 else _UNLIMITED
    if "max_metadata" in changes:
        changes["max_metadata"] = min(changes["max_metadata"], MOST_METADATA)
    return replace(DEFAULT_LIMITS, **changes) if changes else DEFAULT_LIMITS


def endpoint_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `aiofabric.connect` and `aiofabric.listen`."""
    found: dict[str, Any] = {}
    if "aiofabric.provider" in options:
        found["provider"] = str(options["aiofabric.provider"])
    time = number(options, "grpc.keepalive_time_ms")
    if time is not None and 0 < time < _UNLIMITED:
        timeout = number(options, "grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT)
        assert timeout is not None
        # A silent peer is noticed within 1.5 periods of the heartbeat.
        found["heartbeat"] = min(max((time + timeout) / 1500, LEAST), MOST)
    return found


def channel_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `ChannelCore`. Raises ValueError for an invalid service config."""
    found: dict[str, Any] = {"options": endpoint_arguments(options)}
    if (text := options.get("grpc.service_config")) is not None:
        config = ServiceConfig.parse(text)
        if number(options, "grpc.enable_retries", 1) == 0:
            config = replace(config, methods={name: replace(each, retry=None) for name, each in config.methods.items()})
        found["service_config"] = config
    if (policy := options.get("grpc.lb_policy_name")) is not None:
        found["policy"] = str(policy)
    first = number(options, "grpc.initial_reconnect_backoff_ms", 1000)
    longest = number(options, "grpc.max_reconnect_backoff_ms", 120_000)
    assert first is not None
    assert longest is not None
    found["backoff"] = partial(Backoff, first / 1000, longest=longest / 1000)
    if (least := number(options, "grpc.min_reconnect_backoff_ms")) is not None:
        found["connect_timeout"] = max(least, 1) / 1000
    return found
