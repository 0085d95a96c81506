"""Workarounds: one table of all code that changes things to which libfabric's interface gives no access.

A workaround is on if it was examined on the version of the running library. ``AIOFABRIC_WORKAROUNDS`` and `switch`
change that, before the first endpoint is opened. ``aiofabric doctor`` shows the state of each.
"""

from __future__ import annotations

import difflib
import logging
import os
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

from ._ffi import lib, load
from ._ffi.switches import VARIABLE, asked_for
from .info import Version, library_version

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["VARIABLE", "WORKAROUNDS", "State", "Workaround", "is_on", "meant", "state", "switch", "unknown_words"]

_log = logging.getLogger("aiofabric")

_1_17, _1_18, _2_0, _2_4, _2_5, _2_6 = (Version(*each) for each in ((1, 17), (1, 18), (2, 0), (2, 4), (2, 5), (2, 6)))
_EVER = Version(99, 0)
_ALL = ((Version(1, 0), _EVER),)
_OLD, _BOTH = ((_1_17, _1_17),), ((_1_17, _1_17), (_2_0, _2_5))


class State(StrEnum):
    """The state of a workaround in this process."""

    ON = "on"
    OFF = "off"
    NOT_NEEDED = "not needed"
    """The running library does not have the defect."""
    NOT_EXAMINED = "not examined"
    """The workaround was not tried with the running library, so it is off."""
    SHARED = "off beside other users of libfabric"
    """It would change libfabric for another module of this process that uses the same library, such as an MPI."""


@dataclass(frozen=True)
class Workaround:
    """One row of the table.

    Attributes:
        name: the name of the switch.
        code: the file, below ``aiofabric/``.
        defect: the defect of libfabric, or the function that it lacks.
        affected: closed ranges of versions that have the defect, as far as is known.
        examined: closed ranges of versions on which the workaround was tried; on others it is off.
        touches: the objects outside libfabric's interface that it changes.
        proof: how these are proved to belong to aiofabric's libfabric.
        without: the consequence when it is off.
        test: a test of it.
        report: the text of a report to libfabric's developers.
        alone: off while another module of this process uses the same libfabric.
    """

    name: str
    code: str
    defect: str
    affected: tuple[tuple[Version, Version], ...]
    examined: tuple[tuple[Version, Version], ...]
    touches: str
    proof: str
    without: str
    test: str
    report: str
    alone: bool = False


_LISTENING = (
    "The listening socket is a TCP socket whose descriptor appeared during our own call and whose local address is the "
    "endpoint's. A listener's socket gets a send timeout that no other socket has, and accepted sockets inherit "
    "it."
)
_CONNECTED = (
    "libfabric names the descriptor (FI_GET_FD, 2.2 and later), or the descriptor number was unused before the "
    "call that opened the connection. It is a TCP socket, and both its addresses are the connection's. The kernel "
    "gives the same two addresses to no other socket."
)
_OWN_MEMORY = "The file in /dev/shm has the name that this process gave its own endpoint."

