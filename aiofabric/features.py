"""Capabilities of this libfabric and its providers, and an error with a full sentence if one is missing.

`has` and `require` with a `Feature` check for a function that libfabric has only since a certain version. `require`
with `Caps` checks a capability of one offer. `quirks` returns the known differences between a provider and the manual,
from the only table with names of providers. No other code compares provider names.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ._ffi import constants
from .errors import NoProviderError, NotSupportedError
from .flags import Caps, EndpointType
from .info import Hints, Version, getinfo, headers_version, library_path, library_version

if TYPE_CHECKING:
    from .info import Info

__all__ = ["Feature", "Quirk", "describe", "has", "quirks", "require"]


class Feature(Enum):
    """Parts of libfabric that exist since a version; both the headers at build time and the library must have it."""

    AV_AUTH_KEY = Version(1, 20), "authorization keys of single addresses (fi_av_insert_auth_key)"
    """Different authorization keys for the peers of one endpoint."""
    AV_SET_USER_ID = Version(1, 20), "application numbers for addresses (fi_av_set_user_id)"
    """Completions name a source by a number of the application."""
    MR_DMABUF = Version(1, 20), "memory registration by DMA-BUF descriptor (FI_MR_DMABUF)"
    """Registration of device memory that its driver exports."""
    FABRIC2 = Version(2, 0), "opening a fabric with flags (fi_fabric2)"
    """Options of a fabric."""
    GET_FD = Version(2, 2), "the socket of a connected endpoint (FI_GET_FD)"
    """Socket options of a tcp connection."""
    RESCAN = Version(2, 2), "looking for devices again (FI_RESCAN)"
    """A getinfo that finds a device plugged in later."""

    @property
    def since(self) -> Version:
        """The first version that has it."""
        return self.value[0]

    @property
    def words(self) -> str:
        """A description."""
        return self.value[1]


class Quirk(Flag):
    """Deviations of providers from the manual that aiofabric must handle."""

    NO_WAIT_FD = auto()
    """No process can sleep on a completion queue's descriptor, although the provider may return one."""
    TAGGED_MSG_CRASHES = auto()
    """A tagged message that arrives before its receive crashes the process."""
    SILENT_CLOSE = auto()
    """fi_close drops pending operations without completions."""
    STALE_PROVIDER_ERRNO = auto()
    """The prov_errno of a failed operation is an old value of errno."""
    READ_SWEEPS_ENDPOINTS = auto()
    """Reading a completion queue costs time for every endpoint that is bound to it, also for idle ones."""
    UNEXPECTED_MESSAGE_SPINS = auto()
    """While a message waits for a receive, the descriptor may stay readable although fi_trywait returns 0."""
    OPTIONS_NEED_ENABLE = auto()
    """fi_getopt and fi_setopt crash the process before the endpoint is enabled."""
    CLOSE_NEEDS_ENABLE = auto()
    """fi_close of an endpoint that was never enabled crashes the process."""
    INJECT_NEVER_COMPLETES = auto()
    """A send with FI_INJECT that asks for a completion never completes."""
    SHORT_QUEUES_HANG = auto()
    """Queues with few entries stop forever when they are full."""
    DELIVERED_ATOMIC_CORRUPTS = auto()
    """After an atomic with FI_DELIVERY_COMPLETE, two messages in flight use the same memory."""
    CLOSE_ENDS_REQUEST = auto()
    """fi_close of an endpoint frees the request that it was opened for, which fi_reject then reads."""
    CLOSE_POSTS_RECEIVES = auto()
    """fi_close crashes if a message has arrived that no read of the queue has handled: its buffer is posted again."""
    CONNECTING_CRASHES = auto()
    """A call that connects handles the ends of other connections. It crashes if a large message came before such an
    end, and was not handled yet."""
    OWN_PEER_CRASHES = auto()
    """An endpoint that exchanges messages with itself crashes, or stays in C for ever, if some are not received."""
    INJECT_WAITS = auto()
    """fi_inject waits for the peer's progress: if both endpoints belong to one thread, for ever."""
    FETCH_ATOMIC_CRASHES = auto()
    """Fetching and comparing atomics complete before their result is there, and then crash the process."""
    TAGGED_STRAYS = auto()
    """A tagged message that came before its receive may go to another endpoint of the same domain."""
    ATOMIC_READ_EMPTY = auto()
    """FI_ATOMIC_READ completes without fetching anything."""
    NAMES_NO_SOURCE = auto()
    """FI_SOURCE is granted, but completions carry the number of another peer."""
    BLOCKING_HANDSHAKE = auto()
    """An incomplete request blocks the whole listening process, and a silent client is waited for without a limit."""
    FORGETS_HALF_REQUESTS = auto()
    """A client that sent only the header of its request is neither watched any more nor closed."""
    PEEK_RECEIVES = auto()
    """FI_PEEK is taken for a receive, which drops the message."""
    TRUNCATES_SILENTLY = auto()
    """A message that is longer than its receive loses the rest without an error."""
    CLOSED_LOCAL_PEER_CRASHES = auto()
    """An access to a closed endpoint of the same process crashes or hangs the process."""
    ANSWER_CRASHES = auto()
    """Between endpoints of one process, a reply to an endpoint that did not send first crashes the process."""
    LONG_MESSAGE_HANGS = auto()
    """A message that is longer than its receive hangs the process."""
    IGNORE_FORGOTTEN = auto()
    """A tagged message that came before its receive is matched by another receive's mask: it is lost or
    misdelivered."""
    DELIVERY_MEANS_SENT = auto()
    """A small message with FI_DELIVERY_COMPLETE completes when it has left, also if the peer does not run."""
    EMPTY_DELIVERY_HANGS = auto()
    """An empty message with FI_DELIVERY_COMPLETE never completes, on either side."""
    RECEIVES_SHARE_ROOM = auto()
    """Receives of all kinds, and messages that wait for one, share the entries of one queue."""
    SENDS_WAIT_IN_LINE = auto()
    """A large message whose receiver is gone keeps all later ones of its sender from completing."""
    LOCKS_OUTLIVE_PROCESSES = auto()
    """A process that is killed while it holds a lock in shared memory hangs the next process that takes it."""
    READS_OUTLIVE_REGIONS = auto()
    """A response to a peer's read still refers to the memory of its region after the region was closed."""
    TRANSFERS_NEED_REGIONS = auto()
    """A transfer within this process crashes or hangs if its target is closed meanwhile."""
    REFUSED_REQUESTS_BLOCK = auto()
    """A request for a closed region is never answered, and all that the peer does later waits behind it."""
    ACKNOWLEDGEMENTS_OVERTAKE = auto()
    """A message is acknowledged although an earlier write of the peer has not arrived whole."""
    CLOSE_FREES_READS_TWICE = auto()
    """A close while the answer to a read arrives frees the read twice."""
    PARTIAL_WRITE_DATA_CRASHES = auto()
    """The end of a connection in the middle of a write with remote data ends the process that is written to."""
    FAILED_COPY_IS_UNNAMED = auto()
    """The failure of a read or write of a peer's memory is reported without the operation's context."""
    ORPHANED_ENTRIES_STAY = auto()
    """A process that is killed while it sends blocks all others that send to the same endpoint."""
    NUMBERS_OUTLIVE_PEERS = auto()
    """The first message to a new peer crashes the process if an earlier one was removed that had not closed."""
    ABSENT_PEERS_MISLEAD = auto()
    """Of a peer that is added before its endpoint exists, messages arrive at another peer, or crash the process."""
    TAKES_SIGNALS = auto()
    """The first endpoint replaces signal handlers of the process, and such a signal removes the memory of endpoints."""
    CLAIMS_CRASH = auto()
    """A claimed message crashes the process if others wait, or a message that comes after it is lost."""
    DISCARD_STALLS_SENDER = auto()
    """The send of a large message that was discarded never completes."""
    LATE_RECEIVE_CRASHES = auto()
    """The receive of a large message crashes the process if the message came before it, and its sender has ended."""
    CUT_MESSAGE_CRASHES = auto()
    """A tagged message that has arrived in part before its receive crashes the process after its connection ended."""
    SEGMENTS_CRASH = auto()
    """The end of a connection crashes the process if a message has arrived in part (rxm's segments); 1.x hangs it."""
    SHARED_TRANSMIT_CRASHES = auto()
    """The loss of a peer crashes the process if it has not answered a send of a shared transmit context."""
    NO_PLAIN_MESSAGES = auto()
    """FI_MSG is granted, but plain messages are not implemented, and addresses have another format than the offer."""
    MULTI_RECV_OVERRUNS = auto()
    """A message that does not fit the rest of a multi-receive buffer, or a later one, is written past the buffer."""
    QUEUE_OVERRUNS = auto()
    """A completion queue that gets more completions than it has entries is lost, with all connections on it."""
    QUEUE_HAS_NO_TAGS = auto()
    """fi_cq_open refuses FI_CQ_FORMAT_TAGGED, and loses two descriptors."""
    WAITS_IN_LINE = auto()
    """A message waits for all earlier operations between two endpoints, also for those of closed connections."""
    LONG_MESSAGES_LOSE_PACKETS = auto()
    """Packets of a message above 128 KiB are lost in the kernel's socket buffer, and sent again after a wait."""
    NEW_OWNERS_ARE_IGNORED = auto()
    """An endpoint acknowledges and drops what a new endpoint sends from the address of an earlier one."""
    NO_END_EVENT = auto()
    """A failed operation ends its connection, and may be the only report of that."""
    LEFT_PEER_IS_INVALID = auto()
    """fi_enable calls an endpoint invalid that is to accept the request of a peer that has left."""
    DEVICE_ANSWERS = auto()
    """The device of the peer acknowledges a write of no bytes, without the peer's process and without a region."""


