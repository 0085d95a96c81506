"""Topics, keys and policies for slow subscribers, as programs pass them: checked."""

from __future__ import annotations

from typing import Any, Final, Literal, cast

from ..arguments import check_type
from .protocol.topics import MOST_NAME, WhenSlow

__all__ = ["Policy", "name_of", "policy_of"]

Policy = Literal["hold", "drop_oldest", "keep_last", "disconnect"]
_POLICIES: Final = {each.name.lower(): each for each in WhenSlow}


def policy_of(when_slow: Any) -> WhenSlow:
    """The policy with this name."""
    check_type("when_slow", when_slow, str)
    policy = _POLICIES.get(when_slow)
    if policy is None:
        raise ValueError(f"when_slow must be one of {', '.join(map(repr, _POLICIES))}, not {when_slow!r}")
    return policy


def name_of(what: str, name: Any) -> bytes:
    """A topic or key in UTF-8, checked."""
    check_type(what, name, str)
    try:
        encoded = cast("str", name).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a {what} must have a form in UTF-8: {error}") from None
    if len(encoded) > MOST_NAME:
        raise ValueError(f"a {what} has at most {MOST_NAME} bytes in UTF-8, not {len(encoded)}")
    return encoded