WORKAROUNDS = {
    each.name: each
    for each in (
        Workaround(
            "half_open_clients",
            "cm/workarounds/half_open_clients.py",
            "tcp and net read the request of a new client with a recv that blocks. If a client sends a part of its "
            "request and no more, the whole process stops until the client sends the rest or disconnects. A client "
            "that sends nothing keeps a descriptor for ever.",
            _ALL,
            _BOTH,
            "Listening sockets, and clients without a complete request. A listener's socket gets SO_SNDTIMEO as a "
            "mark, and a negative SO_RCVTIMEO, which the kernel takes as 'do not wait' and shows as 0. The socket of a "
            "connectionless endpoint over TCP (rxm; tcp and net with FI_EP_RDM) gets the same SO_RCVTIMEO, and "
            "TCP_DEFER_ACCEPT instead of the mark. A listener's clients are shut down, or closed if the provider has "
            "forgotten them.",
            _LISTENING,
            "One hostile client can stop a server.",
            "cm/test_hostile_clients.py",
            "xnet_pep: read the connection request without blocking, keep a timer, and keep the connection in the poll "
            "set after -FI_EAGAIN.",
        ),
        Workaround(
            "keepalive",
            "cm/workarounds/keepalive.py",
            "tcp does not notice that the host of a peer is gone.",
            _ALL,
            _BOTH,
            "The socket of a connection with heartbeat= (SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, "
            "TCP_USER_TIMEOUT).",
            _CONNECTED,
            "heartbeat= over tcp raises NotSupportedError.",
            "cm/test_silent_host.py",
            "tcp: an endpoint option for keepalive and the user timeout.",
        ),
        Workaround(
            "traffic_class",
            "cm/workarounds/traffic_class.py",
            "tcp accepts a DSCP as traffic class and does not set it.",
            _ALL,
            _BOTH,
            "The socket of a connection (IP_TOS, IPV6_TCLASS).",
            _CONNECTED,
            "Packets have the system's default class.",
            "transport/opening/test_open.py",
            "tcp: set IP_TOS from fi_tc_dscp_get(tclass).",
        ),
        Workaround(
            "pacing",
            "cm/workarounds/pacing.py",
            "A system whose congestion control is BBR paces connections that stay within the machine.",
            _ALL,
            _BOTH,
            "The socket of a connection whose two ends are in this machine (TCP_CONGESTION).",
            _CONNECTED,
            "Where the system has BBR, messages of 64 KiB took 38 us each over loopback instead of 10.5.",
            "cm/test_pacing.py",
            "None: the kernel does what its administrator chose.",
        ),
        Workaround(
            "coalescing",
            "_core/queue/coalescing.c",
            "tcp sends each message as a segment of its own.",
            _ALL,
            _BOTH,
            "The socket of a connection (TCP_CORK, for 100 us at most).",
            _CONNECTED,
            "64 requests in flight take 4.5 us each instead of 1.8. aiofabric also uses this socket to see that a peer "
            "has finished its read of a closed region. Without the workaround, the memory stays exported until the "
            "connections close.",
            "transport/connected/test_coalescing.py",
            "tcp: coalesce messages that are posted with FI_MORE.",
        ),
        Workaround(
            "robust_locks",
            "_ffi/robust_locks.c",
            "shm protects memory that processes share with a pthread_spin_lock. If a peer is killed while it "
            "holds the lock, the lock stays taken for ever.",
            ((Version(1, 0), _2_4), (_2_6, _EVER)),
            ((_1_17, _1_17), (_2_0, _2_4)),
            "libfabric's calls of pthread_spin_lock, which go to aiofabric's own function; locks in shared memory.",
            "Only a libfabric that aiofabric loaded is changed. It stays as it is if another module loaded it earlier, "
            "or if another object of the process is linked to it (an MPI). If such an object is loaded after the first "
            "fabric was opened, it shares the changed function. A lock is taken only from a process that "
            "has ended (pidfd_open).",
            "A peer that is killed in the middle of a send may hang all its peers.",
            "_ffi/test_robust_locks.py",
            "shm: use a robust mutex for the region's lock.",
            alone=True,
        ),
        Workaround(
            "orphaned_entries",
            "transport/workarounds/shm_orphaned_entries.py",
            "A sender over shm claims an entry of its receiver's queue before it writes the message. If it is killed "
            "in between, no later entry is read.",
            ((_1_18, _EVER),),
            ((_2_0, _2_5),),
            "The queue in the memory of our own endpoint, where such an entry is published as empty.",
            _OWN_MEMORY + " An entry counts as orphaned once each live thread that could have claimed it was seen "
            "asleep inside a system call, where no entry is held (/proc), or stopped in one that waits. A sender that "
            "is stopped elsewhere keeps its entry. If processes cannot be examined, such as those of another "
            "container, all entries stay. They also stay with 2.5.0, whose layout of the queue is not known.",
            "A peer that is killed in the middle of a send may stop all messages to this endpoint.",
            "transport/workarounds/test_shm_orphaned_entries.py",
            "shm: let the reader skip entries of processes that are gone.",
        ),
        Workaround(
            "stale_numbers",
            "transport/workarounds/shm_stale_numbers.py",
            "An endpoint over shm keeps the number of a peer that was killed, or that closed before its name was read, "
            "also after fi_av_remove. A later peer with the same entry is taken for connected.",
            ((_2_0, _EVER),),
            ((_2_5, _2_5),),
            "The table of peers in the memory of our own endpoint, where such a number is cleared.",
            _OWN_MEMORY + " A number is cleared if the memory of its peer is not mapped in this process "
            "(/proc/self/maps). The layout of the table is that of 2.5.1; with others, nothing is changed.",
            "A server crashes after some hundred clients that ended without closing their connections.",
            "transport/workarounds/test_shm_stale_numbers.py",
            "smr_unmap_from_endpoint: reset the id and name_sent of the endpoint's own entry, too.",
        ),
        Workaround(
            "unanswered_sends",
            "transport/workarounds/shm_unanswered_sends.py",
            "shm of 1.17 completes sends of more than 4 KiB in the order of a ring. If a receiver ends before "
            "it writes its response into the ring, no later send completes.",
            ((Version(1, 0), _1_17),),
            _OLD,
            "The ring in the memory of our own endpoint: aiofabric writes the missing response there.",
            _OWN_MEMORY + " A receiver counts as gone if no process has its memory mapped.",
            "A client that is killed before it received a large message stops all large messages of its server.",
            "transport/workarounds/test_killed_before_it_received.py",
            "None: 2.x has another protocol.",
        ),
        Workaround(
            "signals",
            "transport/workarounds/shm_signals.py",
            "shm replaces the handlers of SIGINT, SIGTERM, SIGBUS and SIGSEGV when its first endpoint is opened. Such "
            "a signal removes the memory of all endpoints from /dev/shm, also if the program has its own "
            "handler and continues. Later clients then crash (1.17) or hang (2.x). libpsm-infinipath and "
            "libpsm2, which Debian's libfabric loads, replace handlers when they are loaded.",
            _ALL,
            _BOTH,
            "The process's handlers of these signals. If a signal had a handler, or was ignored, aiofabric "
            "restores that. If it had the default action, it ends the process in any case, and shm's handler "
            "stays. While libfabric is being loaded, "
            "the environment contains IPATH_NO_BACKTRACE=1 and HFI_NO_BACKTRACE=1, which prevent the psm "
            "libraries from replacing handlers. At that time, the version of libfabric is "
            "not known yet. The variables are removed after loading.",
            "The handler appeared during our own call of fi_endpoint, and its code is in libfabric's file. Variables "
            "that the program has set keep their values.",
            "A process that survives a signal accepts no more connections over shm; clients get an error. Ctrl-C may "
            "end Python without KeyboardInterrupt. Install signal handlers after the first endpoint.",
            "transport/workarounds/test_shm_signals.py",
            "shm: leave signals alone that have a handler, and remove files of ended processes at the next start.",
            alone=True,
        ),
        Workaround(
            "shm_files",
            "transport/workarounds/shm_names.py",
            "shm keeps the memory of an endpoint in a file of 6 to 16 MB in /dev/shm. The system allocates a "
            "page of the file when it is first written. If /dev/shm is full at that time, a send ends the "
            "process with SIGBUS. The files of a killed process stay in /dev/shm.",
            _ALL,
            _BOTH,
            "Files in /dev/shm to which aiofabric gave the name. All pages of an endpoint's file are allocated when "
            "the endpoint is opened. The file of a closed endpoint that other endpoints of its process still read "
            "is removed, so that no other process finds it. The files of ended processes are removed. If the program "
            "chooses a name whose file no process maps, the file is removed.",
            "The name contains the process, its PID namespace and a random number. Another process's file is removed "
            "only if that namespace is our own and no process has that id.",
            "If /dev/shm is full, a send may end the process with SIGBUS. Files of killed processes stay in /dev/shm.",
            "transport/workarounds/test_shared_memory_is_full.py",
            "shm: allocate a region with posix_fallocate, and remove regions of ended processes at the next start.",
        ),
        Workaround(
            "environment",
            "transport/workarounds/rxm_segments.py",
            "rxm sends messages of 16 to 128 KiB in segments, in 1.x over verbs only. When a connection ends with some "
            "segments of a message received, 2.x crashes, and 1.x never returns from a call.",
            _ALL,
            _BOTH,
            "The environment of this process, and so of its children: FI_OFI_RXM_SAR_LIMIT=0, from the first endpoint "
            "over rxm on.",
            "A variable that is set already keeps its value.",
            "rxm of 2.x may crash at the end of a connection, and verbs;ofi_rxm of 1.x may hang its process.",
            "transport/workarounds/test_rxm_segments.py",
            "rxm: release the segments of a message in rxm_close_conn.",
            alone=True,
        ),
        Workaround(
            "rxm_receives",
            "domain.py",
            "Over verbs, rxm posts receives at each connection. When it closes one, it posts the buffers of messages "
            "that have just arrived at the connection that it has freed.",
            _ALL,
            _BOTH,
            "The environment of this process, while a domain or an endpoint of verbs;ofi_rxm opens: "
            "FI_OFI_RXM_USE_SRX=1. All connections of an endpoint there share 4,096 receives, which lock 64 MiB.",
            "A variable that is set already keeps its value.",
            "The close of an endpoint over verbs;ofi_rxm, or the removal of a peer, crashes the process if a peer "
            "still sends.",
            "transport/workarounds/test_rxm_receives.py",
            "rxm: handle the completions before fi_close in rxm_close_conn, and post no receive afterwards.",
            alone=True,
        ),
    )
}

