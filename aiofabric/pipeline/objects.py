"""Objects as items: how a Python object becomes the parts of an item, and back.

Large buffers inside an object, such as numpy's and Arrow's, are parts of their own: they are neither copied at the
producer nor at the consumer.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from .protocol.frames import MOST_PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MsgspecObjects", "Objects", "PickleObjects"]

_APART: Final = 4096
"""Bytes from which a buffer is a part of its own; smaller ones are copied into the first part."""
_BYTES: Final = b""
_VIEW: Final = b"v"
_MISSING: Final = "parts of the object are missing: pass all parts of the item, item.parts"

T = TypeVar("T")


class Objects(Protocol):
    """Makes parts of objects: ``await push.push(objects.encode(value))``, ``objects.decode(item.parts)``."""

    def encode(self, value: Any) -> list[Any]: ...
    def decode(self, parts: Sequence[Any]) -> Any: ...


class PickleObjects:
    """Any Python object, by pickle's protocol 5.

    Unpickling runs code that the peer has chosen. So this needs ``trusted=True``: the program says that it trusts
    everyone who can connect. `MsgspecObjects` needs no trust.

    An array that `decode` returns is a view of the item's memory: read-only, and the program's after the item's scope
    (its memory is not used again while the array exists). ``bytes`` are copied.
    """

    def __init__(self, *, trusted: bool = False) -> None:
        if trusted is not True:
            raise ValueError(
                "unpickling runs code that the peer has chosen: pass trusted=True if you trust all who can connect, "
                "or use MsgspecObjects"
            )

    def encode(self, value: Any) -> list[Any]:
        """The parts of an item. Raises what pickle raises for an object that cannot be pickled."""
        if type(value) is bytes:
            return [_BYTES, value]
        if type(value) is memoryview:
            return [_VIEW, value]
        buffers: list[pickle.PickleBuffer] = []

        def stays(buffer: pickle.PickleBuffer) -> bool:
            if len(buffers) == MOST_PARTS - 1 or buffer.raw().nbytes < _APART:
                return True
            buffers.append(buffer)
            return False

        data = pickle.dumps(value, protocol=5, buffer_callback=stays)
        return [data, *(buffer.raw() for buffer in buffers)]

    def decode(self, parts: Sequence[Any]) -> Any:
        """The object. Raises what unpickling raises, and ValueError if parts are missing."""
        if not parts or (len(parts) == 1 and parts[0] in (_BYTES, _VIEW)):
            raise ValueError(_MISSING)
        data = parts[0]
        if data == _BYTES:
            return bytes(parts[1])
        if data == _VIEW:
            return memoryview(parts[1])
        return pickle.loads(data, buffers=parts[1:])


class MsgspecObjects(Generic[T]):
    """Objects of one type that msgspec knows, in MessagePack; what comes is checked against the type.

    Args:
        type: such as a ``msgspec.Struct``, a dataclass, or ``dict[str, int]``.
    """

    def __init__(self, type: type[T]) -> None:
        import msgspec  # only for this class

        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(type)

    def encode(self, value: T) -> list[Any]:
        """The parts of an item. Raises TypeError for an object that msgspec does not know."""
        return [self._encoder.encode(value)]

    def decode(self, parts: Sequence[Any]) -> T:
        """The object. Raises ``msgspec.ValidationError`` if it is not of the type; ValueError if parts are missing."""
        if not parts:
            raise ValueError(_MISSING)
        return self._decoder.decode(parts[0])
