"""Choices for endpoints, queues, atomics and collectives once they are open."""

from .._ffi import constants as C
from .family import Choice, Flags, optional


class EndpointOption(Choice, prefix="FI_OPT_"):
    """Names for fi_getopt and fi_setopt, at level FI_OPT_ENDPOINT (man page: fi_endpoint)."""

    MIN_MULTI_RECV = C.FI_OPT_MIN_MULTI_RECV
    """size_t: a multi-receive buffer with less room than this is given back, bytes."""
    CM_DATA_SIZE = C.FI_OPT_CM_DATA_SIZE
    """size_t, read only: room for private data in connect, accept and reject, bytes."""
    BUFFERED_MIN = C.FI_OPT_BUFFERED_MIN
    """size_t: buffered receives show at least this much of a message, bytes."""
    BUFFERED_LIMIT = C.FI_OPT_BUFFERED_LIMIT
    """size_t: buffered receives show at most this much of a message, bytes."""
    SEND_BUF_SIZE = C.FI_OPT_SEND_BUF_SIZE
    """size_t: the transport's send buffer, bytes."""
    RECV_BUF_SIZE = C.FI_OPT_RECV_BUF_SIZE
    """size_t: the transport's receive buffer, bytes."""
    TX_SIZE = C.FI_OPT_TX_SIZE
    """size_t: depth of the transmit queue, operations."""
    RX_SIZE = C.FI_OPT_RX_SIZE
    """size_t: depth of the receive queue, operations."""
    FI_HMEM_P2P = C.FI_OPT_FI_HMEM_P2P
    """int, HmemP2P: transfers between device and network without the host's memory."""
    XPU_TRIGGER = C.FI_OPT_XPU_TRIGGER
    """struct fi_trigger_xpu, read only: the words that a device must write to start an operation."""
    CUDA_API_PERMITTED = optional("FI_OPT_CUDA_API_PERMITTED")
    """1.18, bool: the provider may call CUDA."""
    SHARED_MEMORY_PERMITTED = optional("FI_OPT_SHARED_MEMORY_PERMITTED")
    """1.21, bool: the provider may use shared memory for peers on the same host."""
    MAX_MSG_SIZE = optional("FI_OPT_MAX_MSG_SIZE")
    """1.22, size_t: largest message, bytes."""
    MAX_TAGGED_SIZE = optional("FI_OPT_MAX_TAGGED_SIZE")
    """1.22, size_t: largest tagged message, bytes."""
    MAX_RMA_SIZE = optional("FI_OPT_MAX_RMA_SIZE")
    """1.22, size_t: largest read or write, bytes."""
    MAX_ATOMIC_SIZE = optional("FI_OPT_MAX_ATOMIC_SIZE")
    """1.22, size_t: largest atomic operation, bytes."""
    INJECT_MSG_SIZE = optional("FI_OPT_INJECT_MSG_SIZE")
    """1.22, size_t: largest injected message, bytes."""
    INJECT_TAGGED_SIZE = optional("FI_OPT_INJECT_TAGGED_SIZE")
    """1.22, size_t: largest injected tagged message, bytes."""
    INJECT_RMA_SIZE = optional("FI_OPT_INJECT_RMA_SIZE")
    """1.22, size_t: largest injected write, bytes."""
    INJECT_ATOMIC_SIZE = optional("FI_OPT_INJECT_ATOMIC_SIZE")
    """1.22, size_t: largest injected atomic operation, bytes."""
    FIREWALL_ADDR = optional("FI_OPT_FIREWALL_ADDR")
    """2.2, bool: a firewall blocks incoming connections to the endpoint."""


class HmemP2P(Choice, prefix="FI_HMEM_P2P_"):
    """Values of EndpointOption.FI_HMEM_P2P."""

    ENABLED = C.FI_HMEM_P2P_ENABLED
    """The provider decides."""
    REQUIRED = C.FI_HMEM_P2P_REQUIRED
    """Always; transfers for which it is impossible fail."""
    PREFERRED = C.FI_HMEM_P2P_PREFERRED
    """If possible."""
    DISABLED = C.FI_HMEM_P2P_DISABLED
    """Never."""