_states: dict[str, State] = {}
_chosen: set[str] = set()  # switched on or off by the program or the environment


def state(name: str) -> State:
    """The state of a workaround with the running library.

    Raises:
        ValueError: there is no workaround of that name.
    """
    found = _states.get(name)
    if found is None:  # the environment is read once, because each connection calls this
        _check_name(name)
        _report_unknown_words()
        found = _states[name] = _find(WORKAROUNDS[name])
    if found is State.ON and WORKAROUNDS[name].alone and name not in _chosen and has_other_users():
        return State.SHARED  # each time: an MPI may be loaded later
    return found


def _check_name(name: str) -> None:
    if name not in WORKAROUNDS:
        raise ValueError(f"no workaround {name!r}; there are {', '.join(WORKAROUNDS)}")


@cache
def _report_unknown_words() -> None:
    for word in unknown_words():
        _log.warning("%s contains the unknown name %r, which has no effect: %s", VARIABLE, word, meant(word))


def _find(workaround: Workaround) -> State:
    wanted = asked_for(workaround.name)
    if wanted is not None:
        _chosen.add(workaround.name)
        return State.ON if wanted else State.OFF
    running = library_version()
    if not any(first <= running <= last for first, last in workaround.affected):
        return State.NOT_NEEDED
    if not any(first <= running <= last for first, last in workaround.examined):
        return State.NOT_EXAMINED
    return State.ON


