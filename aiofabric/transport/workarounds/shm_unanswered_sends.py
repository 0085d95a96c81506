"""Unanswered sends: large messages over shm of libfabric 1.17 whose receiver is gone.

A send of more than 4 KiB has an entry in a ring in the sender's own memory. The receiver copies the message out of the
sender's process, and writes the result into that entry. The ring is read in order (smr_progress.c, smr_progress_resp).
So if one receiver was killed or closed its endpoint, no later send of the same endpoint completes, to any peer.

So when the last connection with a peer has ended and sends to it are still unanswered, the peer is checked. Once no
process has the peer's memory mapped any more, no answer can come, and this module writes the answer "cancelled".
"""

from __future__ import annotations

import errno
import logging
import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..._ffi import CData, constants, ffi, lib
from ...info import library_version
from ...workarounds import is_on
from .shm_names import path_of, process_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...address import Address
    from ...address_vector import Peer
    from ...cq.source.source import Source
    from ..route import Route

__all__ = ["Unanswered", "is_gone"]

_log = logging.getLogger(__name__)

_DELAYS = (0.0, 0.02, 0.1, 0.5, 1.0)  # seconds between two checks of a peer

# ofi_shm.h of 1.17: the version, and the flag of a debug build, which has other structures. Then offsets: the signal
# that makes the endpoint read the ring; the memory's length; the offsets of the ring and of the part behind it.
_VERSION = 4
_DEBUG = 2
_SIGNAL, _TOTAL, _RING, _BEHIND = 28, 40, 72, 80
_BUSY = errno.EBUSY
_CANCELLED = (1 << 64) - constants.FI_ECANCELED
# struct ofi_cirque: size, mask, read and write counts; then the entries of two words, an operation's address and its
# state.
_HEAD, _ANSWER = 32, 16
# struct smr_tx_entry: in its command the protocol of the message, its length, and the offset of the answer. Behind that
# the application's context, and how much was copied, if that is done in pieces (smr_src_sar: no CMA).
_WAY, _SIZE, _WHERE, _CONTEXT, _COPIED = 20, 24, 32, 264, 352
_IN_PIECES = 4
_SUCCESS = 0


class ShmEndpoint(Protocol):
    """An endpoint of this process that sends over shm."""

    address: Address
    closed: bool
    fid: Any
    source: Source

    def route_to(self, peer: Peer) -> Route: ...


class Unanswered:
    """The ring of one endpoint of this process."""

    def __init__(self, handle: ShmEndpoint) -> None:
        self._handle = handle
        self._routes: dict[Peer, Route] = {}
        self._attempts = 0
        self._waits = False

    def watch(self, peer: Peer) -> None:
        """The last connection with the peer has ended."""
        route = self._handle.route_to(peer)
        if route.posted:
            self._routes[peer] = route
            self._attempts = 0
            self._come_back()

    def _come_back(self) -> None:
        if self._routes and not self._waits:
            self._waits = True
            delay = _DELAYS[min(self._attempts, len(_DELAYS) - 1)]
            self._attempts += 1
            self._handle.source.driver.call_later(delay, self._examine)

    def _examine(self) -> None:
        self._waits = False
        if self._handle.closed:
            return
        self._routes = {peer: route for peer, route in self._routes.items() if route.posted}
        gone = [(peer, route) for peer, route in self._routes.items() if is_gone(peer.address)]
        try:
            for peer, route in gone:
                self._take_lock(peer)
                self._answer({transfer.slot.address for transfer in route.posted})
        except (OSError, ValueError) as error:
            _log.info("%s cannot be examined yet: %s", path_of(self._handle.address), error)
        if gone:
            self._handle.source.drain()
            self._handle.source.wake()
        self._come_back()

    def _take_lock(self, peer: Peer) -> None:
        """Free libfabric's lock in the peer's memory, in case the peer was killed while it held the lock."""
        if is_on("robust_locks") and lib.aiofabric_make_locks_robust(library_version() < (1, 18)) == 0:
            lib.fi_tinject(self._handle.fid, b"", 0, peer.native, 0)

    def _answer(self, contexts: set[int]) -> None:
        path = path_of(self._handle.address)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory, ffi.from_buffer(memory) as start:
            for answer in _answers(start, len(memory)):
                if answer.context in contexts:
                    answer.give()
                    ffi.cast("int32_t *", start + _SIGNAL)[0] = 1
                    _log.debug("a message to a peer that is gone was given up")


class _Answer(NamedTuple):
    operation: CData
    state: CData

    @property
    def context(self) -> int:
        return int(self._of_operation("uint64_t *", _CONTEXT)[0])

    def give(self) -> None:
        if self._of_operation("uint16_t *", _WAY)[0] == _IN_PIECES:
            self._of_operation("uint64_t *", _COPIED)[0] = self._of_operation("uint64_t *", _SIZE)[0]
            self.state[0] = _SUCCESS
        elif self.state[0] == _BUSY:
            self.state[0] = _CANCELLED

    def _of_operation(self, ctype: str, offset: int) -> CData:
        return ffi.cast(ctype, self.operation + offset)


def _answers(start: CData, length: int) -> Iterator[_Answer]:
    """The unanswered entries of the ring; none if the memory does not have the layout of 1.17."""

    def word(offset: int) -> int:
        return int(ffi.cast("uint64_t *", start + offset)[0])

    ring = word(_RING)
    if word(0) & 255 != _VERSION or word(0) >> 16 & _DEBUG or word(_TOTAL) != length or ring + _HEAD > length:
        return
    size, mask, read, written = (word(ring + offset) for offset in range(0, _HEAD, 8))
    if not size or size & mask or size != mask + 1 or word(_BEHIND) != ring + _HEAD + size * _ANSWER:
        return
    for position in range(read, min(written, read + size)):
        offset = ring + _HEAD + (position & mask) * _ANSWER
        operation = ffi.cast("char *", word(offset))
        if operation and ffi.cast("uint64_t *", operation + _WHERE)[0] == offset:
            yield _Answer(operation, ffi.cast("uint64_t *", start + offset + 8))


def is_gone(address: Address) -> bool:
    """Whether the process that opened the peer's endpoint is proved not to have it any more.

    The process may have ended, be a zombie, or have closed the endpoint, which unmaps its memory.
    """
    process = process_of(address)
    if process is None:
        return False
    name = path_of(address).name
    try:
        mapped = Path("/proc", str(process), "maps").read_text()
    except FileNotFoundError:
        return True
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return re.search(rf"/{re.escape(name)}\b", mapped) is None