class ControlCommand(Choice):
    """Commands of fi_control."""

    GETFIDFLAG = C.FI_GETFIDFLAG
    """uint64_t *: flags of the object."""
    SETFIDFLAG = C.FI_SETFIDFLAG
    """uint64_t *: set them."""
    GETOPSFLAG = C.FI_GETOPSFLAG
    """uint64_t *: default operation flags; TRANSMIT or RECV in the input selects the direction."""
    SETOPSFLAG = C.FI_SETOPSFLAG
    """uint64_t *: set them; TRANSMIT or RECV in the value selects the direction."""
    ALIAS = C.FI_ALIAS
    """struct fi_alias *: another handle to the endpoint, with flags of its own."""
    GETWAIT = C.FI_GETWAIT
    """The object to wait on. Only after opening with WaitObject.FD: other results overrun an int."""
    GETWAITOBJ = C.FI_GETWAITOBJ
    """enum fi_wait_obj *: the kind of that object."""
    ENABLE = C.FI_ENABLE
    """Nothing: enable the endpoint or region."""
    BACKLOG = C.FI_BACKLOG
    """int *: connection requests that may wait at a passive endpoint."""
    QUEUE_WORK = C.FI_QUEUE_WORK
    """struct fi_deferred_work *: start it when its counter reaches the threshold."""
    CANCEL_WORK = C.FI_CANCEL_WORK
    """struct fi_deferred_work *: cancel it."""
    FLUSH_WORK = C.FI_FLUSH_WORK
    """Nothing: drop all deferred work of the domain."""
    DUP = C.FI_DUP
    """struct fid **: a second reference."""
    GET_VAL = C.FI_GET_VAL
    """struct fi_fid_var *: a provider's own value."""
    SET_VAL = C.FI_SET_VAL
    """struct fi_fid_var *: set it."""
    GET_FD = optional("FI_GET_FD")
    """2.2, int *: the socket of a connected tcp endpoint."""


class WaitObject(Choice, prefix="FI_WAIT_"):
    """The object of a queue or counter that a thread can wait on."""

    NONE = C.FI_WAIT_NONE
    """None: the queue can only be read."""
    UNSPEC = C.FI_WAIT_UNSPEC
    """An object that only the blocking calls can use."""
    SET = C.FI_WAIT_SET
    """A wait set; deprecated."""
    FD = C.FI_WAIT_FD
    """A file descriptor; fi_trywait must arm it each time."""
    MUTEX_COND = C.FI_WAIT_MUTEX_COND
    """A pthread mutex and condition; deprecated."""
    YIELD = C.FI_WAIT_YIELD
    """None: the blocking calls yield the processor between polls."""
    POLLFD = C.FI_WAIT_POLLFD
    """An array of struct pollfd that changes over time."""


class CqFormat(Choice, prefix="FI_CQ_FORMAT_"):
    """The fields of a completion."""

    UNSPEC = C.FI_CQ_FORMAT_UNSPEC
    """The provider's choice."""
    CONTEXT = C.FI_CQ_FORMAT_CONTEXT
    """The operation's context."""
    MSG = C.FI_CQ_FORMAT_MSG
    """Also flags and length."""
    DATA = C.FI_CQ_FORMAT_DATA
    """Also buffer and remote data."""
    TAGGED = C.FI_CQ_FORMAT_TAGGED
    """Also the tag. aiofabric uses this one."""


class CqWaitCond(Choice, prefix="FI_CQ_COND_"):
    """When a blocking read of a completion queue returns."""

    NONE = C.FI_CQ_COND_NONE
    """At the first entry."""
    THRESHOLD = C.FI_CQ_COND_THRESHOLD
    """At a given number of entries."""


class CounterEvents(Choice, prefix="FI_CNTR_EVENTS_"):
    """The kind of events that a counter counts."""

    COMP = C.FI_CNTR_EVENTS_COMP
    """Completions."""
    BYTES = optional("FI_CNTR_EVENTS_BYTES")
    """1.21: bytes."""


class EqEvent(Choice):
    """Events of an event queue (man pages: fi_eq, fi_cm)."""

    NOTIFY = C.FI_NOTIFY
    """A provider's own notice."""
    CONNREQ = C.FI_CONNREQ
    """A peer asks for a connection."""
    CONNECTED = C.FI_CONNECTED
    """The connection is up."""
    SHUTDOWN = C.FI_SHUTDOWN
    """The connection has ended, for any reason."""
    MR_COMPLETE = C.FI_MR_COMPLETE
    """A memory region is registered."""
    AV_COMPLETE = C.FI_AV_COMPLETE
    """Addresses are inserted."""
    JOIN_COMPLETE = C.FI_JOIN_COMPLETE
    """A multicast or collective group is joined."""


