"""Hello: what each side announces in the private data of the connection."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

__all__ = ["Hello", "HelloError", "Role"]

_FORMAT: Final = struct.Struct("<4sBBBxIIQQ16s")
"""48 bytes: the connections with the least room, those of verbs, carry 55."""
_MAGIC: Final = b"aioP"
_VERSION: Final = 3
LEAST_RECV_SIZE: Final = 4096


class HelloError(Exception):
    """The peer is not the other end of a pipeline; the text says what it is, or what it lacks."""


class Role(IntEnum):
    """A side sends items, or receives them."""

    PUSH = 0
    PULL = 1
    PUBLISH = 2
    SUBSCRIBE = 3
    WATCH = 4  # looks at the statistics of an end that listens


_OTHER: Final = {
    Role.PUSH: Role.PULL,
    Role.PULL: Role.PUSH,
    Role.PUBLISH: Role.SUBSCRIBE,
    Role.SUBSCRIBE: Role.PUBLISH,
}
_RECEIVERS: Final = (Role.PULL, Role.SUBSCRIBE)


@dataclass(frozen=True, slots=True)
class Hello:
    """The announcement of one side.

    ``id``: 16 bytes that name the producer or the consumer. ``recv_size``: bytes of the largest fabric message to it.
    ``window`` and ``window_bytes``: items, and bytes of items, that a consumer has room for. ``max_item_size``: bytes
    of the largest item that it takes. ``at_least_once``: the producer keeps items until they are acknowledged, and the
    consumer acknowledges what it has finished.
    """

    role: Role
    id: bytes
    recv_size: int
    window: int = 0
    window_bytes: int = 0
    max_item_size: int = 0
    at_least_once: bool = False

    def pack(self) -> bytes:
        """The hello as private data."""
        sizes = (self.recv_size, self.window, self.window_bytes, self.max_item_size)
        return _FORMAT.pack(_MAGIC, _VERSION, self.role, self.at_least_once, *sizes, self.id)

    def check_other(self, param: bytes) -> Hello:
        """The other side's hello. Raises `HelloError` if it has none, or one that does not fit this side."""
        if len(param) != _FORMAT.size or not param.startswith(_MAGIC):
            raise HelloError("one side is a pipeline's, the other one is not (aiofabric.pipeline)")
        _, version, role, at_least_once, recv_size, window, window_bytes, most, name = _FORMAT.unpack(param)
        if version != _VERSION:
            raise HelloError(f"the peer has version {version} of the pipeline protocol; this side has {_VERSION}")
        if role not in Role.__members__.values():
            raise HelloError(f"the peer has the role {role}, which this side does not know")
        if Role.WATCH not in (role, self.role) and role != _OTHER[self.role]:
            ours, other, its = (each.name.title() for each in (self.role, _OTHER[self.role], Role(role)))
            raise HelloError(f"a {ours} connects with a {other}, not with a {its}")
        if recv_size < LEAST_RECV_SIZE or (role in _RECEIVERS and not (window and window_bytes)):
            raise HelloError(f"the peer has room for {recv_size} bytes a message, {window} items, {window_bytes} bytes")
        return Hello(Role(role), name, recv_size, window, window_bytes, most, bool(at_least_once))
