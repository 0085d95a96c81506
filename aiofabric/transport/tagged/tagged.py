"""Tagged messages: a 64-bit tag decides which receive a message goes to (man page: fi_tagged)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..._ffi import constants
from ...arguments import check_number
from ...cq.loops.coroutines import coroutine_function
from ...errors import NotSupportedError
from ...features import Quirk
from ...memory import pin
from ..buffers import fill
from ..endpoint import Endpoint
from ..messages.inbox import RECEIVE_AT_SHARED
from ..messages.receive import Receives
from ..messages.send import Message, Sends

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ...address_vector import Peer
    from ...bufferlike import Buffers
    from ...cq.submission import Transfer
    from ...flags import OpFlags
    from ..handle import EndpointHandle

__all__ = ["Envelope", "Tagged", "TaggedReceives", "TaggedSends"]

_REMOTE_CQ_DATA = constants.FI_REMOTE_CQ_DATA
_UNSPEC = constants.FI_ADDR_UNSPEC


class Envelope(NamedTuple):
    """Data about a message: its length in bytes, its tag, its sender and the sender's completion data."""

    length: int
    tag: int
    source: Peer | None
    remote_data: int | None


class TaggedSends(Endpoint, Sends):
    """Tagged sends. Mixed into endpoints."""

    __slots__ = ()

    @coroutine_function
    def send_tagged(
        self,
        data: Buffers,
        tag: int,
        *,
        to: Peer | None = None,
        remote_data: int | None = None,
        flags: OpFlags | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Send one message under ``tag``; otherwise like `send`.

        Raises:
            ValueError: the tag is negative, or has bits that the provider uses (``info.ep_attr.mem_tag_format``).

        Man page: fi_tagged (fi_tsend, fi_tsendv, fi_tsenddata, fi_tsendmsg, fi_tinject).
        """
        return self._send("fi_tsend", data, tag, to, remote_data, flags)


class TaggedReceives(Endpoint, Receives):
    """Tagged receives. Mixed into endpoints.

    A receive takes the first message whose tag equals its own in all bits that are not set in ``ignore``.
    """

    __slots__ = ()
    _handle: EndpointHandle

    async def recv_tagged(
        self, tag: int, *, ignore: int = 0, source: Peer | None = None, max_bytes: int | None = None
    ) -> Message:
        """Receive the next message whose tag matches.

        Cancelling asks the provider and waits at most ``cancel_grace`` seconds; a message that still arrives goes to
        the next receive that it matches.

        Args:
            tag: the expected tag.
            ignore: bits of the tag that may differ.
            source: take messages of this peer only; needs `Caps.DIRECTED_RECV`.
            max_bytes: bytes of the largest message to accept; by default ``recv_size``.

        Raises:
            TruncatedMessageError: the message was longer than ``max_bytes``.
            ValueError: ``tag`` or ``ignore`` has bits that the provider uses (``info.ep_attr.mem_tag_format``: rxm with
                FI_COLLECTIVE uses one of 64), or ``ignore`` has only a part of one of its fields.
            NotSupportedError: ``ignore`` is not 0, and the provider is one that then loses messages (`Quirk`).
            ClosedResourceError: the endpoint is closed.

        Man page: fi_tagged (fi_trecv).
        """
        size = max_bytes if max_bytes is not None else self.recv_size
        if size is None:
            raise TypeError(
                "this endpoint was opened with recv_size=None: pass the size of the largest message, max_bytes="
            )
        check_number("max_bytes", size, 62)
        room = pin(bytearray(size), writable=True)
        message: Message = await self._receive(room, self._where(tag, ignore, source), source=source, private=True)
        return message

    async def recv_tagged_into(
        self, buffer: Buffers, tag: int, *, ignore: int = 0, source: Peer | None = None
    ) -> Envelope:
        """Receive the next message whose tag matches into ``buffer``, without a copy; otherwise like `recv_tagged`.

        ``buffer`` may be a list, whose members are filled in turn. The provider may write to it until the call returns.
        It stays pinned if the provider does not answer a cancel within ``cancel_grace`` seconds.

        Man page: fi_tagged (fi_trecv, fi_trecvv).
        """
        handle = self._handle
        posted = None
        if source is None and not (ignore or self._stash or handle.regions.busy):
            posted = handle.rx.receive(buffer, tag)
        if posted is not None:
            try:
                if handle.rx.received(posted) or await handle.rx.arrives(posted, self._keeper(posted, buffer)):
                    return self._envelope(posted, self._source_of(posted.source))
            finally:
                if handle.recalled:
                    handle.recalled.pop(posted, None)
        # A posted receive was checked when it was posted. If the endpoint has closed since, the operation reports it.
        where = self._where(tag, ignore, source) if posted is None else (_UNSPEC, tag, 0)
        pins = self._room(buffer)
        try:
            got = await self._receive(pins, where, source=source, posted=posted)
        except BaseException:
            del pins, posted  # as in `_receive`
            raise
        if isinstance(got, Message):
            fill(pins, got, len(got))
            return Envelope(len(got), got.tag, got.source, got.remote_data)
        return self._envelope(got, self._source_of(got.source))

    def _envelope(self, got: Transfer, source: Peer | None) -> Envelope:
        data = got.data if got.flags & _REMOTE_CQ_DATA else None
        # The same as Envelope.__new__, without a call of a Python function: saves 0.2 us.
        return tuple.__new__(Envelope, (got.length, got.tag, source, data))

    def _where(self, tag: int, ignore: int, source: Peer | None) -> tuple[int, ...]:
        handle = self._handle
        if not handle.thread_check.admits():
            raise handle.refuse("fi_trecv")
        if handle.pool is not None and handle.pool.is_shared:
            raise TypeError(RECEIVE_AT_SHARED)
        handle.tags.check(tag, ignore)
        if ignore and Quirk.IGNORE_FORGOTTEN in handle.known:
            detail = (
                "Over this provider, a receive with ignore= loses or misdelivers messages that arrived before it: "
                "leave out ignore=, and receive with the exact tag"
            )
            raise NotSupportedError(constants.FI_EOPNOTSUPP, "a receive that ignores bits of its tag", detail=detail)
        return (_UNSPEC if source is None else handle.receive_from(source), tag, ignore)


class Tagged(TaggedSends, TaggedReceives):
    """Tagged sends and receives."""

    __slots__ = ()
