"""What this libfabric and a provider of it can do, and a full sentence when they cannot.

Three questions, three answers. A call that libfabric gained over time: `has` and `require` with a `Feature`.
A capability of one offer: `require` with `Caps`. How a provider strays from the manual: `quirks`, the one table
of what is known about providers by name, so that nothing else compares names.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, NamedTuple

from ._ffi import constants
from .errors import NoProviderError, NotSupportedError
from .flags import Caps, EndpointType
from .info import Hints, Version, getinfo, headers_version, library_path, library_version

if TYPE_CHECKING:
    from .info import Info

__all__ = ["Feature", "Quirk", "describe", "has", "quirks", "require"]


class Feature(Enum):
    """What libfabric has only since a version; both the headers at build time and the library must have it."""

    AV_AUTH_KEY = Version(1, 20), "authorization keys of single addresses (fi_av_insert_auth_key)"
    """Peers with different authorization keys at one endpoint."""
    AV_SET_USER_ID = Version(1, 20), "numbers of one's own for addresses (fi_av_set_user_id)"
    """Completions name a source by the application's number."""
    MR_DMABUF = Version(1, 20), "memory registration by DMA-BUF descriptor (FI_MR_DMABUF)"
    """Device memory exported by its driver."""
    FABRIC2 = Version(2, 0), "opening a fabric with flags (fi_fabric2)"
    """Options of a fabric."""
    GET_FD = Version(2, 2), "the socket of a connected endpoint (FI_GET_FD)"
    """Socket options of a tcp connection."""
    RESCAN = Version(2, 2), "looking for devices anew (FI_RESCAN)"
    """getinfo that sees a device plugged in later."""

    @property
    def since(self) -> Version:
        """The first version that has it."""
        return self.value[0]

    @property
    def words(self) -> str:
        """What it is."""
        return self.value[1]


class Quirk(Flag):
    """How a provider strays from the manual, where aiofabric has to know."""

    NO_WAIT_FD = auto()
    """A completion queue's descriptor cannot be slept on, although one may be handed out."""
    TAGGED_MSG_CRASHES = auto()
    """A tagged message that arrives before its receive ends the process."""
    SILENT_CLOSE = auto()
    """fi_close drops pending operations without completions."""
    STALE_PROVIDER_ERRNO = auto()
    """A failed operation's prov_errno is whatever errno happened to be."""
    READ_SWEEPS_ENDPOINTS = auto()
    """Reading a completion queue costs time for every endpoint that is bound to it, idle ones too."""
    UNEXPECTED_MESSAGE_SPINS = auto()
    """While a message waits for a receive, the descriptor may stay readable although fi_trywait says 0."""
    OPTIONS_NEED_ENABLE = auto()
    """fi_getopt and fi_setopt end the process before the endpoint is enabled."""
    CLOSE_NEEDS_ENABLE = auto()
    """fi_close of an endpoint that was never enabled ends the process."""
    INJECT_NEVER_COMPLETES = auto()
    """What is sent with FI_INJECT, and is to tell when it has left, never does."""
    SHORT_QUEUES_HANG = auto()
    """Queues of few places stop, for good, when they are full."""
    DELIVERED_ATOMIC_CORRUPTS = auto()
    """After an atomic with FI_DELIVERY_COMPLETE two of the messages under way have the same memory."""
    CLOSE_ENDS_REQUEST = auto()
    """fi_close of an endpoint frees the request that it was opened for, which fi_reject then reads."""
    FETCH_ATOMIC_CRASHES = auto()
    """Fetching and comparing atomics complete before their result is there, and then end the process."""
    TAGGED_STRAYS = auto()
    """A tagged message that came before its receive may go to another endpoint of the same domain."""
    ATOMIC_READ_EMPTY = auto()
    """FI_ATOMIC_READ completes and fetches nothing."""
    NAMES_NO_SOURCE = auto()
    """FI_SOURCE is granted, but completions carry the number of some other peer."""
    BLOCKING_HANDSHAKE = auto()
    """Half a request stops the whole process that listens, and who sends nothing is waited for without a limit."""
    FORGETS_HALF_REQUESTS = auto()
    """Who has sent the header of a request, and nothing of what it promises, is neither watched any more nor closed."""
    PEEK_RECEIVES = auto()
    """FI_PEEK is taken for a receive, which throws the message away."""
    TRUNCATES_SILENTLY = auto()
    """A message that is longer than its receive loses the rest, and nothing tells of it."""
    CLOSED_LOCAL_PEER_CRASHES = auto()
    """What still refers to a closed endpoint of the same process ends the process, or hangs it."""
    CLOSED_NEIGHBOUR_CRASHES = CLOSED_LOCAL_PEER_CRASHES  # deprecated
    ANSWER_CRASHES = auto()
    """Between endpoints of a process only who sends first can be answered without the end of the process."""
    LONG_MESSAGE_HANGS = auto()
    """A message that is longer than its receive hangs the process."""
    IGNORE_FORGOTTEN = auto()
    """A tagged message that came before its receive is matched by another receive's mask: it is lost, or strays."""
    EMPTY_DELIVERY_HANGS = auto()
    """An empty message with FI_DELIVERY_COMPLETE never completes, on neither side."""
    RECEIVES_SHARE_ROOM = auto()
    """Receives of all kinds, and messages that wait for one, share the places of one queue."""
    SENDS_WAIT_IN_LINE = auto()
    """A large message whose receiver is gone keeps all later ones of its sender from completing."""
    LOCKS_OUTLIVE_PROCESSES = auto()
    """Who is killed with a lock in shared memory hangs whoever takes it next."""
    READS_OUTLIVE_REGIONS = auto()
    """A response to a peer's read points into the memory of its region also after the region was closed."""
    FAILED_COPY_IS_UNNAMED = auto()
    """The failure of a read or write of a peer's memory is reported without the operation's context."""
    ORPHANED_ENTRIES_STAY = auto()
    """A process that is killed while it sends stops all others that send to the same endpoint."""
    CLAIMS_OUTLIVE_PROCESSES = ORPHANED_ENTRIES_STAY  # deprecated
    MULTI_RECV_OVERRUNS = auto()
    """A message that is longer than what is left of a multi-receive buffer, or the next one, is written past it."""


