"""Collectives: operations in which every member of a group takes part (man page: fi_collective).

libfabric's own implementation, below the ofi_rxm provider of 1.17 and 2.x, builds them from tagged messages of the
endpoint, and does not check its arguments. These errors end the process or write to wrong memory (util_coll.c,
coll_coll.c):

- a reduction without a handler for its elements;
- a broadcast whose length is not a multiple of the group's size;
- closing a group during an operation;
- the 257th group of an endpoint.

So these are checked here. Ranks are positions in the list of members. All members must pass the same list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import ClosedResourceError

from ..._ffi import constants, ffi, lib
from ...arguments import check_type
from ...errors import FabricError, NotSupportedError
from ...features import require
from ...flags import AtomicOp, Caps, CollectiveOp, Datatype
from ...memory import pin
from ...resource import Resource
from ..rma.operands import Operand, element_size, operand, result_like
from .group_handle import GroupHandle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...address import Address
    from ...address_vector import Peer
    from ...info import Info
    from ..rma.operands import Result
    from .handle import ConnectionlessHandle

__all__ = ["Collective", "Group"]

_MOST_GROUPS = 255
"""Groups of one endpoint in its lifetime. Their numbers are not used again (OFI_MAX_GROUP_ID), and the provider needs
one itself: the next group would use a bit behind the mask of free numbers."""

# If a collective message is larger than rxm's eager size, 16 KiB, rxm treats its completion as one of the caller's
# operations (rxm_cq.c), and then waits forever. The largest message of a tree is half of the data.
_MOST_BYTES = 8192
_BYTE = Datatype.UINT8


class Group(Resource):
    """A collective group that this endpoint has joined; made by `RdmEndpoint.join_collective`.

    Every member calls the same operations in the same order. A member that has ended, or does not call, blocks the
    others: use a deadline. After a cancel the operation stays with the provider, which cannot end it. Its buffers stay
    pinned until it completes or the endpoint is closed, and the group cannot be used any more.
    """

    __slots__ = ("members", "rank")
    _handle: GroupHandle

    def __init__(self, handle: GroupHandle, members: Sequence[Peer], rank: int) -> None:
        check_type("handle", handle, GroupHandle)
        self._handle = handle
        self.members = tuple(members)
        self.rank = rank

    def __len__(self) -> int:
        return len(self.members)

    def close(self) -> None:
        """Leave the group; the native group is closed when no operation is in flight any more."""
        self._handle.leave()

    @property
    def closed(self) -> bool:
        """Whether the group was left, or its endpoint closed."""
        return self._handle.left or self._handle.closed

    # -- operations whose result goes to all members

    async def barrier(self) -> None:
        """Wait until every member waits here (fi_barrier)."""
        self._ask(CollectiveOp.BARRIER)
        await self._run("fi_barrier", (), (), None)

    async def broadcast(self, buffer: Any, *, root: int) -> None:
        """Copy the root's ``buffer`` into the buffer of each member; all have the same length (fi_broadcast)."""
        self._ask(CollectiveOp.BROADCAST)
        self._check_root(root)
        pins = pin(buffer, writable=self.rank != root)
        for start, stop in _pieces(len(pins), _MOST_BYTES):
            share = -(-(stop - start) // len(self))
            whole = ffi.new("char[]", share * len(self))  # fi_broadcast moves whole shares, beyond the end of the data
            if self.rank == root:
                ffi.memmove(whole, pins + start, stop - start)
            await self._run("fi_broadcast", (whole, len(whole), ffi.NULL), (root, _BYTE, 0), whole)
            if self.rank != root:
                ffi.memmove(pins + start, whole, stop - start)

    async def allreduce(self, op: AtomicOp, value: Any, *, datatype: Datatype | None = None, result: Any = None) -> Any:
        """Combine the ``value`` of all members, element by element; return the result to all (fi_allreduce)."""
        given = operand(value, datatype)
        self._ask(CollectiveOp.ALLREDUCE, op, given.datatype)
        outcome = result_like(given, result)
        size = element_size(given.datatype)
        for start, stop in _pieces(given.count, _MOST_BYTES // size):
            parts = (given.pins + start * size, stop - start, ffi.NULL, outcome.pins + start * size, ffi.NULL)
            await self._run("fi_allreduce", parts, (given.datatype, op, 0), (given.pins, outcome.pins))
        return outcome.finish()

    async def allgather(self, value: Any, *, result: Any = None) -> Any:
        """Put the ``value`` of all members side by side, by rank, for all members (fi_allgather)."""
        self._ask(CollectiveOp.ALLGATHER)
        given = operand(value, None)
        outcome = result_like(given, result, times=len(self))
        size = len(given.pins)
        for start, stop in _pieces(size, _MOST_BYTES):
            width = stop - start
            row = ffi.new("char[]", width * len(self))
            parts = (given.pins + start, width, ffi.NULL, row, ffi.NULL)
            await self._run("fi_allgather", parts, (_BYTE, 0), (given.pins, row))
            for rank in range(len(self)):
                ffi.memmove(outcome.pins + rank * size + start, row + rank * width, width)
        return outcome.finish()

    async def alltoall(self, value: Any, *, result: Any = None) -> Any:
        """Send each member its share of ``value``, by rank; return the shares that the others sent (fi_alltoall)."""
        self._ask(CollectiveOp.ALLTOALL)
        given = operand(value, None)
        outcome = result_like(given, result)
        return await self._exchange("fi_alltoall", self._shares(given), outcome, (given.datatype, 0))

    async def reduce_scatter(self, op: AtomicOp, value: Any, *, result: Any, datatype: Datatype | None = None) -> Any:
        """Combine the ``value`` of all members; fill ``result`` with this member's share of it (fi_reduce_scatter)."""
        given = operand(value, datatype)
        self._ask(CollectiveOp.REDUCE_SCATTER, op, given.datatype)
        outcome = result_like(self._shares(given), result)
        return await self._exchange("fi_reduce_scatter", given, outcome, (given.datatype, op, 0))

    # -- operations with a root

    async def scatter(self, value: Any, *, root: int, result: Any) -> Any:
        """Fill ``result`` with this member's share of the root's ``value``, by rank (fi_scatter).

        Args:
            value: at the root, one share per member; ignored elsewhere.
            result: a writable buffer, of the same length at each member.
        """
        self._ask(CollectiveOp.SCATTER)
        self._check_root(root)
        room = pin(result, writable=True)
        size = len(room)
        source = pin(value) if self.rank == root else None
        if source is not None and len(source) != size * len(self):
            raise ValueError(f"value has {len(source)} bytes, but {len(self)} shares have {size} bytes each")
        for start, stop in _pieces(size, max(1, _MOST_BYTES // len(self))):
            width = stop - start
            shares = ffi.NULL
            if source is not None:
                shares = ffi.new("char[]", width * len(self))
                for rank in range(len(self)):
                    ffi.memmove(shares + rank * width, source + rank * size + start, width)
            parts = (shares, width, ffi.NULL, room + start, ffi.NULL)
            await self._run("fi_scatter", parts, (root, _BYTE, 0), (shares, room))
        return result

    async def gather(self, value: Any, *, root: int, result: Any = None) -> Any:
        """Put the ``value`` of all members side by side, by rank, for the root; None for the others (fi_gather)."""
        self._ask(CollectiveOp.GATHER)
        self._check_root(root)
        given = operand(value, None)
        outcome = result_like(given, result, times=len(self)) if self.rank == root else None
        return await self._exchange("fi_gather", given, outcome, (root, given.datatype, 0))

    async def reduce(
        self, op: AtomicOp, value: Any, *, root: int, datatype: Datatype | None = None, result: Any = None
    ) -> Any:
        """Combine the ``value`` of all members; return the result to the root, None to the others (fi_reduce)."""
        given = operand(value, datatype)
        self._ask(CollectiveOp.REDUCE, op, given.datatype)
        self._check_root(root)
        outcome = result_like(given, result) if self.rank == root else None
        return await self._exchange("fi_reduce", given, outcome, (root, given.datatype, op, 0))

    # -- how the calls are made

    def _ask(self, kind: CollectiveOp, op: AtomicOp = AtomicOp.NOOP, datatype: Datatype = Datatype.VOID) -> None:
        """Raise if the provider does not support the operation with these elements: its calls do not check."""
        self._check_member()
        attr = ffi.new("struct fi_collective_attr *")
        attr.op, attr.datatype = op, datatype
        endpoint = self._handle.endpoint
        assert endpoint.parent is not None
        rc = lib.fi_query_collective(endpoint.parent.fid, kind, attr, 0)
        if not rc:
            return
        what = f"{kind} with {op} and {datatype}" if op is not AtomicOp.NOOP else str(kind)
        detail = f"The provider {endpoint.info.fabric_attr.prov_name} does not support {what}"
        raise NotSupportedError(-rc, "fi_query_collective", detail=detail)

    def _check_member(self) -> None:
        handle = self._handle
        handle.endpoint.check_usable("fi_collective")
        handle.check_open()
        if handle.left:
            raise ClosedResourceError("this Group was left")

    def _check_root(self, root: int) -> None:
        if not 0 <= root < len(self):
            raise ValueError(f"root must be a rank, 0 to {len(self) - 1}, not {root}")

    def _shares(self, given: Operand) -> Operand:
        count, rest = divmod(given.count, len(self))
        if rest or not count:
            raise ValueError(f"{given.count} elements cannot be divided into {len(self)} equal shares")
        return Operand(given.datatype, count, given.pins, given.value)

    async def _exchange(self, call: str, given: Operand, outcome: Result | None, tail: tuple[Any, ...]) -> Any:
        room = ffi.NULL if outcome is None else outcome.pins
        arguments = (given.pins, given.count, ffi.NULL, room, ffi.NULL)
        await self._run(call, arguments, tail, (given.pins, room))
        return None if outcome is None else outcome.finish()

    async def _run(self, call: str, arguments: tuple[Any, ...], tail: tuple[Any, ...], pins: Any) -> None:
        handle = self._handle
        endpoint = handle.endpoint
        if endpoint.checkpoint is not None:
            await endpoint.checkpoint()
        self._check_member()  # the group may have been closed meanwhile, also between two pieces
        args = (endpoint.fid, *arguments, lib.fi_mc_addr(handle.fid), *tail)
        endpoint.source.polled[handle] = None
        await handle.submissions.outcome(handle.submissions.submit(call, getattr(lib, call), args, pins, 0))


def _pieces(count: int, most: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, most):
        yield start, min(start + most, count)


class Collective(Resource):
    """Joining groups. Mixed into endpoints; opened with `Caps.COLLECTIVE`."""

    __slots__ = ()
    _handle: ConnectionlessHandle
    info: Info
    local_address: Address

    async def join_collective(self, members: Sequence[Peer]) -> Group:
        """Join a group; return when all its members have joined.

        Args:
            members: the same endpoints in the same order at each member, including this one: add it as a peer of
                itself, ``add_peer(ep.local_address)``.

        Cancelling leaves the group as soon as the provider releases it.

        Raises:
            NotSupportedError: the endpoint was opened without `Caps.COLLECTIVE`, or no provider has it.
            ValueError: this endpoint is not among the members, or a member occurs twice.

        Man page: fi_collective (fi_av_set, fi_join_collective).
        """
        handle = self._handle
        handle.check_usable("fi_join_collective")
        require(Caps.COLLECTIVE, self.info)
        ranks = {peer: rank for rank, peer in enumerate(members)}
        if len(ranks) != len(members):
            raise ValueError("a member occurs twice in the list of members")
        for peer in members:
            handle.vector.check(peer)
        rank = next((rank for peer, rank in ranks.items() if peer.address == self.local_address), None)
        if rank is None:
            raise ValueError("this endpoint is not a member of the group: add it as a peer, add_peer(ep.local_address)")
        if handle.groups == _MOST_GROUPS:
            raise FabricError(
                constants.FI_ENOSPC,
                "fi_join_collective",
                detail=f"An endpoint joins at most {_MOST_GROUPS} groups in its life",
            )
        handle.groups += 1
        group = GroupHandle(handle, members)
        try:
            await group.join()
        except BaseException:
            group.leave()
            raise
        return Group(group, members, rank)
