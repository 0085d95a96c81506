"""Message prefixes: providers that use the first bytes of each message buffer (FI_MSG_PREFIX; man page: fi_getinfo).

The datagram endpoints of efa and verbs put their headers there. A send copies the message behind a prefix. A receive
has room for a prefix and hides it. Neither counts it in the message size. Datagrams are short, so the copy is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._ffi import ffi
from ...flags import Mode
from ...memory import pin
from ..route import Route
from .pool import Pool, PoolBuffer

if TYPE_CHECKING:
    from ...cq.queue import Entry
    from ...cq.submission import Transfer
    from ...info import Info
    from ..handle import EndpointHandle

__all__ = ["PrefixPool", "PrefixRoute", "prefix_of"]


def prefix_of(info: Info) -> int:
    """Bytes before each message that the provider uses; 0 for none."""
    return info.ep_attr.msg_prefix_size if Mode.MSG_PREFIX in info.mode else 0


class PrefixRoute(Route):
    """A route that sends each message behind a prefix."""

    __slots__ = ()
    direct = False

    def _inject(self, data: bytes, tag: int | None) -> bool:
        return False  # `post` adds the prefix

    def post(
        self, data: Any, tag: int | None = None, remote_data: int | None = None, flags: int | None = None
    ) -> Transfer:
        pieces = data if type(data) in (list, tuple) else [data]
        message = bytearray(prefix_of(self.handle.info)) + b"".join(ffi.buffer(pin(piece)) for piece in pieces)
        return super().post(message, tag, remote_data, flags)

    def check_size(self, size: int, call: str) -> None:
        super().check_size(size - prefix_of(self.handle.info), call)


class _PrefixBuffer(PoolBuffer):
    __slots__ = ()

    def complete(self, entry: Entry) -> None:
        super().complete((*entry[:2], max(0, entry[2] - self.pool.extra), *entry[3:]))

    @property
    def view(self) -> memoryview:
        start = self.offset + self.pool.extra
        view: memoryview = self.pool.view[start : start + self.length]
        return view

    @property
    def contents(self) -> bytes:
        return bytes(self.view)


class PrefixPool(Pool):
    """A pool whose buffers have room for a prefix."""

    buffer_type = _PrefixBuffer

    def __init__(self, handle: EndpointHandle, size: int, count: int) -> None:
        super().__init__(handle, size, count, extra=prefix_of(handle.info))
