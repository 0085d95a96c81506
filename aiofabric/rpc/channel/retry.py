"""Retry: whether a failed attempt of a call is repeated, and when. No I/O; gRPC's proposal A6 has the rules."""

from __future__ import annotations

from random import uniform
from typing import TYPE_CHECKING

from ..protocol.status import StatusCode

if TYPE_CHECKING:
    from ..protocol.metadata import Metadata
    from .service_config import RetryPolicy, RetryThrottling

__all__ = ["MOST_REPLAY", "Retries", "Throttle"]

MOST_REPLAY = 262144
"""Bytes of sent messages that a call keeps for another attempt; with more it is committed to the one that runs."""

_PUSHBACK = "grpc-retry-pushback-ms"


class Throttle:
    """Tokens of a channel: a failure takes one, a success gives back a part. Retries need more than half of them."""

    __slots__ = ("_config", "_tokens")

    def __init__(self, config: RetryThrottling) -> None:
        self._config = config
        self._tokens = config.max_tokens

    def succeeded(self) -> None:
        self._tokens = min(self._config.max_tokens, self._tokens + self._config.ratio)

    def failed(self) -> bool:
        """Count a failure; whether retries are allowed now."""
        self._tokens = max(0.0, self._tokens - 1)
        return self._tokens > self._config.max_tokens / 2


class Retries:
    """The attempts of one call under a policy."""

    __slots__ = ("_backoff", "_policy", "_throttle", "attempts")

    def __init__(self, policy: RetryPolicy, throttle: Throttle | None) -> None:
        self._policy = policy
        self._throttle = throttle
        self._backoff = policy.initial_backoff
        self.attempts = 1

    def delay(self, code: int, trailing: Metadata) -> float | None:
        """Seconds until the next attempt after one that ended with ``code``; None: the call has failed."""
        if code == StatusCode.OK:
            if self._throttle is not None:
                self._throttle.succeeded()
            return None
        pushback = next((value for key, value in trailing if key == _PUSHBACK), None)
        if code in self._policy.codes or pushback is not None:
            allowed = self._throttle is None or self._throttle.failed()
        else:
            allowed = False
        if not allowed or code not in self._policy.codes or self.attempts >= self._policy.max_attempts:
            return None
        delay = uniform(0.8, 1.2) * self._backoff
        self._backoff = min(self._backoff * self._policy.multiplier, self._policy.max_backoff)
        if pushback is not None:
            text = pushback if isinstance(pushback, str) else ""
            if not text.isdecimal():
                return None  # negative or malformed: the server asks for no more attempts
            delay = int(text) / 1000
            self._backoff = self._policy.initial_backoff
        self.attempts += 1
        return delay
