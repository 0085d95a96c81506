"""How operations are posted, bound and reported (man pages: fi_endpoint, fi_msg, fi_cq, fi_mr, fi_av)."""

from .._ffi import constants as C
from .family import Flags, optional


class OpFlags(Flags):
    """Options of one operation, or the default options of an endpoint (tx_attr.op_flags, rx_attr.op_flags)."""

    MORE = C.FI_MORE
    """More operations follow at once: the provider may start them together. tcp ignores it."""
    FENCE = C.FI_FENCE
    """Start only after all earlier operations to this peer have completed."""
    COMPLETION = C.FI_COMPLETION
    """Report success; has an effect only with Bind.SELECTIVE_COMPLETION."""
    INJECT = C.FI_INJECT
    """The caller may change the buffer as soon as the call returns; at most tx_attr.inject_size bytes."""
    REMOTE_CQ_DATA = C.FI_REMOTE_CQ_DATA
    """Carries up to domain_attr.cq_data_size bytes to the target's completion."""
    INJECT_COMPLETE = C.FI_INJECT_COMPLETE
    """Complete once the buffer may be used again."""
    TRANSMIT_COMPLETE = C.FI_TRANSMIT_COMPLETE
    """Complete once the data has left and no longer depends on this host."""
    DELIVERY_COMPLETE = C.FI_DELIVERY_COMPLETE
    """Complete once the data is in the target's memory."""
    COMMIT_COMPLETE = C.FI_COMMIT_COMPLETE
    """Complete once the data is persistent at the target."""
    MATCH_COMPLETE = C.FI_MATCH_COMPLETE
    """Complete once a receive has matched the message at the target."""
    AFFINITY = C.FI_AFFINITY
    """Place the operation's work near the calling processor."""
    PEEK = C.FI_PEEK
    """Receive nothing: report whether a message waits, and its length."""
    CLAIM = C.FI_CLAIM
    """With PEEK: reserve the message for this context. Without: receive the reserved message."""
    DISCARD = C.FI_DISCARD
    """With PEEK or CLAIM: drop the message."""
    MULTI_RECV = C.FI_MULTI_RECV
    """The receive buffer takes messages until it is nearly full."""
    MULTICAST = C.FI_MULTICAST
    """The destination is a multicast group."""
    TRIGGER = C.FI_TRIGGER
    """The context is a triggered one: start when its condition is true."""
    PRIORITY = optional("FI_PRIORITY")
    """Until 2.0: process before others. No provider used it."""
    PEER_TRANSFER = C.FI_PEER_TRANSFER
    """The operation belongs to another provider (man page: fi_peer)."""
    AUTH_KEY = optional("FI_AUTH_KEY")
    """1.20: the address stands for an authorization key: a receive accepts all addresses with that key."""


class Bind(Flags):
    """Which operations a completion queue or a counter, bound to an endpoint, reports (fi_ep_bind)."""

    TRANSMIT = C.FI_TRANSMIT
    """Queue: all operations that start here: sends, RMA and atomics. The same bit as SEND."""
    RECV = C.FI_RECV
    """Queue and counter: messages received."""
    SELECTIVE_COMPLETION = C.FI_SELECTIVE_COMPLETION
    """Queue: report a success only if OpFlags.COMPLETION asks for it; always report errors."""
    SEND = C.FI_SEND
    """Counter: messages sent."""
    READ = C.FI_READ
    """Counter: reads, fetches and compares that start here."""
    WRITE = C.FI_WRITE
    """Counter: writes and atomics that start here."""
    REMOTE_READ = C.FI_REMOTE_READ
    """Counter: reads by peers; needs Caps.RMA_EVENT."""
    REMOTE_WRITE = C.FI_REMOTE_WRITE
    """Counter: writes by peers; needs Caps.RMA_EVENT."""


