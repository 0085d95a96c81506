"""Closing a connection in order: the endpoint closes after everything that was sent has reached the peer.

If a socket is closed with unread data in it, the kernel resets the connection, and the reset destroys data that the
same side had sent. So the closing side sends its end mark behind its last message, receives and drops messages until
the peer ends, too, and then closes. The peer closes its native endpoint when it has read the end mark; messages that it
received before stay available to its program. A peer with direct receives (``recv_size=None``) gets no end mark:
without a posted receive it would not read the mark. With tcp of 1.17, the end of the connection behind the mark would
then not be reported, either.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from anyio import move_on_after

if TYPE_CHECKING:
    from ..handle import EndpointHandle

__all__ = ["abort_when_drained", "close_in_order"]

_log = logging.getLogger(__name__)


async def close_in_order(handle: EndpointHandle) -> None:
    """End a connection and wait for the peer's end, at most ``close_timeout`` seconds. The caller closes the endpoint.

    Cancelling ends the wait.
    """
    first = not handle.ending
    if first:
        handle.ending = True
        handle.thread_check.thread = 0
        if handle.pool is not None:
            handle.pool.discard(handle.closed_error)
    with move_on_after(handle.close_timeout) as limit:
        if not first or await handle.send_end():
            await _until_gone(handle)
    if limit.cancelled_caught:
        _log.debug("%s with %s: closed before the peer had ended the connection", handle.what, handle.peer_name)


async def _until_gone(handle: EndpointHandle) -> None:
    source = handle.source
    source.interest += 1  # a provider without a descriptor is polled meanwhile
    try:
        while handle.gone is None and not handle.closed:
            waiter = source.driver.create_waiter()
            handle.gone_waiters += (waiter,)
            source.touch_events()
            await waiter
    finally:
        source.interest -= 1


class _Endpoint(Protocol):
    _handle: EndpointHandle

    @property
    def closed(self) -> bool: ...
    def abort(self) -> None: ...


def abort_when_drained(endpoint: _Endpoint) -> None:
    """Abort an endpoint whose owner counts in the ``interest`` of its queue; after the progress pass that runs now.

    In a progress pass, the completions that the provider flushes at the close could not be read.
    """
    source = endpoint._handle.source
    if source.draining:
        source.driver.call_soon(partial(abort_when_drained, endpoint))
    elif not endpoint.closed:
        source.interest -= 1
        endpoint.abort()
