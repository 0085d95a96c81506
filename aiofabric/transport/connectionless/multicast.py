"""Multicast: one datagram for all members of a group (man page: fi_cm, fi_join)."""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from ..._ffi import constants, ffi, lib
from ...address_vector import Peer
from ...cm.events import JOIN_COMPLETE, Event, EventError
from ...errors import FabricError, NotSupportedError, check, from_errno
from ...features import require
from ...flags import Caps
from ...resource import Handle, Resource
from ..route import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ...address import Address
    from ...address_vector import AddressVector
    from ...cq.loops.drivers import Waiter
    from ...cq.submission import Transfer
    from ...info import Info
    from .handle import ConnectionlessHandle

__all__ = ["Multicast", "MulticastGroup"]


class MulticastGroup(Peer):
    """A group that an endpoint has joined: ``to=group`` sends to all its members. Made by `DatagramEndpoint.join`."""

    __slots__ = ()

    def __init__(self, address: Address, native: int) -> None:
        super().__init__(address, native, None)  # it is in no address vector

    def __repr__(self) -> str:
        return f"<MulticastGroup {self.address}>"


class _GroupRoute(Route):
    """The route to a group. Its address is not from the address vector, so every call needs FI_MULTICAST."""

    __slots__ = ()
    direct = False

    def _inject(self, data: bytes, tag: int | None) -> bool:
        return False  # fi_inject takes no flags

    def post(
        self, data: Any, tag: int | None = None, remote_data: int | None = None, flags: int | None = None
    ) -> Transfer:
        return super().post(data, tag, remote_data, self.own_flags(flags) | constants.FI_MULTICAST)


class _Membership(Handle):
    """Handle of a native group membership; closing it leaves the group. It must close before the endpoint."""

    __slots__ = ("endpoint", "error", "waiter")

    def __init__(self, endpoint: ConnectionlessHandle, address: Address, flags: int) -> None:
        assert endpoint.events is not None
        self.endpoint = endpoint
        self.error: BaseException | None = None
        self.waiter: Waiter | None = None
        out, raw = ffi.new("struct fid_mc **"), ffi.new("char[]", address.raw)
        try:
            check(lib.fi_join(endpoint.fid, raw, flags, out, ffi.NULL), "fi_join", peer=address)
        except NotSupportedError as error:
            error.detail = f"The provider {endpoint.info.fabric_attr.prov_name} has no groups with such addresses"
            raise
        super().__init__("MulticastGroup", out[0], endpoint)
        endpoint.events.handle_events_of(self.fid, self)

    async def joined(self) -> None:
        """Wait for FI_JOIN_COMPLETE."""
        source = self.endpoint.source
        self.waiter = source.driver.create_waiter()
        source.touch_events()
        await self.waiter
        if self.error is not None:
            raise self.error

    def event(self, event: Event) -> None:
        if event.kind == JOIN_COMPLETE:
            # udp reports a failure as a plain event that contains an error entry, with a negative errno (udpx_ep.c).
            code = struct.unpack_from("=8xi", event.param)[0] if len(event.param) > 8 else 0
            self._answered(code)

    def event_error(self, error: EventError) -> None:
        self._answered(error.errno)

    def wait_failed(self, error: FabricError) -> int:
        if self.waiter is None or self.waiter.done():
            return 0
        self.error = error
        self.waiter.set_result(None)
        return 1

    def _answered(self, code: int) -> None:
        if code:
            self.error = from_errno(abs(code), "fi_join")
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def release(self) -> None:
        events = self.endpoint.events
        assert events is not None
        events.forget(int(ffi.cast("uintptr_t", self.fid)))
        rc = lib.fi_close(ffi.cast("struct fid *", self.fid))
        if self.error is None:  # udp cannot leave a group that it could not join
            check(rc, "fi_close")


class Multicast(Resource):
    """Joining multicast groups. Mixed into connectionless endpoints; opened with `Caps.MULTICAST`."""

    __slots__ = ()
    _handle: ConnectionlessHandle
    info: Info
    vector: AddressVector

    @asynccontextmanager
    async def join(self, address: Address | str | bytes, *, receive: bool = True) -> AsyncIterator[MulticastGroup]:
        """Join a multicast group: ``async with ep.join("fi_sockaddr_in://239.1.2.3:7471") as group``.

        ``await ep.send(data, to=group)`` sends to all members, also to this endpoint if it receives. Messages of other
        members arrive like all messages. udp receives messages to its own port, at an endpoint opened at ``0.0.0.0``.
        Leaving the block leaves the group; sends that still wait then end with ClosedResourceError.

        Args:
            address: the group's, in a form that `add_peer` takes.
            receive: False: only send to the group, if the provider makes a difference (udp does not).

        Raises:
            NotSupportedError: the endpoint was opened without `Caps.MULTICAST`, no provider has it, or the provider has
                no groups with such addresses (udp: IPv6).
            ValueError: this is not a multicast address, or the endpoint has joined the group already.
            FabricError: the provider refused.

        Man page: fi_cm (fi_join, fi_mc_addr, fi_close).
        """
        handle = self._handle
        handle.check_usable("fi_join")
        require(Caps.MULTICAST, self.info)
        where = self.vector.fit(address)
        if where.host is not None and not ip_address(where.host.partition("%")[0]).is_multicast:
            raise ValueError(f"{where} is not a multicast address")
        # The kernel ignores the port, and refuses a second membership. udp would end the first one with it.
        name = where.host or where
        if name in handle.group_names:
            raise ValueError(f"this endpoint has joined {name} already")
        handle.group_names.add(name)
        membership: _Membership | None = None
        try:
            membership = _Membership(handle, where, 0 if receive else constants.FI_SEND)
            await membership.joined()
            group = MulticastGroup(where, lib.fi_mc_addr(membership.fid))
            handle.by_peer[group] = route = _GroupRoute(handle, group.native, where)
            try:
                yield group
            finally:
                handle.by_peer.pop(group, None)
                route.close_off(handle.closed_error)  # a batch that holds the route posts no more
                route.fail_waiting(handle.closed_error)
                handle.leaving.append(route)
        finally:
            handle.group_names.discard(name)
            if membership is not None:
                membership.close()
