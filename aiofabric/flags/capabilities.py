"""Capabilities, and requirements on the application (man page: fi_getinfo)."""

from .._ffi import constants as C
from .family import Flags, optional


class Caps(Flags):
    """Capabilities of hints, of getinfo's results, of domains and of transmit and receive contexts.

    Primary capabilities must be requested. Modifiers (READ to REMOTE_WRITE) narrow a primary one; none of them means
    all. Secondary ones may be present without a request.
    """

    MSG = C.FI_MSG
    """Primary: messages or datagrams."""
    RMA = C.FI_RMA
    """Primary: reads and writes of remote memory."""
    TAGGED = C.FI_TAGGED
    """Primary: messages matched to receives by a 64-bit tag."""
    ATOMIC = C.FI_ATOMIC
    """Primary: atomic operations on remote memory."""
    MULTICAST = C.FI_MULTICAST
    """Primary, with MSG: one datagram to all members of a group."""
    COLLECTIVE = C.FI_COLLECTIVE
    """Primary: barrier, broadcast, reductions over a group."""
    NAMED_RX_CTX = C.FI_NAMED_RX_CTX
    """Primary: the sender chooses one of the peer's receive contexts."""
    DIRECTED_RECV = C.FI_DIRECTED_RECV
    """Primary: a receive can name the only source that may fill it; without this the source is ignored."""
    TAGGED_DIRECTED_RECV = optional("FI_TAGGED_DIRECTED_RECV")
    """Primary, 2.0: DIRECTED_RECV for tagged receives only."""
    EXACT_DIRECTED_RECV = optional("FI_EXACT_DIRECTED_RECV")
    """Primary, 2.0: with DIRECTED_RECV, every receive names its source; none uses "any"."""
    VARIABLE_MSG = optional("FI_VARIABLE_MSG")
    """Until 1.20: the receiver learns the size before it places a message. aiofabric does not use it."""
    HMEM = C.FI_HMEM
    """Primary: buffers may lie in device memory."""
    XPU = optional("FI_XPU")
    """Primary, with TRIGGER: transfers started by a device. Called FI_XPU_TRIGGER by old headers."""
    AV_USER_ID = C.FI_AV_USER_ID
    """Completions carry the number that the application gave to an address, instead of the address vector's."""
    PEER = C.FI_PEER
    """The provider can work below another provider that shares its queues (man page: fi_peer)."""
    READ = C.FI_READ
    """Modifier: initiate reads of remote memory."""
    WRITE = C.FI_WRITE
    """Modifier: initiate writes to remote memory."""
    RECV = C.FI_RECV
    """Modifier: receive messages."""
    SEND = C.FI_SEND
    """Modifier: send messages."""
    REMOTE_READ = C.FI_REMOTE_READ
    """Modifier: be the target of reads."""
    REMOTE_WRITE = C.FI_REMOTE_WRITE
    """Modifier: be the target of writes."""
    MULTI_RECV = C.FI_MULTI_RECV
    """Secondary: one posted buffer takes many messages."""
    TAGGED_MULTI_RECV = optional("FI_TAGGED_MULTI_RECV")
    """Secondary, 2.0: MULTI_RECV for tagged messages."""
    SOURCE = C.FI_SOURCE
    """Secondary: completions name the sender. For connectionless endpoints."""
    SOURCE_ERR = C.FI_SOURCE_ERR
    """Secondary, with SOURCE: a message of an unknown sender has its raw address, by which it becomes a `Peer`."""
    RMA_EVENT = C.FI_RMA_EVENT
    """Secondary: the target of RMA and atomics also gets events."""
    RMA_PMEM = C.FI_RMA_PMEM
    """Secondary, experimental: RMA to persistent memory, and completion once the data is safe."""
    SHARED_AV = C.FI_SHARED_AV
    """Secondary: address vectors shared among processes."""
    TRIGGER = C.FI_TRIGGER
    """Secondary: operations that start when a counter reaches a threshold."""
    FENCE = C.FI_FENCE
    """Secondary: an operation can wait for all earlier ones to the same peer."""
    LOCAL_COMM = C.FI_LOCAL_COMM
    """Secondary: reaches endpoints on the same host."""
    REMOTE_COMM = C.FI_REMOTE_COMM
    """Secondary: reaches endpoints on other hosts."""


class Mode(Flags):
    """Requirements of the provider on the application. In hints: the modes that it supports.

    aiofabric always offers CONTEXT and CONTEXT2. Do not set all bits: some of them change the meaning of a completion
    (libfabric rxm_init.c: BUFFERED_RECV).
    """

    CONTEXT = C.FI_CONTEXT
    """Each operation has 32 bytes that the provider may use until it completes."""
    CONTEXT2 = C.FI_CONTEXT2
    """The same with 64 bytes."""
    MSG_PREFIX = C.FI_MSG_PREFIX
    """Message buffers begin with ep_attr.msg_prefix_size bytes for the provider."""
    ASYNC_IOV = C.FI_ASYNC_IOV
    """Arrays of buffers stay untouched until the operation completes."""
    RX_CQ_DATA = C.FI_RX_CQ_DATA
    """Remote completion data consumes a receive buffer, also with RMA writes."""
    LOCAL_MR = C.FI_LOCAL_MR
    """Before 1.5: local buffers must be registered. Now MrMode.LOCAL."""
    NOTIFY_FLAGS_ONLY = optional("FI_NOTIFY_FLAGS_ONLY")
    """Until 1.20: completions may lack the flags that name the kind of operation."""
    RESTRICTED_COMP = optional("FI_RESTRICTED_COMP")
    """Until 1.20: only endpoints of equal capabilities share a completion queue."""
    BUFFERED_RECV = optional("FI_BUFFERED_RECV")
    """Until 1.20: messages arrive in the provider's buffers. aiofabric does not use it."""