def describe() -> str:
    """Return one line: which libfabric runs, from where, and which headers it was built with."""
    return f"libfabric {library_version()} from {library_path()}, built with the headers of {headers_version()}"


def has(feature: Feature) -> bool:
    """Tell whether both the library and the headers are new enough."""
    return min(library_version(), headers_version()) >= feature.since


def require(what: Feature | Caps, info: Info | None = None) -> None:
    """Raise NotSupportedError, in a full sentence, unless ``what`` can be done.

    A `Feature` asks the library; ``Caps`` ask the offer ``info``, which has to have all of them.
    """
    if isinstance(what, Feature):
        if not has(what):
            _refuse(what.words, f"it came with libfabric {what.since}")
        return
    if info is None:
        raise TypeError("capabilities are an offer's: pass the info")
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
    """Name the providers that answer to the capabilities, by asking them."""
    try:
        offers = getinfo(hints=Hints(caps=caps))
    except NoProviderError:
        return "no provider here has"
    names = dict.fromkeys(f"{each.fabric_attr.prov_name} ({each.ep_attr.type})" for each in offers)
    return f"asked for it in the hints, here {', '.join(names)} have"


class _Rule(NamedTuple):
    quirk: Quirk
    provider: str
    """A layer of the provider's name."""
    type: EndpointType = EndpointType.UNSPEC
    """This type of endpoint only."""
    since: Version = Version(1, 0)
    before: Version = Version(99, 0)


