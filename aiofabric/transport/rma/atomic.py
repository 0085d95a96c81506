"""Atomics: update a peer's memory without interruption by other operations (man page: fi_atomic)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._ffi import constants, ffi, lib
from ...errors import MessageTooLongError, NotSupportedError, check
from ...features import Quirk, quirks, require
from ...flags import Access, AtomicForm, AtomicOp, Caps, Datatype, OpFlags
from ...remote_region import RemoteRegion
from ...resource import Resource
from ...settings import flag_bits
from ..buffers import acquire_rma_parts, descriptors
from .operands import Operand, element_size, operand, result_like

if TYPE_CHECKING:
    from ...address_vector import Peer
    from ...info import Info
    from ..handle import EndpointHandle
    from ..route import Route
    from .operands import Result

__all__ = ["Atomic"]

_EAGAIN = constants.FI_EAGAIN
_NAMES = {
    AtomicForm.BASE: "fi_atomicmsg",
    AtomicForm.FETCH_ATOMIC: "fi_fetch_atomicmsg",
    AtomicForm.COMPARE_ATOMIC: "fi_compare_atomicmsg",
}
_VALID = {
    AtomicForm.BASE: "fi_atomicvalid",
    AtomicForm.FETCH_ATOMIC: "fi_fetch_atomicvalid",
    AtomicForm.COMPARE_ATOMIC: "fi_compare_atomicvalid",
}


class Atomic(Resource):
    """Atomic operations on a peer's registered memory. Mixed into endpoints.

    Operands are numbers with a ``datatype``, or buffers whose format names the element type: numpy arrays and scalars,
    `array.array`. Each element of ``remote`` from its start on is updated atomically; the operation as a whole is not
    atomic.
    """

    __slots__ = ()
    _handle: EndpointHandle
    info: Info

    async def atomic(
        self,
        op: AtomicOp,
        value: Any,
        remote: RemoteRegion,
        *,
        to: Peer | None = None,
        datatype: Datatype | None = None,
        flags: OpFlags | None = None,
    ) -> None:
        """Set each element of ``remote`` to ``op(remote, value)``.

        Returns when ``value`` may be changed again, or later if ``flags`` name a completion level.

        Cancelling: an operation that was posted is still performed; the operand stays pinned until then.

        Args:
            op: the operation; `atomic_count` says whether the provider supports it.
            value: the elements.
            remote: the peer's memory; registered there for remote reads and writes.
            to: the peer; for connectionless endpoints, and required there.
            datatype: of the elements, if the format of ``value`` does not name it.
            flags: `OpFlags.FENCE`, `OpFlags.DELIVERY_COMPLETE` and others; by default those of the endpoint.

        Raises:
            NotSupportedError: the provider does not support the operation with these elements.
            MessageTooLongError: more elements than the provider handles in one operation.
            IndexError: ``remote`` is shorter than ``value``; nothing was posted.
            RemoteAccessError, FabricConnectionError: the peer refused.

        Man page: fi_atomic (fi_atomicmsg).
        """
        given = operand(value, datatype)
        await self._perform(AtomicForm.BASE, op, given, None, None, remote, to, flags)

    def try_atomic(
        self,
        op: AtomicOp,
        value: Any,
        remote: RemoteRegion,
        *,
        to: Peer | None = None,
        datatype: Datatype | None = None,
    ) -> bool:
        """Like `atomic`, at once and without a completion; False if the operation would have to wait.

        The operand is copied: at most ``max_inject`` bytes.

        Man page: fi_atomic (fi_inject_atomic).
        """
        handle = self._handle
        handle.check_usable("fi_inject_atomic")
        route = handle.route_to(to)
        given = operand(value, datatype)
        self._check(AtomicForm.BASE, op, given, remote, route)
        if route.shut is not None:
            raise route.shut()
        if len(given.pins) > handle.inject_size or route.waiting or remote.raw:
            return False
        args = (given.pins, given.count, route.peer, remote.address, remote.key, given.datatype, op)
        rc = lib.fi_inject_atomic(handle.fid, *args)
        if rc == -_EAGAIN:
            return False
        check(rc, "fi_inject_atomic", peer=route.name)
        route.accessed()
        return True

    async def fetch_atomic(
        self,
        op: AtomicOp,
        value: Any,
        remote: RemoteRegion,
        *,
        to: Peer | None = None,
        datatype: Datatype | None = None,
        result: Any = None,
        flags: OpFlags | None = None,
    ) -> Any:
        """Like `atomic`; return the previous values of the elements.

        `AtomicOp.ATOMIC_READ` needs no ``value``: pass None, and ``datatype`` for one number or ``result`` for many.

        Args:
            result: a writable buffer for the previous values; by default an object like ``value`` is returned.

        Man page: fi_atomic (fi_fetch_atomicmsg).
        """
        given = operand(value, datatype) if value is not None else _nothing(datatype, result)
        before = result_like(given, result)
        await self._perform(AtomicForm.FETCH_ATOMIC, op, given, None, before, remote, to, flags)
        return before.finish()

    async def compare_atomic(
        self,
        op: AtomicOp,
        value: Any,
        compare: Any,
        remote: RemoteRegion,
        *,
        to: Peer | None = None,
        datatype: Datatype | None = None,
        result: Any = None,
        flags: OpFlags | None = None,
    ) -> Any:
        """Set each element to ``value`` where its relation to ``compare`` is ``op``; return the previous values.

        `AtomicOp.CSWAP` swaps on equality. `AtomicOp.MSWAP` swaps the bits that are set in ``compare``.

        Man page: fi_atomic (fi_compare_atomicmsg).
        """
        given = operand(value, datatype)
        against = operand(compare, given.datatype)
        if against.count != given.count:
            raise ValueError(f"{given.count} elements to write, {against.count} to compare with")
        before = result_like(given, result)
        await self._perform(AtomicForm.COMPARE_ATOMIC, op, given, against, before, remote, to, flags)
        return before.finish()

    def atomic_count(self, op: AtomicOp, datatype: Datatype, form: AtomicForm = AtomicForm.BASE) -> int:
        """How many elements the provider handles in one operation; 0 if it does not support the operation.

        Man page: fi_atomic (fi_atomicvalid, fi_fetch_atomicvalid, fi_compare_atomicvalid).
        """
        self._handle.check_open()
        if Caps.ATOMIC not in self.info.caps:
            return 0  # libfabric would call a null pointer of an endpoint without atomics
        if _unusable(op, form, self.info):
            return 0
        count = ffi.new("size_t *")
        valid = getattr(lib, _VALID[form])
        return 0 if valid(self._handle.fid, datatype, op, count) else int(count[0])

    # -- how the calls are made

    def _check(self, form: AtomicForm, op: AtomicOp, given: Operand, remote: RemoteRegion, route: Route) -> None:
        require(Caps.ATOMIC, self.info)
        most = self.atomic_count(op, given.datatype, form)
        call = _NAMES[form]
        if not most:
            why = _unusable(op, form, self.info) or f"it does not support {op} with {given.datatype} in this form"
            detail = f"The provider {self.info.fabric_attr.prov_name} of this libfabric cannot be used: {why}"
            raise NotSupportedError(constants.FI_EOPNOTSUPP, call, peer=route.name, detail=detail)
        if given.count > most:
            detail = f"There are {given.count} elements; the provider handles at most {most} at once"
            raise MessageTooLongError(constants.FI_EMSGSIZE, call, peer=route.name, detail=detail)
        size = given.count * element_size(given.datatype)
        if not isinstance(remote, RemoteRegion):
            raise TypeError(f"remote must be a RemoteRegion, not {type(remote).__name__}")
        needed = Access.REMOTE_READ if op is AtomicOp.ATOMIC_READ else Access.REMOTE_WRITE
        remote._check(call, size, needed, route.name)

    async def _perform(
        self,
        form: AtomicForm,
        op: AtomicOp,
        given: Operand,
        against: Operand | None,
        before: Result | None,
        remote: RemoteRegion,
        to: Peer | None,
        flags: OpFlags | None,
    ) -> None:
        handle = self._handle
        if not handle.thread_check.admits():
            raise handle.refuse(_NAMES[form])
        route = handle.route_to(to)
        if handle.checkpoint is not None:
            await handle.checkpoint()
        self._check(form, op, given, remote, route)
        bits = flag_bits(flags)
        if bits is None:
            bits = handle.tx_flags if form is AtomicForm.BASE else handle.tx_flags & ~OpFlags.INJECT
        own = route.check_flags(bits, len(given.pins))
        delivered = form is AtomicForm.BASE and own & OpFlags.DELIVERY_COMPLETE
        if delivered and Quirk.DELIVERED_ATOMIC_CORRUPTS in handle.known:
            detail = (
                "An atomic with FI_DELIVERY_COMPLETE would overwrite later messages over this provider: use "
                "fetch_atomic(), which returns after the delivery"
            )
            raise NotSupportedError(constants.FI_EOPNOTSUPP, "FI_DELIVERY_COMPLETE", peer=route.name, detail=detail)
        parts = [(given.pins, Access.WRITE)]
        if against is not None:
            parts.append((against.pins, Access.WRITE))
        if before is not None:
            parts.append((before.pins, Access.READ))
        key, found, registrations = acquire_rma_parts(handle, parts, remote)
        # Each part is a list of length 1: elements, its descriptor, 1.
        lists = [
            (ffi.new("struct fi_ioc *", (pins, given.count)), descriptors([descriptor]), 1)
            for (pins, _), descriptor in zip(parts, found, strict=True)
        ]
        target = ffi.new("struct fi_rma_ioc *", (remote.address, given.count, key))
        message = ffi.new("struct fi_msg_atomic *")
        message.msg_iov, message.desc, message.iov_count = lists[0]
        message.rma_iov, message.rma_iov_count = target, 1
        message.addr, message.datatype, message.op = route.peer, given.datatype, op
        more = [argument for each in lists[1:] for argument in each]
        call = _NAMES[form]
        args = (handle.fid, message, *more, own | OpFlags.COMPLETION)
        size = given.count * element_size(given.datatype)
        keep = (parts, lists, target, message)
        await route.outcome(route.submit(call, getattr(lib, call), args, keep, size, registrations, message=message))


def _unusable(op: AtomicOp, form: AtomicForm, info: Info) -> str:
    """Why an operation that the provider claims to support must not be used; empty if it may be."""
    known = quirks(info)
    if form is not AtomicForm.BASE and Quirk.FETCH_ATOMIC_CRASHES in known:
        return "atomics that fetch complete before their result is there, and then crash"
    if op is AtomicOp.ATOMIC_READ and Quirk.ATOMIC_READ_EMPTY in known:
        return "FI_ATOMIC_READ completes without a result; fetch with FI_SUM and 0, or FI_BOR"
    return ""


def _nothing(datatype: Datatype | None, result: Any) -> Operand:
    """The operand of a read: as many elements as the result has room for; one if there is no result buffer."""
    if result is None:
        return operand(0, datatype)
    return operand(result, datatype)
