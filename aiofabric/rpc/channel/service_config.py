"""ServiceConfig: retries, time limits and wait_for_ready of methods, from gRPC's service config (JSON)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..protocol.status import StatusCode

__all__ = ["MethodConfig", "RetryPolicy", "RetryThrottling", "ServiceConfig"]

_MOST_ATTEMPTS = 5
_duration = re.compile(r"(\d+(?:\.\d+)?)s").fullmatch


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most ``max_attempts`` attempts (5 at most) for the given codes; delays in seconds."""

    max_attempts: int
    initial_backoff: float
    max_backoff: float
    multiplier: float
    codes: frozenset[int]


@dataclass(frozen=True, slots=True)
class RetryThrottling:
    """Stops retries while more than about ``ratio`` of the calls fail."""

    max_tokens: float
    ratio: float


@dataclass(frozen=True, slots=True)
class MethodConfig:
    """Settings of one method. ``timeout`` in seconds."""

    retry: RetryPolicy | None = None
    wait_for_ready: bool | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """A parsed service config. An invalid one raises ValueError that names the field."""

    methods: Mapping[tuple[str, str], MethodConfig] = field(default_factory=dict)
    throttling: RetryThrottling | None = None
    policy: str | None = None

    @classmethod
    def parse(cls, text: str | Mapping[str, Any]) -> ServiceConfig:
        """Read the JSON text, or what it stands for."""
        if isinstance(text, str):
            try:
                text = json.loads(text)
            except ValueError as error:
                raise ValueError(f"the service config is not valid JSON: {error}") from None
        if not isinstance(text, Mapping):
            raise ValueError("a service config is a JSON object")
        methods = {}
        for entry in text.get("methodConfig", ()):
            config = _method_config(entry)
            for name in entry.get("name", ()):
                methods[name.get("service", ""), name.get("method", "")] = config
        throttling = None
        if (raw := text.get("retryThrottling")) is not None:
            throttling = RetryThrottling(float(raw["maxTokens"]), float(raw["tokenRatio"]))
            if not 0 < throttling.max_tokens <= 1000 or throttling.ratio <= 0:
                raise ValueError("retryThrottling: maxTokens must be above 0 and at most 1000, tokenRatio above 0")
        policy = text.get("loadBalancingPolicy")
        for choice in text.get("loadBalancingConfig", ()):
            known = [name for name in choice if name in ("pick_first", "round_robin")]
            if known:
                policy = known[0]
                break
        return cls(methods, throttling, None if policy is None else str(policy).lower())

    def method(self, path: str) -> MethodConfig:
        """The config of ``/service/method``: of the method, of its service, or of all."""
        methods = self.methods
        if not methods:
            return _NO_CONFIG
        service, _, method = path.removeprefix("/").partition("/")
        for key in ((service, method), (service, ""), ("", "")):
            if key in methods:
                return methods[key]
        return _NO_CONFIG


_NO_CONFIG = MethodConfig()


def _method_config(entry: Mapping[str, Any]) -> MethodConfig:
    retry = None
    if (raw := entry.get("retryPolicy")) is not None:
        attempts = raw.get("maxAttempts")
        if not isinstance(attempts, int) or attempts < 2:
            raise ValueError("retryPolicy: maxAttempts must be a whole number of at least 2")
        codes = frozenset(_code(each) for each in raw.get("retryableStatusCodes", ()))
        if not codes:
            raise ValueError("retryPolicy: retryableStatusCodes must name at least one code")
        multiplier = float(raw.get("backoffMultiplier", 0))
        if multiplier <= 0:
            raise ValueError("retryPolicy: backoffMultiplier must be above 0")
        first, longest = (_seconds(raw, name, "retryPolicy") for name in ("initialBackoff", "maxBackoff"))
        retry = RetryPolicy(min(attempts, _MOST_ATTEMPTS), first, longest, multiplier, codes)
    timeout = _seconds(entry, "timeout", "methodConfig") if "timeout" in entry else None
    return MethodConfig(retry, entry.get("waitForReady"), timeout)


def _code(value: Any) -> int:
    if isinstance(value, int):
        return value
    try:
        return StatusCode[str(value).upper()]
    except KeyError:
        raise ValueError(f"retryPolicy: retryableStatusCodes has an unknown code: {value!r}") from None


def _seconds(entry: Mapping[str, Any], name: str, where: str) -> float:
    found = _duration(str(entry.get(name, "")))
    if not found:
        raise ValueError(f"{where}: {name} must be a duration such as '0.5s', not {entry.get(name)!r}")
    return float(found[1])