# Seen on loopback with libfabric 1.17.0 and 2.x, or read in the file named.
_RULES = (
    # 1.17 prov/net: fi_trywait says 0 and resets nothing; the descriptor is readable for ever.
    _Rule(Quirk.NO_WAIT_FD, "net"),
    # prov/sockets: fi_trywait does nothing; a thread of the provider's writes the descriptor.
    _Rule(Quirk.NO_WAIT_FD, "sockets"),
    # rxd_cq.c: a queue opens with FI_WAIT_FD, then FI_GETWAIT is -FI_ENOSYS.
    _Rule(Quirk.NO_WAIT_FD, "ofi_rxd"),
    # lnx_cq.c: the queues beneath are opened without a wait object.
    _Rule(Quirk.NO_WAIT_FD, "lnx"),
    # xnet_progress.c: the receive path of a connection reads ep->peer, which only FI_EP_RDM sets.
    _Rule(Quirk.TAGGED_MSG_CRASHES, "net", EndpointType.MSG),
    _Rule(Quirk.TAGGED_MSG_CRASHES, "tcp", EndpointType.MSG, since=Version(1, 18)),
    *(_Rule(Quirk.SILENT_CLOSE, name) for name in ("ofi_rxm", "ofi_rxd", "udp", "sockets", "sm2")),
    # xnet_cq.c: prov_errno is read from errno.
    *(_Rule(Quirk.STALE_PROVIDER_ERRNO, name) for name in ("tcp", "net")),
    # tcpx_conn_mgr.c, xnet_cm.c: rx_cm_data on a socket that blocks, and no timer.
    *(_Rule(Quirk.BLOCKING_HANDSHAKE, name, EndpointType.MSG) for name in ("tcp", "net")),
    # xnet_cm.c, xnet_handle_conn: -FI_EAGAIN, which nobody comes back to.
    _Rule(Quirk.FORGETS_HALF_REQUESTS, "net", EndpointType.MSG),
    _Rule(Quirk.FORGETS_HALF_REQUESTS, "tcp", EndpointType.MSG, since=Version(1, 18)),
    # 1.17 smr_ep.c, smr_get_tag: what waits for a receive keeps the mask that was in its entry before. Of ten messages
    # that wait, a receive with a mask gets the one whose tag is its own.
    _Rule(Quirk.IGNORE_FORGOTTEN, "shm", before=Version(1, 18)),
    # 1.17 smr_ep.c, smr_select_proto: such a message goes by pieces, and none is the last.
    _Rule(Quirk.EMPTY_DELIVERY_HANGS, "shm", before=Version(1, 18)),
    # 1.17 smr_msg.c, smr_ep.c, recv_fs; where it is empty a receive is -FI_ENOMEM.
    _Rule(Quirk.RECEIVES_SHARE_ROOM, "shm", before=Version(1, 18)),
    # 1.17 smr_progress.c, smr_progress_resp: it stops at the first answer that is not there.
    _Rule(Quirk.SENDS_WAIT_IN_LINE, "shm", before=Version(1, 18)),
    # smr_util.c: endpoints of one process read each other's memory where it is, and fi_close unmaps it.
    _Rule(Quirk.CLOSED_LOCAL_PEER_CRASHES, "shm"),
    # sm2_ep.c, cleanup_shm_resources: fi_close sleeps for a second, or does not end, while anybody has its messages.
    _Rule(Quirk.CLOSED_LOCAL_PEER_CRASHES, "sm2"),
    # smr_map_to_region of 2.5 and later: a region of this process is not mapped to the endpoint (local_region).
    _Rule(Quirk.ANSWER_CRASHES, "shm", since=Version(2, 5)),
    # 1.17 smr_cma_loop, 2.x cma_copy: copying into no room is repeated until all is there.
    _Rule(Quirk.LONG_MESSAGE_HANGS, "shm"),
    _Rule(Quirk.LONG_MESSAGE_HANGS, "sm2"),
    # smr_msg.c, smr_progress.c: pthread_spin_lock in the region; 2.6 has one again (smr_util.h, fs_lock).
    _Rule(Quirk.LOCKS_OUTLIVE_PROCESSES, "shm", before=Version(2, 5)),
    _Rule(Quirk.LOCKS_OUTLIVE_PROCESSES, "shm", since=Version(2, 6)),
    # ofi_atomic_queue.h: the reader waits for the next place, and whoever has claimed it is not there any more.
    _Rule(Quirk.ORPHANED_ENTRIES_STAY, "shm", since=Version(1, 18)),
    # tcpx_progress.c, xnet_progress.c: a queued response has the address, and no reference to the region. rxm is over
    # tcp; rxd and sockets copy from there piece by piece.
    *(_Rule(Quirk.READS_OUTLIVE_REGIONS, name) for name in ("tcp", "net", "sockets", "ofi_rxd")),
    # smr_rma.c, smr_rma_fast: smr_write_err_comp with a null context.
    _Rule(Quirk.FAILED_COPY_IS_UNNAMED, "shm"),
    # smr_ep.c, util_srx.c: the option lives in the receive context, which fi_enable makes.
    _Rule(Quirk.OPTIONS_NEED_ENABLE, "shm"),
    _Rule(Quirk.OPTIONS_NEED_ENABLE, "sm2"),
    # sm2_ep.c, cleanup_shm_resources: the region is there since fi_enable.
    _Rule(Quirk.CLOSE_NEEDS_ENABLE, "sm2"),
    # rxd_msg.c, rxd_ep_generic_sendmsg: RXD_INJECT is taken for fi_inject, which has no completion.
    _Rule(Quirk.INJECT_NEVER_COMPLETES, "ofi_rxd"),
    # rxd_ep.c, rxd_get_rx_entry: rx_msg_avail counts plain and tagged receives. And seen with 1.17 on loopback: five
    # messages of a byte and two sends, or five of 60,000 bytes and eight.
    _Rule(Quirk.SHORT_QUEUES_HANG, "ofi_rxd"),
    # 1.17 smr_rma.c: -FI_EAGAIN where the peer's queue has less than two places left.
    _Rule(Quirk.SHORT_QUEUES_HANG, "shm"),
    # 1.17 smr_progress.c: both smr_progress_inject_atomic and smr_progress_resp_entry give its smr_inject_buf back.
    _Rule(Quirk.DELIVERED_ATOMIC_CORRUPTS, "shm", before=Version(1, 18)),
    # sock_ep.c, sock_ep_close: free(handle); it closes the request's socket, which tells the peer. tcp wants fi_reject.
    _Rule(Quirk.CLOSE_ENDS_REQUEST, "sockets", EndpointType.MSG),
    # 1.17 tcpx_cq.c, tcpx_progress: a loop over the queue's endpoints before the epoll_wait.
    _Rule(Quirk.READ_SWEEPS_ENDPOINTS, "tcp", EndpointType.MSG, before=Version(1, 18)),
    # 1.17 tcpx_progress.c: the header of a message without a receive is read, and what follows stays in the socket.
    _Rule(Quirk.UNEXPECTED_MESSAGE_SPINS, "tcp", EndpointType.MSG, before=Version(1, 18)),
    # rxd_cq.c: the receive entry goes into two lists at once; repaired in 2.5.
    _Rule(Quirk.FETCH_ATOMIC_CRASHES, "ofi_rxd", before=Version(2, 5)),
    # Seen with 2.5 on loopback: two endpoints of a domain, and the sender's own receive gets what it sent.
    _Rule(Quirk.TAGGED_STRAYS, "tcp", EndpointType.RDM, since=Version(1, 18)),
    # sm2_atomic.c: the request without an operand also has no length.
    _Rule(Quirk.ATOMIC_READ_EMPTY, "sm2"),
    # rxd_cq.c writes completions without a source; what fi_cq_readfrom gives then is whatever was there before.
    _Rule(Quirk.NAMES_NO_SOURCE, "ofi_rxd"),
    # smr_msg.c: 1.17's shm does not know the flag.
    _Rule(Quirk.PEEK_RECEIVES, "shm", before=Version(1, 18)),
    # udpx_ep_progress takes what recvmsg returns for the length, and does not look for MSG_TRUNC.
    _Rule(Quirk.TRUNCATES_SILENTLY, "udp", EndpointType.DGRAM),
    # rxd_cq.c: the receive entry is as long as the receive, and what does not fit is not copied.
    _Rule(Quirk.TRUNCATES_SILENTLY, "ofi_rxd", EndpointType.RDM),
    # smr_ep.c, util_srx.c, adjust_multi_recv; rxd_cq.c, rxd_progress_multi_recv: the length is taken from what is left,
    # a size_t, so that more than all remains. rxm has util_srx.c since 2.0.
    *(_Rule(Quirk.MULTI_RECV_OVERRUNS, name) for name in ("shm", "sm2", "ofi_rxd")),
    _Rule(Quirk.MULTI_RECV_OVERRUNS, "ofi_rxm", since=Version(2, 0)),
    # util_srx.c, util_srx_close: 1.17's shm still flushed.
    _Rule(Quirk.SILENT_CLOSE, "shm", since=Version(1, 18)),
)


def quirks(info: Info) -> Quirk:
    """Return what is known to be odd about the provider of an offer, in the library that runs."""
    layers = info.fabric_attr.prov_name.split(";")
    running = library_version()
    found = Quirk(0)
    for rule in _RULES:
        if (
            rule.provider in layers
            and rule.type in (EndpointType.UNSPEC, info.ep_attr.type)
            and rule.since <= running < rule.before
        ):
            found |= rule.quirk
    return found