class MrMode(Flags, prefix="FI_MR_"):
    """Requirements for memory registration (man page: fi_domain, fi_mr). In hints: those that the application meets."""

    BASIC = C.FI_MR_BASIC
    """Before 1.5, alone: VIRT_ADDR, ALLOCATED and PROV_KEY together. Deprecated."""
    SCALABLE = C.FI_MR_SCALABLE
    """Before 1.5, alone: offsets and application keys. Deprecated."""
    LOCAL = C.FI_MR_LOCAL
    """Buffers of local operations must be registered."""
    RAW = C.FI_MR_RAW
    """Keys are longer than 64 bits and are exchanged raw."""
    VIRT_ADDR = C.FI_MR_VIRT_ADDR
    """Remote addresses are virtual addresses, not offsets into the region."""
    ALLOCATED = C.FI_MR_ALLOCATED
    """Pages must be allocated before they are registered."""
    PROV_KEY = C.FI_MR_PROV_KEY
    """The provider chooses the keys."""
    MMU_NOTIFY = C.FI_MR_MMU_NOTIFY
    """The application tells the provider (fi_mr_refresh) when pages appear or change."""
    RMA_EVENT = C.FI_MR_RMA_EVENT
    """Regions that count RMA events must be marked, and enabled after their counter is bound."""
    ENDPOINT = C.FI_MR_ENDPOINT
    """Regions are bound to an endpoint, then enabled."""
    HMEM = C.FI_MR_HMEM
    """Device memory must be registered, also for local use."""
    COLLECTIVE = C.FI_MR_COLLECTIVE
    """Buffers of collective operations must be registered."""


class Order(Flags, prefix="FI_ORDER_"):
    """Which operations keep their order (man page: fi_endpoint, msg_order and comp_order).

    Letters: R read, W write (atomics included), S send (tagged included); XAY: an X posted after a Y is
    not processed before it.
    """

    NONE = C.FI_ORDER_NONE
    """No order; in hints: the provider's default."""
    RAR = C.FI_ORDER_RAR
    """Reads after reads."""
    RAW = C.FI_ORDER_RAW
    """Reads after writes."""
    RAS = C.FI_ORDER_RAS
    """Reads after sends."""
    WAR = C.FI_ORDER_WAR
    """Writes after reads."""
    WAW = C.FI_ORDER_WAW
    """Writes after writes."""
    WAS = C.FI_ORDER_WAS
    """Writes after sends."""
    SAR = C.FI_ORDER_SAR
    """Sends after reads."""
    SAW = C.FI_ORDER_SAW
    """Sends after writes."""
    SAS = C.FI_ORDER_SAS
    """Sends after sends."""
    RMA_RAR = C.FI_ORDER_RMA_RAR
    """RMA reads after RMA reads."""
    RMA_RAW = C.FI_ORDER_RMA_RAW
    """RMA reads after RMA writes."""
    RMA_WAR = C.FI_ORDER_RMA_WAR
    """RMA writes after RMA reads."""
    RMA_WAW = C.FI_ORDER_RMA_WAW
    """RMA writes after RMA writes."""
    ATOMIC_RAR = C.FI_ORDER_ATOMIC_RAR
    """Atomic fetches after atomic fetches."""
    ATOMIC_RAW = C.FI_ORDER_ATOMIC_RAW
    """Atomic fetches after atomic updates."""
    ATOMIC_WAR = C.FI_ORDER_ATOMIC_WAR
    """Atomic updates after atomic fetches."""
    ATOMIC_WAW = C.FI_ORDER_ATOMIC_WAW
    """Atomic updates after atomic updates."""
    STRICT = C.FI_ORDER_STRICT
    """All of the first nine. In comp_order: completions come in the order of posting."""
    DATA = C.FI_ORDER_DATA
    """comp_order: received data is placed in memory in order, and completions come in that order."""


class GetInfoFlags(Flags):
    """How ``getinfo`` interprets its node and service."""

    NUMERICHOST = C.FI_NUMERICHOST
    """The node is a number, such as 127.0.0.1; a name matches nothing, and no name server is asked."""
    PROV_ATTR_ONLY = C.FI_PROV_ATTR_ONLY
    """List all providers, usable or not: one info each, of which only fabric_attr is valid."""
    SOURCE = C.FI_SOURCE
    """Node and service are the local address: for listeners, or to choose an interface."""
    RESCAN = optional("FI_RESCAN")
    """2.2: look for devices again, instead of returning the results of an earlier call."""


class Access(Flags):
    """The permitted uses of a memory region (man page: fi_mr)."""

    SEND = C.FI_SEND
    """Sends from it."""
    RECV = C.FI_RECV
    """Receives into it."""
    READ = C.FI_READ
    """Results of reads, fetches and compares that start here."""
    WRITE = C.FI_WRITE
    """Source of writes and atomics that start here."""
    REMOTE_READ = C.FI_REMOTE_READ
    """Reads by peers."""
    REMOTE_WRITE = C.FI_REMOTE_WRITE
    """Writes by peers."""
    COLLECTIVE = C.FI_COLLECTIVE
    """Collective operations."""
