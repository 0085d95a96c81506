"""Choices for endpoints, queues, counters and other objects once they are open."""

from .._ffi import constants as C
from .family import Choice, optional


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
    """``uint64_t *``: flags of the object."""
    SETFIDFLAG = C.FI_SETFIDFLAG
    """``uint64_t *``: set them."""
    GETOPSFLAG = C.FI_GETOPSFLAG
    """``uint64_t *``: default operation flags; TRANSMIT or RECV in the input selects the direction."""
    SETOPSFLAG = C.FI_SETOPSFLAG
    """``uint64_t *``: set them; TRANSMIT or RECV in the value selects the direction."""
    ALIAS = C.FI_ALIAS
    """``struct fi_alias *``: another handle to the endpoint, with flags of its own."""
    GETWAIT = C.FI_GETWAIT
    """The object to wait on. Only after opening with WaitObject.FD: other results overrun an int."""
    GETWAITOBJ = C.FI_GETWAITOBJ
    """``enum fi_wait_obj *``: the kind of that object."""
    ENABLE = C.FI_ENABLE
    """Nothing: enable the endpoint or region."""
    BACKLOG = C.FI_BACKLOG
    """``int *``: connection requests that may wait at a passive endpoint."""
    QUEUE_WORK = C.FI_QUEUE_WORK
    """``struct fi_deferred_work *``: start it when its counter reaches the threshold."""
    CANCEL_WORK = C.FI_CANCEL_WORK
    """``struct fi_deferred_work *``: cancel it."""
    FLUSH_WORK = C.FI_FLUSH_WORK
    """Nothing: drop all deferred work of the domain."""
    DUP = C.FI_DUP
    """``struct fid **``: a second reference."""
    GET_VAL = C.FI_GET_VAL
    """``struct fi_fid_var *``: a provider's own value."""
    SET_VAL = C.FI_SET_VAL
    """``struct fi_fid_var *``: set it."""
    GET_FD = optional("FI_GET_FD")
    """2.2, ``int *``: the socket of a connected tcp endpoint."""


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
    """``struct fid *``: any open object that can describe itself."""
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
