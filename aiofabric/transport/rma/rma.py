"""RMA: read and write a peer's registered memory (man page: fi_rma)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._ffi import constants, ffi
from ...cq.operation import report_to
from ...device_memory import device_memory
from ...errors import NotSupportedError
from ...features import Quirk, require
from ...flags import Access, Caps, HmemIface, OpFlags
from ...memory import has_buffer, pin
from ...remote_region import RemoteRegion
from ...resource import Resource
from ...settings import flag_bits
from ..buffers import Pieces, gather

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...address_vector import Peer
    from ...bufferlike import Buffers, DeviceArray
    from ...cq.operation import Operation
    from ..handle import EndpointHandle
    from ..route import Route

__all__ = ["Rma", "room_for", "source_of"]


def room_for(handle: EndpointHandle, local: Any) -> Any:
    """The pinned buffers that a read fills: one, or several in turn."""
    if type(local) is list or type(local) is tuple:
        return Pieces.room(local, handle.info.tx_attr.iov_limit)
    return pin(local, writable=True)


def source_of(handle: EndpointHandle, local: Any) -> Any:
    """The pinned buffers of a write. If there are more than the provider carries, the last ones are joined."""
    if type(local) is list or type(local) is tuple:
        local, iov, count = gather(local, handle.info.tx_attr.iov_limit)
        if count > 1:
            return Pieces(local, iov)
    return pin(local)


class RegisteredArray(Pieces):
    """The memory of an array without the buffer protocol, which operations use by its registration only.

    Without a descriptor, a provider would take the address of a device for one of the host's, and crash.
    """

    __slots__ = ("_access", "_handle", "_pinned", "name")

    def __init__(self, handle: EndpointHandle, pinned: Any, access: Access, name: str) -> None:
        super().__init__([pinned], ffi.new("struct iovec *", (pinned, len(pinned))))
        self._handle, self._pinned, self._access, self.name = handle, pinned, access, name

    @property
    def registered(self) -> bool:
        """Whether an operation now finds a region that covers the memory."""
        regions = self._handle.regions
        return regions.busy and regions.find(self._handle, self._pinned, self._access) is not None

    def check(self, flags: int | None) -> None:
        """Raise if an operation with these flags cannot use the memory. Call it last before the post."""
        if (self._handle.tx_flags if flags is None else flags) & constants.FI_INJECT:
            detail = f"FI_INJECT copies host memory at once, and {self.name} may be in a device"
            raise NotSupportedError(constants.FI_EOPNOTSUPP, "FI_INJECT", detail=detail)
        if not self.registered:
            raise ValueError(
                f"no open region of the domain covers the memory of {self.name} and permits {self._access}: register "
                "it first, with domain.register()"
            )


def _array_of(handle: EndpointHandle, local: Any, access: Access) -> RegisteredArray | None:
    """The memory of ``local`` by DLPack or CUDA's array interface; None if it has neither, or is unregistered host
    memory.

    Raises:
        NotSupportedError: it is device memory, and the provider has no FI_HMEM.
        BufferError: it is not contiguous, or is read-only although it would be written.
    """
    memory = device_memory(local)
    if memory is None:
        return None
    on_device = memory.iface is not HmemIface.SYSTEM
    if on_device:
        _require_device_memory(handle)
    if access is Access.READ and memory.readonly:
        raise BufferError(f"cannot use this {type(local).__name__}: it is read-only")
    array = RegisteredArray(handle, memory.pin(), access, type(local).__name__)
    return array if on_device or array.registered else None


def _require_device_memory(handle: EndpointHandle) -> None:
    try:
        require(Caps.HMEM, handle.info)
    except NotSupportedError as error:
        error.detail += "; or copy the array to host memory first"
        raise
    if handle.regions.bound_to_endpoint:
        provider = handle.info.fabric_attr.prov_name
        detail = f"{provider} binds regions to an endpoint (FI_MR_ENDPOINT): there, only peers reach device memory"
        refusal = NotSupportedError(constants.FI_EOPNOTSUPP, "Device memory", detail=detail)
        refusal.cure = "Copy it to host memory first"
        raise refusal


def _local(handle: EndpointHandle, local: Any, access: Access) -> Any:
    """The pinned memory of a read or write."""
    refusal: Exception
    try:
        return (room_for if access is Access.READ else source_of)(handle, local)
    except (TypeError, NotSupportedError) as error:
        if type(local) is list or type(local) is tuple or has_buffer(local):
            raise
        refusal = error
    try:
        array = _array_of(handle, local, access)
        if array is None:
            raise refusal
        return array
    finally:
        del refusal


def _check_remote(what: str, size: int, remote: RemoteRegion, route: Route) -> None:
    if not isinstance(remote, RemoteRegion):
        raise TypeError(f"remote must be a RemoteRegion, not {type(remote).__name__}")
    remote._check(what, size, Access.REMOTE_READ if what == "fi_read" else Access.REMOTE_WRITE, route.name)
    route.check_size(size, what)


class Rma(Resource):
    """Read and write of remote memory. Mixed into endpoints."""

    __slots__ = ()
    _handle: EndpointHandle

    async def read(self, remote: RemoteRegion, *, to: Peer | None = None, flags: OpFlags | None = None) -> bytes:
        """Read all of ``remote``; see `read_into`."""
        if not isinstance(remote, RemoteRegion):
            raise TypeError(f"remote must be a RemoteRegion, not {type(remote).__name__}")
        buffer = bytearray(remote.length)
        await self.read_into(buffer, remote, to=to, flags=flags)
        return bytes(buffer)

    async def read_into(
        self,
        local: Buffers | DeviceArray,
        remote: RemoteRegion,
        *,
        to: Peer | None = None,
        flags: OpFlags | None = None,
    ) -> int:
        """Read ``len(local)`` bytes from the start of ``remote`` into ``local``; return their number.

        Returns when the data is in ``local``. The buffer stays pinned until then; a slice of a registered
        buffer uses its registration.

        Cancelling: most providers cannot stop a read. The buffer then stays pinned until the provider completes it
            (``abandoned`` in the statistics) or the endpoint is closed.

        Args:
            local: any writable contiguous buffer, or a list of buffers that are filled in turn; at most as long as
                ``remote``. Or an array in the memory of a device, registered with `Domain.register`.
            remote: the peer's memory; take a part with ``remote[start:stop]``.
            to: the peer; for connectionless endpoints, and required there.
            flags: `OpFlags.FENCE` and others; by default those of the endpoint.

        Raises:
            IndexError: ``local`` is longer than ``remote``; nothing was posted.
            ValueError: more buffers than ``tx_attr.iov_limit``; or an array of a device that is not registered.
            NotSupportedError: the endpoint was opened without `Caps.RMA`; or device memory, without `Caps.HMEM`.
            RemoteAccessError: the peer registered the memory for another kind of access, and nothing was posted. Or the
                peer refused, and the provider reports it.
            FabricConnectionError: the peer refused over tcp, which ends the connection on both sides without a reason.

        Man page: fi_rma (fi_read, fi_readv, fi_readmsg).
        """
        return await self._transfer("fi_read", _local(self._handle, local, Access.READ), remote, to, None, flags)

    def read_nowait(
        self,
        local: Buffers,
        remote: RemoteRegion,
        done: Callable[[BaseException | None], object],
        *,
        to: Peer | None = None,
    ) -> None:
        """Post a read now, or queue it in order; ``done(error)`` is called when the data is in ``local``, or with the
        reason why it will not be. It may be called before this method returns, if ``local`` is empty.

        For adapters that are built on callbacks. The buffers stay pinned until then, and the read cannot be cancelled.
        Otherwise as `read_into`.

        Man page: fi_rma (fi_read, fi_readv).
        """
        report = report_to(done)
        handle = self._handle

        def notify(operation: Operation) -> None:
            if operation.error is None:
                done(handle.read_ended())
            else:
                report(operation)

        if not handle.thread_check.admits():
            raise handle.refuse("fi_read")
        route = handle.route_to(to)
        pins = room_for(handle, local)
        _check_remote("fi_read", len(pins), remote, route)
        if len(pins):
            route.post_rma("fi_read", pins, remote, None, None).notify = notify
        else:
            done(None)

    async def write(
        self,
        local: Buffers | DeviceArray,
        remote: RemoteRegion,
        *,
        to: Peer | None = None,
        remote_data: int | None = None,
        flags: OpFlags | None = None,
    ) -> int:
        """Write all of ``local`` to the start of ``remote``; return the number of bytes.

        Returns when ``local`` may be changed again. The peer may not have the bytes yet: with tcp they are in the
        socket. A later read of the same memory, or an answer from the peer, proves the delivery.

        Cancelling: as for `read_into`; the write is still performed.

        Args:
            local: any contiguous buffer, or a list of buffers, written one behind the other; at most as long as
                ``remote``. Or an array in the memory of a device, registered with `Domain.register`; wait for the
                work of the device that fills it first.
            remote: the peer's memory; take a part with ``remote[start:stop]``.
            to: the peer; for connectionless endpoints, and required there.
            remote_data: up to 64 bits that the target receives (`remote_write`) when the bytes are in its memory.
            flags: a completion level (`OpFlags.DELIVERY_COMPLETE` ...), `OpFlags.FENCE` and others; by default those
                of the endpoint.

        Raises:
            IndexError: ``local`` is longer than ``remote``; nothing was posted.
            ValueError: an array of a device that is not registered.
            NotSupportedError: the endpoint was opened without `Caps.RMA`; or device memory, without `Caps.HMEM`.
            RemoteAccessError, FabricConnectionError: as for `read_into`; a tcp write is often reported as complete
                before the peer refuses it.

        Man page: fi_rma (fi_write, fi_writev, fi_writedata, fi_writemsg).
        """
        return await self._transfer(
            "fi_write", _local(self._handle, local, Access.WRITE), remote, to, remote_data, flags
        )

    async def _transfer(
        self,
        what: str,
        pins: Any,
        remote: RemoteRegion,
        to: Peer | None,
        remote_data: int | None,
        flags: OpFlags | None,
    ) -> int:
        handle = self._handle
        if not handle.thread_check.admits():
            raise handle.refuse(what)
        route = handle.tx
        if to is not None or route is None:
            route = handle.route_to(to)
        if handle.checkpoint is not None:
            await handle.checkpoint()
            handle.check_usable(what)
        size = len(pins)
        _check_remote(what, size, remote, route)
        if remote_data is not None:
            route.check_data(remote_data)
        elif size == 0:
            return 0
        if type(pins) is RegisteredArray:
            pins.check(flag_bits(flags))
        if remote_data is not None and size and Quirk.PARTIAL_WRITE_DATA_CRASHES in handle.known:
            data = route.post_rma(what, pins, remote, None, flag_bits(flags))
            transfer = route.post_rma(what, pin(b""), remote[:0], remote_data, flag_bits(flags))
            await route.outcome(transfer)  # not of the data: a write that is cancelled here must not be reported there
            transfer, handle.last_access = data, (what, size)
        else:
            transfer = route.post_rma(what, pins, remote, remote_data, flag_bits(flags))
        if route.finished(transfer) is None:
            await route.outcome(transfer)
        if what == "fi_read" and (error := handle.read_ended()) is not None:
            raise error
        return size
