"""Settings: the options and operation flags of an opened endpoint (man page: fi_endpoint; fi_getopt, fi_control)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ._ffi import constants, ffi, lib
from .arguments import check_number
from .errors import FabricError, NotSupportedError, check
from .features import Quirk, describe, quirks
from .flags import Datatype, EndpointOption, HmemIface, HmemP2P, OpFlags

if TYPE_CHECKING:
    from .info import Info
    from .resource import Handle

__all__ = ["EndpointSettings", "TriggerVariable", "check_receive_flags", "flag_bits"]

T = TypeVar("T")

_DIRECTIONS = constants.FI_TRANSMIT | constants.FI_RECV


@dataclass(frozen=True, slots=True)
class TriggerVariable:
    """Words that a device must write to start an operation: ``count`` words of a type."""

    datatype: Datatype
    count: int


class _Option(Generic[T]):
    """One option as a typed attribute; the Python type determines the C type."""

    def __init__(self, name: str, kind: type[T], ctype: str, doc: str) -> None:
        self.name, self.kind, self.ctype = name, kind, ctype
        self.__doc__ = doc

    @overload
    def __get__(self, settings: None, owner: type) -> _Option[T]: ...
    @overload
    def __get__(self, settings: EndpointSettings, owner: type) -> T: ...
    def __get__(self, settings: EndpointSettings | None, owner: type) -> _Option[T] | T:
        if settings is None:
            return self
        value = ffi.new(f"{self.ctype}[8]")  # more than needed, in case a provider uses a larger type
        size = ffi.new("size_t *", ffi.sizeof(self.ctype))
        settings._option("fi_getopt", self.name, lib.fi_getopt, value, size)
        return self.kind(value[0])  # type: ignore[call-arg]

    def __set__(self, settings: EndpointSettings, value: T) -> None:
        native = ffi.new(f"{self.ctype}[8]", [value])
        settings._option("fi_setopt", self.name, lib.fi_setopt, native, ffi.sizeof(self.ctype))


def _size(name: str, doc: str) -> _Option[int]:
    return _Option(name, int, "size_t", doc)


def _permission(name: str, doc: str) -> _Option[bool]:
    return _Option(name, bool, "bool", doc)


class EndpointSettings:
    """Options of one endpoint, active or passive, read and set as attributes; ``endpoint.settings``.

    Some can only be set before the endpoint is enabled: pass ``prepare=`` when it is opened. An option that the
    provider does not have raises `NotSupportedError`, with the provider's error code as its errno. An option that it
    has but cannot change now raises `FabricError`.
    """

    __slots__ = ("_enabled", "_handle", "_info")

    def __init__(self, handle: Handle, info: Info, *, enabled: bool = True) -> None:
        self._handle = handle
        self._info = info
        self._enabled = enabled

    min_multi_recv = _size("MIN_MULTI_RECV", "A multi-receive buffer with less room than this is given back, bytes.")
    cm_data_size = _size("CM_DATA_SIZE", "Room for private data in connect, accept and reject, bytes; read only.")
    buffered_min = _size("BUFFERED_MIN", "Buffered receives show at least this much of a message, bytes.")
    buffered_limit = _size("BUFFERED_LIMIT", "Buffered receives show at most this much of a message, bytes.")
    send_buf_size = _size("SEND_BUF_SIZE", "The transport's send buffer, bytes.")
    recv_buf_size = _size("RECV_BUF_SIZE", "The transport's receive buffer, bytes.")
    tx_size = _size("TX_SIZE", "Depth of the transmit queue, operations.")
    rx_size = _size("RX_SIZE", "Depth of the receive queue, operations.")
    hmem_p2p = _Option(
        "FI_HMEM_P2P", HmemP2P, "int", "Transfers between device memory and network without the host's memory."
    )
    cuda_api_permitted = _permission("CUDA_API_PERMITTED", "Whether the provider may call CUDA; since 1.18.")
    shared_memory_permitted = _permission(
        "SHARED_MEMORY_PERMITTED", "Whether the provider may use shared memory for peers on this host; since 1.21."
    )
    max_msg_size = _size("MAX_MSG_SIZE", "Largest message, bytes; since 1.22.")
    max_tagged_size = _size("MAX_TAGGED_SIZE", "Largest tagged message, bytes; since 1.22.")
    max_rma_size = _size("MAX_RMA_SIZE", "Largest read or write, bytes; since 1.22.")
    max_atomic_size = _size("MAX_ATOMIC_SIZE", "Largest atomic operation, bytes; since 1.22.")
    inject_msg_size = _size("INJECT_MSG_SIZE", "Largest injected message, bytes; since 1.22.")
    inject_tagged_size = _size("INJECT_TAGGED_SIZE", "Largest injected tagged message, bytes; since 1.22.")
    inject_rma_size = _size("INJECT_RMA_SIZE", "Largest injected write, bytes; since 1.22.")
    inject_atomic_size = _size("INJECT_ATOMIC_SIZE", "Largest injected atomic operation, bytes; since 1.22.")
    firewall_addr = _permission(
        "FIREWALL_ADDR", "Whether a firewall blocks incoming connections to this endpoint; since 2.2."
    )

    def xpu_trigger(self, iface: HmemIface, device: int = 0) -> list[TriggerVariable]:
        """The words that a device must write to start an operation (FI_OPT_XPU_TRIGGER, man page: fi_trigger).

        Raises:
            NotSupportedError: the provider cannot start operations from this device.
        """
        check_number("iface", iface, 31)
        check_number("device", device, 31)
        request = ffi.new("struct fi_trigger_xpu *")
        request.iface, request.device.cuda = iface, device
        size = ffi.new("size_t *", ffi.sizeof("struct fi_trigger_xpu"))
        self._option("fi_getopt", "XPU_TRIGGER", lib.fi_getopt, request, size)  # with count 0 it returns the number
        variables = ffi.new("struct fi_trigger_var[]", max(1, request.count))
        request.var = variables
        self._option("fi_getopt", "XPU_TRIGGER", lib.fi_getopt, request, size)
        return [TriggerVariable(Datatype(v.datatype), v.count) for v in variables[0 : request.count]]

    @property
    def tx_flags(self) -> OpFlags:
        """Default flags of sends, reads and writes (FI_GETOPSFLAG, FI_SETOPSFLAG)."""
        return self._flags(constants.FI_TRANSMIT)

    @tx_flags.setter
    def tx_flags(self, flags: OpFlags) -> None:
        self._set_flags(constants.FI_TRANSMIT, flags)
        told = getattr(self._handle, "tx_flags_set", None)
        if told is not None:
            told(int(flags))

    @property
    def rx_flags(self) -> OpFlags:
        """Default flags of receives (FI_GETOPSFLAG, FI_SETOPSFLAG).

        Raises:
            ValueError: the flags have FI_MULTI_RECV, which can only be chosen at opening (``multi_recv=``).
        """
        return self._flags(constants.FI_RECV)

    @rx_flags.setter
    def rx_flags(self, flags: OpFlags) -> None:
        check_receive_flags(flags)
        self._set_flags(constants.FI_RECV, flags)

    @property
    def tx_size_left(self) -> int:
        """Operations that may be posted now, at least; deprecated by libfabric (fi_tx_size_left)."""
        return self._size_left("fi_tx_size_left", lib.fi_tx_size_left)

    @property
    def rx_size_left(self) -> int:
        """Receives that may be posted now, at least; deprecated by libfabric (fi_rx_size_left)."""
        return self._size_left("fi_rx_size_left", lib.fi_rx_size_left)

    def set_backlog(self, backlog: int) -> None:
        """Set how many connection requests the provider queues at a passive endpoint (FI_BACKLOG)."""
        check_number("backlog", backlog, 31)
        self._control(constants.FI_BACKLOG, ffi.new("int *", backlog), "FI_BACKLOG")

    # -- how the calls are made

    def _fid(self) -> Any:
        self._check_native()
        return ffi.cast("struct fid *", self._handle.fid)

    def _check_native(self) -> None:
        """Raise if the native endpoint is closed: it closes at the end of the connection, before the object does."""
        self._handle.check_open()
        gone = getattr(self._handle, "gone", None)
        if gone is not None:
            raise gone()
        if self._handle.fid is None:
            raise _absent("settings", f"{self._provider} has no native listeners: this listener is a TCP port")

    def _option(self, call: str, name: str, function: Any, value: Any, size: Any) -> None:
        fid = self._fid()
        try:
            option = EndpointOption[name]
        except KeyError:
            detail = f"This build of aiofabric does not know FI_OPT_{name}: {describe()}"
            raise NotSupportedError(constants.FI_ENOPROTOOPT, call, detail=detail) from None
        if not self._enabled and Quirk.OPTIONS_NEED_ENABLE in quirks(self._info):
            detail = f"{self._provider} crashes when FI_OPT_{name} is used before the endpoint is enabled"
            raise FabricError(constants.FI_EOPBADSTATE, call, detail=detail)
        self._answer(function(fid, constants.FI_OPT_ENDPOINT, option, value, size), call, f"FI_OPT_{name}")

    def _flags(self, direction: int) -> OpFlags:
        value = ffi.new("uint64_t *", direction)
        self._control(constants.FI_GETOPSFLAG, value, "FI_GETOPSFLAG")
        return OpFlags(value[0] & ~_DIRECTIONS)

    def _set_flags(self, direction: int, flags: OpFlags) -> None:
        self._control(constants.FI_SETOPSFLAG, ffi.new("uint64_t *", direction | flags), "FI_SETOPSFLAG")

    def _control(self, command: int, argument: Any, what: str) -> None:
        self._answer(lib.fi_control(self._fid(), command, argument), "fi_control", what)

    def _size_left(self, call: str, function: Any) -> int:
        self._check_native()
        if ffi.typeof(self._handle.fid) != ffi.typeof("struct fid_ep *"):
            raise _absent(
                call,
                "A listener has no transmit or receive queues: use this property on the endpoints that it has accepted",
            )
        return self._answer(function(self._handle.fid), call, "this (deprecated) call")

    def _answer(self, rc: int, call: str, what: str) -> int:
        try:
            return check(rc, call)
        except NotSupportedError as error:
            error.detail = f"{self._provider} does not have {what}"
            raise

    @property
    def _provider(self) -> str:
        return f"The provider {self._info.fabric_attr.prov_name} ({self._info.ep_attr.type})"


def check_receive_flags(flags: OpFlags) -> None:
    """Refuse default flags of receives that need special buffers.

    Raises:
        TypeError: they are no flags.
        ValueError: FI_MULTI_RECV; a later message would overwrite an earlier one that was not taken yet.
    """
    flag_bits(flags)
    if OpFlags.MULTI_RECV in flags:
        raise ValueError(
            "FI_MULTI_RECV cannot be a default flag of receives, because their buffers are for one message each: "
            "leave it out, and open the endpoint with multi_recv=, the bytes of a buffer for many messages"
        )


def flag_bits(flags: OpFlags | None) -> int | None:
    """Operation flags as a plain int, which is faster than the enum; None for the default flags of the endpoint.

    Raises:
        TypeError: they are no flags.
    """
    if flags is None:
        return None
    if not isinstance(flags, int):
        raise TypeError(f"flags must be OpFlags, such as OpFlags.DELIVERY_COMPLETE, not {flags!r}")
    return int(flags)


def _absent(call: str, detail: str) -> NotSupportedError:
    error = NotSupportedError(constants.FI_ENOSYS, call, detail=detail)
    error.cure = ""  # other hints would not help
    return error