def describe() -> str:
    """Return one line: the version and path of the running libfabric, and the version of the build's headers."""
    return f"libfabric {library_version()} from {library_path()}, built with the headers of {headers_version()}"


def has(feature: Feature) -> bool:
    """Return whether both the library and the headers are new enough."""
    return min(library_version(), headers_version()) >= feature.since


def require(what: Feature | Caps, info: Info | None = None) -> None:
    """Raise NotSupportedError, with a full sentence, if ``what`` is not supported.

    A `Feature` is checked against the library; ``Caps`` against the offer ``info``, which must have all of them.
    """
    if isinstance(what, Feature):
        if not has(what):
            _refuse(what.words, f"it exists since libfabric {what.since}")
        return
    if info is None:
        raise TypeError("capabilities belong to an offer: pass info=")
    if missing := Caps(int(what) & ~int(info.caps)):
        _refuse(str(missing), f"{_offer(info)} does not have it; {_who_has(missing, info)}")
    if Caps.TAGGED in what and Quirk.TAGGED_MSG_CRASHES in quirks(info):
        _refuse(
            "FI_TAGGED on connected endpoints",
            f"{_offer(info)} crashes when a tagged message comes before its receive (xnet_progress.c); "
            "use plain messages, or FI_EP_RDM",
        )