class Datatype(Choice):
    """Types of atomic and collective operands (man page: fi_atomic)."""

    INT8 = C.FI_INT8
    """Signed, 1 byte."""
    UINT8 = C.FI_UINT8
    """Unsigned, 1 byte."""
    INT16 = C.FI_INT16
    """Signed, 2 bytes."""
    UINT16 = C.FI_UINT16
    """Unsigned, 2 bytes."""
    INT32 = C.FI_INT32
    """Signed, 4 bytes."""
    UINT32 = C.FI_UINT32
    """Unsigned, 4 bytes."""
    INT64 = C.FI_INT64
    """Signed, 8 bytes."""
    UINT64 = C.FI_UINT64
    """Unsigned, 8 bytes."""
    FLOAT = C.FI_FLOAT
    """4 bytes."""
    DOUBLE = C.FI_DOUBLE
    """8 bytes."""
    FLOAT_COMPLEX = C.FI_FLOAT_COMPLEX
    """Two floats."""
    DOUBLE_COMPLEX = C.FI_DOUBLE_COMPLEX
    """Two doubles."""
    LONG_DOUBLE = C.FI_LONG_DOUBLE
    """C's long double, 16 bytes here."""
    LONG_DOUBLE_COMPLEX = C.FI_LONG_DOUBLE_COMPLEX
    """Two of them."""
    INT128 = C.FI_INT128
    """Signed, 16 bytes."""
    UINT128 = C.FI_UINT128
    """Unsigned, 16 bytes."""
    FLOAT16 = optional("FI_FLOAT16")
    """2.0: 2 bytes, IEEE 754."""
    BFLOAT16 = optional("FI_BFLOAT16")
    """2.0: 2 bytes, the exponent of a float."""
    FLOAT8_E4M3 = optional("FI_FLOAT8_E4M3")
    """2.0: 1 byte, 4 bits of exponent."""
    FLOAT8_E5M2 = optional("FI_FLOAT8_E5M2")
    """2.0: 1 byte, 5 bits of exponent."""
    VOID = C.FI_VOID
    """Collectives: no operand, or plain bytes."""


class AtomicOp(Choice):
    """The new value of the target, from target and operand (man page: fi_atomic)."""

    MIN = C.FI_MIN
    """The smaller."""
    MAX = C.FI_MAX
    """The larger."""
    SUM = C.FI_SUM
    """The sum."""
    PROD = C.FI_PROD
    """The product."""
    LOR = C.FI_LOR
    """Logical or."""
    LAND = C.FI_LAND
    """Logical and."""
    BOR = C.FI_BOR
    """Bitwise or."""
    BAND = C.FI_BAND
    """Bitwise and."""
    LXOR = C.FI_LXOR
    """Logical exclusive or."""
    BXOR = C.FI_BXOR
    """Bitwise exclusive or."""
    ATOMIC_READ = C.FI_ATOMIC_READ
    """Fetch only: the target is not changed."""
    ATOMIC_WRITE = C.FI_ATOMIC_WRITE
    """The operand."""
    CSWAP = C.FI_CSWAP
    """Compare only: the operand if compare == target."""
    CSWAP_NE = C.FI_CSWAP_NE
    """Compare only: the operand if compare != target."""
    CSWAP_LE = C.FI_CSWAP_LE
    """Compare only: the operand if compare <= target."""
    CSWAP_LT = C.FI_CSWAP_LT
    """Compare only: the operand if compare < target."""
    CSWAP_GE = C.FI_CSWAP_GE
    """Compare only: the operand if compare >= target."""
    CSWAP_GT = C.FI_CSWAP_GT
    """Compare only: the operand if compare > target."""
    MSWAP = C.FI_MSWAP
    """Compare only: the operand's bits where compare has ones."""
    DIFF = optional("FI_DIFF")
    """2.0: the difference."""
    NOOP = C.FI_NOOP
    """Collectives: nothing."""


class AtomicForm(Flags):
    """The result of an atomic operation (man page: fi_atomic)."""

    BASE = 0
    """None: the operation only updates the target."""
    FETCH_ATOMIC = C.FI_FETCH_ATOMIC
    """The previous value of the target."""
    COMPARE_ATOMIC = C.FI_COMPARE_ATOMIC
    """The previous value of the target, which is updated only if the comparison is true."""


class CollectiveOp(Choice):
    """Operations over a group (man page: fi_collective)."""

    BARRIER = C.FI_BARRIER
    """Wait for all members."""
    BROADCAST = C.FI_BROADCAST
    """The root's data to all members."""
    ALLTOALL = C.FI_ALLTOALL
    """From each member to each member, a different part each."""
    ALLREDUCE = C.FI_ALLREDUCE
    """The data of all members combined, to all."""
    ALLGATHER = C.FI_ALLGATHER
    """The data of all members side by side, to all."""
    REDUCE_SCATTER = C.FI_REDUCE_SCATTER
    """The data of all members combined, a part to each."""
    REDUCE = C.FI_REDUCE
    """The data of all members combined, to the root."""
    SCATTER = C.FI_SCATTER
    """The root's data, a part to each member."""
    GATHER = C.FI_GATHER
    """The data of all members side by side, to the root."""


class TriggerEvent(Choice, prefix="FI_TRIGGER_"):
    """The event that starts a triggered operation (man page: fi_trigger)."""

    THRESHOLD = C.FI_TRIGGER_THRESHOLD
    """A counter reaches a value."""
    XPU = C.FI_TRIGGER_XPU
    """A device writes certain words."""