class CompletionFlags(Flags):
    """Properties of an operation in its completion (man page: fi_cq)."""

    SEND = C.FI_SEND
    """A message was sent."""
    RECV = C.FI_RECV
    """A message was received."""
    RMA = C.FI_RMA
    """An RMA operation."""
    ATOMIC = C.FI_ATOMIC
    """An atomic operation."""
    MSG = C.FI_MSG
    """A message."""
    TAGGED = C.FI_TAGGED
    """A tagged message."""
    MULTICAST = C.FI_MULTICAST
    """A datagram to a group."""
    COLLECTIVE = C.FI_COLLECTIVE
    """A collective operation."""
    READ = C.FI_READ
    """A read, fetch or compare that started here."""
    WRITE = C.FI_WRITE
    """A write or atomic that started here."""
    REMOTE_READ = C.FI_REMOTE_READ
    """A peer read from here."""
    REMOTE_WRITE = C.FI_REMOTE_WRITE
    """A peer wrote to here; the context is not one of the application's."""
    REMOTE_CQ_DATA = C.FI_REMOTE_CQ_DATA
    """The entry's data field comes from the sender."""
    MULTI_RECV = C.FI_MULTI_RECV
    """The provider gave the multi-receive buffer back."""
    MORE = C.FI_MORE
    """More of this message follows in another entry."""
    CLAIM = C.FI_CLAIM
    """A buffered message waits to be claimed."""


class MrFlags(Flags):
    """Options of a memory registration (man page: fi_mr)."""

    RMA_EVENT = C.FI_RMA_EVENT
    """The region will count its RMA events."""
    RMA_PMEM = C.FI_RMA_PMEM
    """The memory is persistent."""
    HMEM_HOST_ALLOC = C.FI_HMEM_HOST_ALLOC
    """The device runtime allocated the memory, on the host."""
    HMEM_DEVICE_ONLY = C.FI_HMEM_DEVICE_ONLY
    """Only the device can access the memory."""
    MR_DMABUF = optional("FI_MR_DMABUF")
    """1.20: the memory is given as a DMA-BUF file descriptor."""
    MR_SINGLE_USE = optional("FI_MR_SINGLE_USE")
    """2.0: the region serves one operation, then invalidates itself."""


class AvFlags(Flags):
    """Options of address vectors and of insertions (man page: fi_av)."""

    MORE = C.FI_MORE
    """More insertions follow at once."""
    EVENT = C.FI_EVENT
    """Insertions complete through the event queue."""
    READ = C.FI_READ
    """Open a shared address vector for reading only."""
    SYMMETRIC = C.FI_SYMMETRIC
    """Every node has the same number of endpoints, at the same service numbers."""
    SYNC_ERR = C.FI_SYNC_ERR
    """Each address of an insertion has its own error code, written into the context array."""
    AV_USER_ID = C.FI_AV_USER_ID
    """The output parameter holds the application's number of the address on input."""
    FIREWALL_ADDR = optional("FI_FIREWALL_ADDR")
    """2.2: a firewall blocks incoming connections to the peer, so the peer must connect."""


class AvSetFlags(Flags):
    """The future uses of an AV set, the group of a collective (man page: fi_collective)."""

    UNIVERSE = C.FI_UNIVERSE
    """Start with every address of the vector."""
    BARRIER_SET = C.FI_BARRIER_SET
    """Barriers."""
    BROADCAST_SET = C.FI_BROADCAST_SET
    """Broadcasts."""
    ALLTOALL_SET = C.FI_ALLTOALL_SET
    """All-to-all exchanges."""
    ALLREDUCE_SET = C.FI_ALLREDUCE_SET
    """Reductions whose result all members get."""
    ALLGATHER_SET = C.FI_ALLGATHER_SET
    """Gathers whose result all members get."""
    REDUCE_SCATTER_SET = C.FI_REDUCE_SCATTER_SET
    """Reductions of whose result each member gets a part."""
    REDUCE_SET = C.FI_REDUCE_SET
    """Reductions whose result the root gets."""
    SCATTER_SET = C.FI_SCATTER_SET
    """Scatters from the root."""
    GATHER_SET = C.FI_GATHER_SET
    """Gathers to the root."""
