"""Messages: send, for every kind of endpoint (man page: fi_msg); receiving is in `receive`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...cq.loops.coroutines import coroutine_function
from ...cq.operation import report_to
from ...resource import Resource
from ...settings import flag_bits
from .batch import Batch
from .receive import Message, Receives

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ...address_vector import Peer
    from ...bufferlike import Buffers
    from ...flags import OpFlags
    from ..handle import EndpointHandle

__all__ = ["Message", "Messages", "Sends"]


class Sends(Resource):
    """Send methods. Mixed into endpoints. Each method says when it completes and when the buffer is free."""

    __slots__ = ()
    _handle: EndpointHandle

    @coroutine_function
    def send(
        self,
        data: Buffers,
        *,
        to: Peer | None = None,
        remote_data: int | None = None,
        flags: OpFlags | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Send one message: ``data`` is any contiguous buffer, or a list of buffers sent as one message.

        Returns when the caller may change the buffer: at once for small messages, which the provider copies; otherwise
        when the provider has taken the bytes (tcp: they are in the socket). It does not mean that the peer has them.
        On asyncio and uvloop, ``send(buffer)`` over tcp returns at once for up to 32 KiB, too: `bytes` are kept until
        they are sent, and other buffers are copied. At most 64 such messages, and 256 KiB, are under way.
        Above the transmit limit of the endpoint, sends to a peer wait, in order. Over tcp, messages that follow a first
        one at once leave in one segment when the task waits or the loop starts its next iteration.

        Cancelling: a message that still waits is not sent. A message that was posted is still sent, and its buffer
        stays pinned until the provider has completed it: do not change the buffer while `statistics` counts it as
        abandoned.

        Args:
            data: at most ``max_message_size`` bytes.
            to: the receiver; for connectionless endpoints, and required there.
            remote_data: up to 64 bits, delivered to the receiver as `Message.remote_data`.
            flags: a completion level (`OpFlags.DELIVERY_COMPLETE` ...), `OpFlags.FENCE` and others; ``OpFlags(0)`` for
                none. By default those of the endpoint.

        Raises:
            FabricConnectionError: the connection ended.
            MessageTooLongError: more bytes than the provider carries.
            ClosedResourceError: the endpoint is closed.

        Man page: fi_msg (fi_send, fi_sendv, fi_senddata, fi_sendmsg, fi_inject).
        """
        return self._send("fi_send", data, None, to, remote_data, flags)

    async def _send(
        self, call: str, data: Any, tag: Any, to: Peer | None, remote_data: int | None, flags: OpFlags | None
    ) -> None:
        """`send` with all its options, or `send_tagged` ("fi_tsend"), which needs a tag."""
        handle = self._handle
        route = handle.tx
        if to is not None or route is None:
            route = handle.route_to(to)
        if call == "fi_tsend" and tag >> handle.tag_bits:
            handle.tags.check(tag)
        if handle.checkpoint is not None:
            await handle.checkpoint()
        if remote_data is None and flags is None:
            must_yield = route.send(data, tag)
            if must_yield is not None:
                if must_yield:
                    await handle.source.yield_to_loop()
                return
        else:
            handle.check_usable(call)
        transfer = route.post(data, tag, remote_data, flag_bits(flags))
        if route.finished(transfer) is None:
            await route.outcome(transfer)

    def batch(self, *, to: Peer | None = None) -> Batch:
        """Many sends, one wait: ``async with ep.batch() as batch``; see `Batch`.

        On an endpoint opened with ``selective=True`` the provider reports only one in many of them.
        """
        self._handle.check_usable("fi_send")
        return Batch(self._handle, self._handle.route_to(to))

    def try_send(self, data: Buffers, *, to: Peer | None = None) -> bool:
        """Send a small message at once; False if it would have to wait or is larger than ``max_inject``.

        Raises:
            FabricConnectionError: the connection ended.
            ClosedResourceError: the endpoint is closed.
        """
        handle = self._handle
        if not handle.thread_check.admits():
            raise handle.refuse("fi_send")
        route = handle.route_to(to)
        if route.inject(data):
            return True
        if route.shut is not None:
            raise route.shut()
        return False

    def send_nowait(
        self,
        data: Buffers,
        done: Callable[[BaseException | None], object] | None = None,
        *,
        to: Peer | None = None,
    ) -> None:
        """Post now, or queue in order; ``done(error)`` is called when the caller may change the buffers.

        For adapters that are built on callbacks. The buffers stay pinned until then.
        """
        notify = None if done is None else report_to(done)
        handle = self._handle
        if not handle.thread_check.admits():
            raise handle.refuse("fi_send")
        route = handle.route_to(to)
        if route.inject(data):
            if done is not None:
                done(None)
            return
        transfer = route.post(data)
        if notify is not None:
            transfer.notify = notify


class Messages(Sends, Receives):
    """Send and receive."""

    __slots__ = ()