def has_other_users() -> bool:
    """Whether another module of this process uses the same libfabric, as far as can be known."""
    return load.was_loaded or bool(lib.aiofabric_has_other_users())


def is_on(name: str) -> bool:
    """Whether a workaround is on."""
    return state(name) is State.ON


def switch(name: str, on: bool) -> None:
    """Switch a workaround on, also for a version on which it was not examined, or off.

    Takes effect for endpoints and listeners that are opened afterwards. ``robust_locks`` cannot be undone once a fabric
    was opened, and ``environment`` cannot be undone once an endpoint over rxm was opened. ``switch`` overrides
    ``AIOFABRIC_WORKAROUNDS``.

    Raises:
        ValueError: there is no workaround of that name.
    """
    _check_name(name)
    if name == "signals":  # it also acts while libfabric is loaded
        load.keeps_signals = on
    _states[name] = State.ON if on else State.OFF
    _chosen.add(name)


def unknown_words() -> Iterable[str]:
    """Words of ``AIOFABRIC_WORKAROUNDS`` that name no workaround."""
    words = (word.strip() for word in os.environ.get(VARIABLE, "").split(","))
    return [word for word in words if word and word != "none" and word.removeprefix("no-") not in WORKAROUNDS]


def meant(word: str) -> str:
    """A sentence with the word of ``AIOFABRIC_WORKAROUNDS`` that an unknown one resembles."""
    off = "no-" if word.startswith("no-") else ""
    close = difflib.get_close_matches(word.removeprefix("no-").replace("-", "_"), WORKAROUNDS, n=1)
    return f"did you mean {off}{close[0]}?" if close else f"there are {', '.join(WORKAROUNDS)}"