def _refuse(what: str, why: str) -> None:
    error = NotSupportedError(constants.FI_ENOSYS, what, detail=f"{why[0].upper()}{why[1:]}")
    error.cure = f"This is {describe()}"
    raise error


def _offer(info: Info) -> str:
    return f"the provider {info.fabric_attr.prov_name} ({info.ep_attr.type}, {info.domain_attr.name})"


def _who_has(caps: Caps, info: Info) -> str:
    """Name the providers that offer the capabilities, by a getinfo call."""
    try:
        offers = getinfo(hints=Hints(caps=caps))
    except NoProviderError:
        return "no provider on this machine has it"
    names = dict.fromkeys(f"{each.fabric_attr.prov_name} ({each.ep_attr.type})" for each in offers)
    return f"these providers on this machine have it, if the hints ask for it: {', '.join(names)}"


class _Rule(NamedTuple):
    quirk: Quirk
    provider: str
    """One layer of the provider's name, or several with a semicolon between them, which the name must all have."""
    type: EndpointType = EndpointType.UNSPEC
    """The type of endpoint it applies to; UNSPEC for all."""
    since: Version = Version(1, 0)
    before: Version = Version(99, 0)
    alone: bool = False
    """It does not apply below another layer, such as rxm."""


# Seen on loopback with libfabric 1.17.0 and 2.x, or found in the named source file.
_RULES = (
    # 1.17 prov/net: fi_trywait returns 0 and resets nothing; the descriptor stays readable.
    _Rule(Quirk.NO_WAIT_FD, "net"),
    # prov/sockets: fi_trywait does nothing; a thread of the provider writes the descriptor.
    _Rule(Quirk.NO_WAIT_FD, "sockets"),
    # rxd_cq.c: a queue opens with FI_WAIT_FD, then FI_GETWAIT is -FI_ENOSYS.
    _Rule(Quirk.NO_WAIT_FD, "ofi_rxd"),
    # psmx3_wait.c: only fi_wait starts the thread that makes progress and wakes the descriptor; so does psm2.
    *(_Rule(Quirk.NO_WAIT_FD, name) for name in ("psm2", "psm3")),
    # lnx_cq.c: the queues below are opened without a wait object.
    _Rule(Quirk.NO_WAIT_FD, "lnx"),
    # lnx_ops.c, lnx_msg_ops: fi_send and fi_recv are -FI_ENOSYS. lnx_init.c: the format is that of one linked provider,
    # the address a struct lnx_address; the counts of contexts are SIZE_MAX, which is FI_SHARED_CONTEXT. lnx_mr.c: a
    # region is registered when an operation of its own process uses it, so no peer reaches it.
    _Rule(Quirk.NO_PLAIN_MESSAGES, "lnx"),
    # xnet_progress.c: the receive path of a connection reads ep->peer, which only FI_EP_RDM sets.
    _Rule(Quirk.TAGGED_MSG_CRASHES, "net", EndpointType.MSG),
    _Rule(Quirk.TAGGED_MSG_CRASHES, "tcp", EndpointType.MSG, since=Version(1, 18)),
    *(_Rule(Quirk.SILENT_CLOSE, name) for name in ("ofi_rxm", "ofi_rxd", "udp", "sockets", "sm2")),
    # xnet_cq.c: prov_errno is read from errno.
    *(_Rule(Quirk.STALE_PROVIDER_ERRNO, name) for name in ("tcp", "net")),
    # tcpx_conn_mgr.c, xnet_cm.c: rx_cm_data reads a blocking socket, and there is no timer.
    *(_Rule(Quirk.BLOCKING_HANDSHAKE, name, EndpointType.MSG) for name in ("tcp", "net")),
    # xnet_cm.c, xnet_handle_conn: it returns -FI_EAGAIN, and is not called again.
    _Rule(Quirk.FORGETS_HALF_REQUESTS, "net", EndpointType.MSG),
    _Rule(Quirk.FORGETS_HALF_REQUESTS, "tcp", EndpointType.MSG, since=Version(1, 18)),
    # 1.17 smr_ep.c, smr_get_tag: a message that waits for a receive keeps the mask that its entry had before. Of ten
    # waiting messages, a receive with a mask gets the one whose tag equals its own.
    _Rule(Quirk.IGNORE_FORGOTTEN, "shm", before=Version(1, 18)),
    # 1.17 smr_ep.c, smr_select_proto: such a message is sent in pieces, and none of them is the last.
    _Rule(Quirk.EMPTY_DELIVERY_HANGS, "shm", before=Version(1, 18)),
    # rxm_send_eager passes no flags of the operation to the connection below.
    _Rule(Quirk.DELIVERY_MEANS_SENT, "ofi_rxm"),
    # 1.17 smr_msg.c, smr_ep.c, recv_fs: if it is empty, a receive returns -FI_ENOMEM.
    _Rule(Quirk.RECEIVES_SHARE_ROOM, "shm", before=Version(1, 18)),
    # 1.17 smr_progress.c, smr_progress_resp: it stops at the first missing answer.
    _Rule(Quirk.SENDS_WAIT_IN_LINE, "shm", before=Version(1, 18)),
    # smr_util.c: endpoints of one process read each other's memory directly, and fi_close unmaps it.
    _Rule(Quirk.CLOSED_LOCAL_PEER_CRASHES, "shm"),
    # 1.17 smr_map_add: without a region, the place stays free for the next peer. 2.5: see ANSWER_CRASHES.
    _Rule(Quirk.ABSENT_PEERS_MISLEAD, "shm"),
    # smr_ep.c, smr_init_sig_handlers; smr_signal.h.
    _Rule(Quirk.TAKES_SIGNALS, "shm"),
    # efa_rdm_ep_fiops.c, 1.17 rxr_ep.c; lnx_ep.c: an endpoint of shm is opened inside.
    *(_Rule(Quirk.TAKES_SIGNALS, name, EndpointType.RDM) for name in ("efa", "lnx")),
    # sm2_ep.c, cleanup_shm_resources: fi_close sleeps for a second, or does not end, while a peer has its messages.
    _Rule(Quirk.CLOSED_LOCAL_PEER_CRASHES, "sm2"),
    # smr_map_to_region of 2.5 and later: a region of this process is not mapped to the endpoint (local_region).
    _Rule(Quirk.ANSWER_CRASHES, "shm", since=Version(2, 5)),
    # 1.17 smr_cma_loop, 2.x cma_copy: a copy into an empty buffer is repeated until all bytes are copied.
    _Rule(Quirk.LONG_MESSAGE_HANGS, "shm"),
    _Rule(Quirk.LONG_MESSAGE_HANGS, "sm2"),
    # smr_msg.c, smr_progress.c: pthread_spin_lock in the region; 2.6 has one again (smr_util.h, fs_lock).
    _Rule(Quirk.LOCKS_OUTLIVE_PROCESSES, "shm", before=Version(2, 5)),
    _Rule(Quirk.LOCKS_OUTLIVE_PROCESSES, "shm", since=Version(2, 6)),
    # smr_av.c, smr_unmap_from_endpoint: it clears the peer's entry for this endpoint, and not this endpoint's own.
    _Rule(Quirk.NUMBERS_OUTLIVE_PEERS, "shm", since=Version(1, 18)),
    # ofi_atomic_queue.h: the reader waits for the next entry, whose claiming process has ended.
    _Rule(Quirk.ORPHANED_ENTRIES_STAY, "shm", since=Version(1, 18)),
    # tcpx_progress.c, xnet_progress.c: a queued response has the address, but no reference to the region. rxm runs over
    # tcp; rxd and sockets copy from there in pieces.
    *(_Rule(Quirk.READS_OUTLIVE_REGIONS, name) for name in ("tcp", "net", "sockets", "ofi_rxd")),
    # smr_progress.c, smr_pend_entry: pieces within a process are copied through the struct ofi_mr.
    *(_Rule(Quirk.TRANSFERS_NEED_REGIONS, name) for name in ("shm", "ofi_rxd")),
    # rxd_cq.c, rxd_verify_iov: the packet of such a request is never acknowledged.
    _Rule(Quirk.REFUSED_REQUESTS_BLOCK, "ofi_rxd"),
    # rxd_cq.c: the packets of a peer have one order. Seen with 2.5 on two busy cores: more than 10 s after a close.
    _Rule(Quirk.WAITS_IN_LINE, "ofi_rxd"),
    # rxd.h: 128 packets may be unacknowledged; a buffer of net.core.rmem_default holds about 90 of udp's. A message of
    # 193 KiB took 2.3 ms, one of 128 KiB 0.25.
    _Rule(Quirk.LONG_MESSAGES_LOSE_PACKETS, "ofi_rxd"),
    # rxd_cq.c, rxd_handle_rts: a peer that connects again keeps the old number of its next packet (rx_seq_no).
    _Rule(Quirk.NEW_OWNERS_ARE_IGNORED, "ofi_rxd"),
    # rxd_cq.c, rxd_ep_send_ack: an acknowledgement has no place in the order of the packets.
    _Rule(Quirk.ACKNOWLEDGEMENTS_OVERTAKE, "ofi_rxd"),
    # 1.17 tcpx_ep.c, tcpx_ep_flush_all_queues: such a read is in rma_read_queue and in cur_rx.entry.
    *(_Rule(Quirk.CLOSE_FREES_READS_TWICE, name, before=Version(1, 18)) for name in ("tcp", "net")),
    # rxm_cq.c, rxm_handle_comp_error: tcp reports a write with data that has arrived in part, with a null context.
    _Rule(Quirk.PARTIAL_WRITE_DATA_CRASHES, "ofi_rxm"),
    # smr_rma.c, smr_rma_fast: smr_write_err_comp with a null context.
    _Rule(Quirk.FAILED_COPY_IS_UNNAMED, "shm"),
    # smr_ep.c, util_srx.c: the option is in the receive context, which fi_enable makes.
    _Rule(Quirk.OPTIONS_NEED_ENABLE, "shm"),
    _Rule(Quirk.OPTIONS_NEED_ENABLE, "sm2"),
    # sm2_ep.c, cleanup_shm_resources: the region exists only after fi_enable.
    _Rule(Quirk.CLOSE_NEEDS_ENABLE, "sm2"),
    # rxd_msg.c, rxd_ep_generic_sendmsg: RXD_INJECT is taken for fi_inject, which has no completion.
    _Rule(Quirk.INJECT_NEVER_COMPLETES, "ofi_rxd"),
    # ucx_core.c, ucx_do_sendmsg: it makes progress until UCX has sent the message, and before that has connected.
    _Rule(Quirk.INJECT_WAITS, "ucx"),
    # rxd_ep.c, rxd_get_rx_entry: rx_msg_avail counts plain and tagged receives. Also seen with 1.17 on loopback: with
    # five messages of a byte and two sends, and with five of 60,000 bytes and eight sends.
    _Rule(Quirk.SHORT_QUEUES_HANG, "ofi_rxd"),
    # 1.17 smr_rma.c: -FI_EAGAIN if the peer's queue has fewer than two free entries.
    _Rule(Quirk.SHORT_QUEUES_HANG, "shm"),
    # 1.17 smr_progress.c: both smr_progress_inject_atomic and smr_progress_resp_entry release its smr_inject_buf.
    _Rule(Quirk.DELIVERED_ATOMIC_CORRUPTS, "shm", before=Version(1, 18)),
    # sock_ep.c, sock_ep_close: free(handle), and the request's socket closes, so the peer knows. tcp needs fi_reject.
    _Rule(Quirk.CLOSE_ENDS_REQUEST, "sockets", EndpointType.MSG),
    # 1.17 tcpx_cq.c, tcpx_progress: it loops over the queue's endpoints before the epoll_wait.
    _Rule(Quirk.READ_SWEEPS_ENDPOINTS, "tcp", EndpointType.MSG, before=Version(1, 18)),
    # 1.17 tcpx_progress.c: it reads the header of a message without a receive, and leaves the rest in the socket.
    _Rule(Quirk.UNEXPECTED_MESSAGE_SPINS, "tcp", EndpointType.MSG, before=Version(1, 18)),
    # rxd_cq.c: the receive entry goes into two lists at once; repaired in 2.5.
    _Rule(Quirk.FETCH_ATOMIC_CRASHES, "ofi_rxd", before=Version(2, 5)),
    # Seen with 2.5 on loopback: of two endpoints of a domain, the sender's own receive gets the message.
    _Rule(Quirk.TAGGED_STRAYS, "tcp", EndpointType.RDM, since=Version(1, 18)),
    # sm2_atomic.c: a request without an operand also has no length.
    _Rule(Quirk.ATOMIC_READ_EMPTY, "sm2"),
    # rxd_cq.c writes completions without a source; fi_cq_readfrom then returns an old value.
    _Rule(Quirk.NAMES_NO_SOURCE, "ofi_rxd"),
    # smr_msg.c: 1.17's shm does not know the flag.
    _Rule(Quirk.PEEK_RECEIVES, "shm", before=Version(1, 18)),
    # udpx_ep_progress takes the result of recvmsg for the length, and does not check MSG_TRUNC.
    _Rule(Quirk.TRUNCATES_SILENTLY, "udp", EndpointType.DGRAM),
    # rxd_cq.c: the receive entry is as long as the receive, and the rest of the message is not copied.
    _Rule(Quirk.TRUNCATES_SILENTLY, "ofi_rxd", EndpointType.RDM),
    # smr_ep.c, util_srx.c, adjust_multi_recv; rxd_cq.c, rxd_progress_multi_recv: the length is subtracted from the rest
    # of the buffer, a size_t, so the rest wraps around. rxm has util_srx.c since 2.0.
    *(_Rule(Quirk.MULTI_RECV_OVERRUNS, name) for name in ("shm", "sm2", "ofi_rxd")),
    _Rule(Quirk.MULTI_RECV_OVERRUNS, "ofi_rxm", since=Version(2, 0)),
    # sock_progress.c, sock_pe_new_tx_entry: the entry names no endpoint, and the end of its connection needs one.
    _Rule(Quirk.SHARED_TRANSMIT_CRASHES, "sockets"),
    # rxd_cq.c, rxd_handle_data: one peer holds the transfers of both directions. Seen with 1.17 and 2.5:
    # rxd_complete_rx gets an entry of another kind, or frees one twice, and the list of free entries becomes a ring.
    _Rule(Quirk.OWN_PEER_CRASHES, "ofi_rxd"),
    # rxd_msg.c, rxd_peek_recv: the message leaves the list of waiting messages here, and once more when it is freed.
    _Rule(Quirk.CLAIMS_CRASH, "ofi_rxd"),
    # rxm_ep.c, rxm_discard: the sender gets no answer to its rendezvous request. That of 1.17 also crashes if the peer
    # was removed.
    _Rule(Quirk.DISCARD_STALLS_SENDER, "ofi_rxm"),
    # rxm_conn.c, rxm_close_conn: it closes the connection below, and then handles the completions that are left. Over
    # tcp, rxm receives through a shared context, which stays open; over verbs, domain.py demands one.
    # But a large message and an atomic operation are answered over the connection.
    _Rule(Quirk.CLOSE_POSTS_RECEIVES, "verbs;ofi_rxm"),
    # rxm_cq.c, rxm_rndv_read: it reads the message over the connection, which rxm_close_conn has set to NULL. Plain
    # messages have no peek, and a peek says neither who sent the message nor whether that peer is connected.
    _Rule(Quirk.LATE_RECEIVE_CRASHES, "ofi_rxm"),
    # rxm_conn.c, rxm_get_conn; then the same as before: rxm_flush_msg_cq reads a large message over the freed endpoint.
    _Rule(Quirk.CONNECTING_CRASHES, "ofi_rxm"),
    # xnet_progress.c, xnet_complete_rx: it frees the message, which stays in the list of those that wait for a receive.
    _Rule(Quirk.CUT_MESSAGE_CRASHES, "tcp", EndpointType.RDM, since=Version(1, 18), alone=True),
    # rxm_conn.c, rxm_close_conn. That of 1.x takes the message out of another list than deferred_sar_msgs, which it
    # reads until it is empty. Over tcp, rxm of 1.x has no segments.
    _Rule(Quirk.SEGMENTS_CRASH, "ofi_rxm", since=Version(2, 0)),
    _Rule(Quirk.SEGMENTS_CRASH, "verbs;ofi_rxm", before=Version(2, 0)),
    # verbs_cq.c, vrb_cq_open: the queue is the device's, of 1,024 entries, whatever is bound to it.
    *(_Rule(Quirk.QUEUE_OVERRUNS, "verbs", kind) for kind in (EndpointType.MSG, EndpointType.DGRAM)),
    # A reliable connection of InfiniBand. If a device loses its link, the connection manager says nothing.
    _Rule(Quirk.NO_END_EVENT, "verbs", EndpointType.MSG),
    _Rule(Quirk.DEVICE_ANSWERS, "verbs", EndpointType.MSG),
    # verbs_cm.c: the manager reports the end of a request to the endpoint that accepts it, which does not exist yet.
    _Rule(Quirk.LEFT_PEER_IS_INVALID, "verbs", EndpointType.MSG),
    # 1.17 verbs_cq.c, vrb_cq_open: err5 does not free the signal.
    _Rule(Quirk.QUEUE_HAS_NO_TAGS, "verbs", EndpointType.MSG, before=Version(1, 19)),
    _Rule(Quirk.QUEUE_HAS_NO_TAGS, "verbs", EndpointType.DGRAM, before=Version(1, 19)),
    # util_srx.c, util_srx_close: it does not flush; 1.17's shm did.
    _Rule(Quirk.SILENT_CLOSE, "shm", since=Version(1, 18)),
)


def quirks(info: Info) -> Quirk:
    """Return the known deviations of an offer's provider, in the running library."""
    return _quirks(info.fabric_attr.prov_name, info.ep_attr.type, library_version())


@cache  # each connection asks seven times: 0.4 ms
def _quirks(provider: str, kind: EndpointType, running: Version) -> Quirk:
    layers = {*provider.split(";")}
    found = Quirk(0)
    for rule in _RULES:
        if (
            {*rule.provider.split(";")} <= layers
            and rule.type in (EndpointType.UNSPEC, kind)
            and rule.since <= running < rule.before
            and not (rule.alone and len(layers) > 1)
        ):
            found |= rule.quirk
    return found
