"""The type of a method's requests, from protobuf's descriptors.

A stub gives the channel a serializer only, `Request.SerializeToString`. In protobuf's C implementation, that is one
function of all messages, which also takes a message of another type. So the type is looked up by the name of the
method, which protobuf knows since the generated module was imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["checked_serializer"]


def checked_serializer(method: str, serializer: Callable[[Any], bytes] | None) -> Callable[[Any], bytes] | None:
    """``serializer``, or a function that also refuses messages which are not of the type of the method's requests."""
    if getattr(serializer, "__name__", "") != "SerializeToString":
        return serializer
    expected = _request_type(method)
    if expected is None:
        return serializer
    name = _name(expected)

    def serialize(message: Any) -> bytes:
        if type(message) is not expected and _name(type(message)) != name:  # a class of another pool has the name, too
            raise TypeError(f"A request of {method} must be of the type {name}, not {_name(type(message))}")
        return message.SerializeToString()  # type: ignore[no-any-return]

    return serialize


def _request_type(method: str) -> Any:
    """The class of a method's requests; None if protobuf does not know the method."""
    pools = sys.modules.get("google.protobuf.descriptor_pool")
    factory = sys.modules.get("google.protobuf.message_factory")
    if pools is None or factory is None:
        return None
    try:
        found = pools.Default().FindMethodByName(method.removeprefix("/").replace("/", "."))
        return factory.GetMessageClass(found.input_type)
    except (KeyError, AttributeError):  # AttributeError: a version of protobuf without these functions
        return None


def _name(kind: type) -> str:
    descriptor = getattr(kind, "DESCRIPTOR", None)
    return str(getattr(descriptor, "full_name", kind.__name__))