class DeferredOp(Choice, prefix="FI_OP_"):
    """Kinds of deferred work (man page: fi_trigger)."""

    RECV = C.FI_OP_RECV
    """A receive."""
    SEND = C.FI_OP_SEND
    """A send."""
    TRECV = C.FI_OP_TRECV
    """A tagged receive."""
    TSEND = C.FI_OP_TSEND
    """A tagged send."""
    READ = C.FI_OP_READ
    """A read."""
    WRITE = C.FI_OP_WRITE
    """A write."""
    ATOMIC = C.FI_OP_ATOMIC
    """An atomic update."""
    FETCH_ATOMIC = C.FI_OP_FETCH_ATOMIC
    """An atomic fetch."""
    COMPARE_ATOMIC = C.FI_OP_COMPARE_ATOMIC
    """An atomic compare."""
    CNTR_SET = C.FI_OP_CNTR_SET
    """Setting a counter."""
    CNTR_ADD = C.FI_OP_CNTR_ADD
    """Adding to a counter."""


class TostrType(Choice, prefix="FI_TYPE_"):
    """The kind of value that fi_tostr prints (man page: fi_fabric)."""

    INFO = C.FI_TYPE_INFO
    """struct fi_info."""
    EP_TYPE = C.FI_TYPE_EP_TYPE
    """EndpointType."""
    CAPS = C.FI_TYPE_CAPS
    """Caps."""
    OP_FLAGS = C.FI_TYPE_OP_FLAGS
    """OpFlags."""
    ADDR_FORMAT = C.FI_TYPE_ADDR_FORMAT
    """AddressFormat."""
    TX_ATTR = C.FI_TYPE_TX_ATTR
    """struct fi_tx_attr."""
    RX_ATTR = C.FI_TYPE_RX_ATTR
    """struct fi_rx_attr."""
    EP_ATTR = C.FI_TYPE_EP_ATTR
    """struct fi_ep_attr."""
    DOMAIN_ATTR = C.FI_TYPE_DOMAIN_ATTR
    """struct fi_domain_attr."""
    FABRIC_ATTR = C.FI_TYPE_FABRIC_ATTR
    """struct fi_fabric_attr."""
    THREADING = C.FI_TYPE_THREADING
    """Threading."""
    PROGRESS = C.FI_TYPE_PROGRESS
    """Progress."""
    PROTOCOL = C.FI_TYPE_PROTOCOL
    """Protocol."""
    MSG_ORDER = C.FI_TYPE_MSG_ORDER
    """Order."""
    MODE = C.FI_TYPE_MODE
    """Mode."""
    AV_TYPE = C.FI_TYPE_AV_TYPE
    """AvType."""
    ATOMIC_TYPE = C.FI_TYPE_ATOMIC_TYPE
    """Datatype."""
    ATOMIC_OP = C.FI_TYPE_ATOMIC_OP
    """AtomicOp."""
    VERSION = C.FI_TYPE_VERSION
    """The library's own version; the value is ignored."""
    EQ_EVENT = C.FI_TYPE_EQ_EVENT
    """EqEvent."""
    CQ_EVENT_FLAGS = C.FI_TYPE_CQ_EVENT_FLAGS
    """CompletionFlags."""
    MR_MODE = C.FI_TYPE_MR_MODE
    """MrMode."""
    OP_TYPE = C.FI_TYPE_OP_TYPE
    """DeferredOp."""
    FID = C.FI_TYPE_FID
    """struct fid *: any open object that can describe itself."""
    COLLECTIVE_OP = C.FI_TYPE_COLLECTIVE_OP
    """CollectiveOp."""
    HMEM_IFACE = C.FI_TYPE_HMEM_IFACE
    """HmemIface."""
    CQ_FORMAT = C.FI_TYPE_CQ_FORMAT
    """CqFormat."""
    LOG_LEVEL = C.FI_TYPE_LOG_LEVEL
    """A log level's number."""
    LOG_SUBSYS = C.FI_TYPE_LOG_SUBSYS
    """A log subsystem's number."""
    AV_ATTR = optional("FI_TYPE_AV_ATTR")
    """1.19: struct fi_av_attr."""
    CQ_ATTR = optional("FI_TYPE_CQ_ATTR")
    """1.19: struct fi_cq_attr."""
    MR_ATTR = optional("FI_TYPE_MR_ATTR")
    """1.19: struct fi_mr_attr."""
    CNTR_ATTR = optional("FI_TYPE_CNTR_ATTR")
    """1.19: struct fi_cntr_attr."""
    CQ_ERR_ENTRY = optional("FI_TYPE_CQ_ERR_ENTRY")
    """1.20: struct fi_cq_err_entry."""
