"""The bounded poll of a completion queue, on a datagram endpoint that sends to itself."""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

import aiofabric
from aiofabric import AddressFormat, Caps, EndpointType, EpAttr, FabricAttr, Hints
from aiofabric._core import NativeQueue
from aiofabric._ffi import address_of, ffi, lib
from aiofabric._ffi import constants as C
from aiofabric.cq.queue import Entry
from aiofabric.errors import check

MS = 1_000_000  # nanoseconds


@dataclass
class Loopback:
    """An open udp endpoint, its queue, and its own address in its vector."""

    ep: Any
    cq: Any
    me: int

    def poll(self, window: int, sources: bool = False) -> tuple[list[Entry] | int, int]:
        """The result of the poll, and the longest gap."""
        queue = NativeQueue(address_of(self.cq), 0, sources)
        return queue.read(window), queue.gap


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    hints = Hints(
        caps=Caps.MSG | Caps.SOURCE,
        addr_format=AddressFormat.SOCKADDR_IN,
        ep_attr=EpAttr(type=EndpointType.DGRAM),
        fabric_attr=FabricAttr(prov_name="udp"),
    )
    info = aiofabric.getinfo("127.0.0.1", 0, flags=aiofabric.GetInfoFlags.SOURCE, hints=hints)[0].native
    with ExitStack() as stack:

        def opened(kind: str, call: str, *arguments: Any) -> Any:
            out = ffi.new(f"struct fid_{kind} **")
            check(getattr(lib, call)(*arguments, out, ffi.NULL), call)
            stack.callback(lib.fi_close, ffi.cast("struct fid *", out[0]))
            return out[0]

        fabric = opened("fabric", "fi_fabric", info.fabric_attr)
        domain = opened("domain", "fi_domain", fabric, info)
        queue, vector = ffi.new("struct fi_cq_attr[2]"), ffi.new("struct fi_av_attr[2]")
        queue[0].format, queue[0].wait_obj = C.FI_CQ_FORMAT_TAGGED, C.FI_WAIT_NONE
        cq = opened("cq", "fi_cq_open", domain, queue)
        av = opened("av", "fi_av_open", domain, vector)
        ep = opened("ep", "fi_endpoint", domain, info)
        check(lib.fi_ep_bind(ep, ffi.cast("struct fid *", cq), C.FI_TRANSMIT | C.FI_RECV), "fi_ep_bind")
        check(lib.fi_ep_bind(ep, ffi.cast("struct fid *", av), 0), "fi_ep_bind")
        check(lib.fi_enable(ep), "fi_enable")
        name, length, me = ffi.new("char[64]"), ffi.new("size_t *", 64), ffi.new("fi_addr_t *")
        check(lib.fi_getname(ffi.cast("struct fid *", ep), name, length), "fi_getname")
        check(lib.fi_av_insert(av, name, 1, me, 0, ffi.NULL), "fi_av_insert")
        yield Loopback(ep, cq, me[0])


def test_an_empty_queue_is_watched_for_the_whole_window(loopback: Loopback) -> None:
    got, gap = loopback.poll(2 * MS)
    assert got == -C.FI_EAGAIN
    assert 0 < gap < 2000 * MS


def test_a_window_of_zero_is_one_look(loopback: Loopback) -> None:
    assert loopback.poll(0)[0] == -C.FI_EAGAIN


def test_a_completion_ends_the_look(loopback: Loopback) -> None:
    context, buffer = ffi.new("struct fi_context2 *"), ffi.new("char[]", b"hello")
    check(lib.fi_send(loopback.ep, buffer, 5, ffi.NULL, loopback.me, context), "fi_send")
    got, _ = loopback.poll(10_000 * MS)
    assert isinstance(got, list)
    assert [entry[0] for entry in got] == [address_of(context)]
    assert len(got[0]) == 6


def test_looking_from_tells_the_source(loopback: Loopback) -> None:
    contexts, room = ffi.new("struct fi_context2[2]"), ffi.new("char[64]")
    check(lib.fi_recv(loopback.ep, room, 64, ffi.NULL, C.FI_ADDR_UNSPEC, contexts), "fi_recv")
    check(lib.fi_send(loopback.ep, b"hello", 5, ffi.NULL, loopback.me, contexts + 1), "fi_send")
    seen: dict[int, int] = {}
    while len(seen) < 2:
        got, _ = loopback.poll(10_000 * MS, sources=True)
        assert isinstance(got, list)
        seen |= {entry[0]: entry[6] for entry in got}
    assert seen[address_of(contexts)] == loopback.me
    assert ffi.string(room) == b"hello"


class Scripted:
    """A queue whose reads are a Python function: only the needed parts of a ``struct fid_cq``."""

    READ = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def __init__(self, read: Callable[[], int]) -> None:
        self.reads = 0

        def called(*_: object) -> int:
            self.reads += 1
            return read()

        self._called = self.READ(called)
        self._ops = (ctypes.c_void_p * 8)(64, ctypes.cast(self._called, ctypes.c_void_p))  # struct fi_ops_cq
        self._fid = (ctypes.c_void_p * 4)(0, 0, 0, ctypes.addressof(self._ops))  # struct fid, and the pointer to it
        self.queue = NativeQueue(ctypes.addressof(self._fid), 0, False)

    def poll(self, *, offering: bool = False) -> int:
        """The number of completions found, or the error."""
        got = self.queue.read(0, offering)
        return len(got) if isinstance(got, list) else got


def busy(nanoseconds: int) -> None:
    until = time.perf_counter_ns() + nanoseconds
    while time.perf_counter_ns() < until:
        pass


@pytest.mark.once
@pytest.mark.alone
def test_the_next_piece_of_a_large_message_is_waited_for() -> None:
    def read() -> int:
        if queue.reads == 1:
            busy(MS // 20)  # copies a piece
        return 1 if queue.reads == 3 else -C.FI_EAGAIN

    queue = Scripted(read)
    while queue.poll() != 1:  # it does not continue if the thread lost its core meanwhile
        queue.reads = 0
    assert queue.reads == 3
    reads = []
    for _ in range(21):
        queue.reads = 3
        assert queue.poll() == -C.FI_EAGAIN
        reads.append(queue.reads - 3)
    assert sorted(reads)[10] == 1  # no progress: one read, unless another process made that long


@pytest.mark.once
@pytest.mark.alone
def test_a_look_that_ends_between_pieces_says_so() -> None:
    """The loop iterates then, and polls again. A sleeping process would be woken for each piece."""
    pieces = there = False

    def read() -> int:
        if pieces and queue.reads % 2:
            busy(MS // 50)
        return 1 if there else -C.FI_EAGAIN

    queue = Scripted(read)
    for _ in range(10):
        queue.poll()
    for _ in range(3):  # a useless yield, and the two that are left out after it: the next await polls first
        queue.poll(offering=True)
    assert queue.queue.useless == 1
    while queue.queue.moving:  # a read that another process made longer
        queue.poll()
    pieces = True
    while not queue.queue.moving:  # not a read during which the thread lost its core
        queue.poll()
    pieces, there = False, True
    assert queue.poll(offering=True) == 1
    assert (queue.queue.useless, queue.queue.moving) == (1, False)


@pytest.mark.once
def test_looks_that_always_take_long_move_nothing() -> None:
    def read() -> int:
        busy(MS // 20)
        return int(-C.FI_EAGAIN)

    queue = Scripted(read)
    for _ in range(300):
        queue.poll()
    queue.reads = 0
    for _ in range(100):
        queue.poll()
    assert queue.reads < 150


@pytest.fixture
def neighbour() -> Iterator[None]:
    """Another process on the same core, which runs for a moment when the core is yielded."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    taker = subprocess.Popen([sys.executable, "-c", "import os\nwhile True: os.sched_yield()"])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        taker.kill()
        taker.wait()


@pytest.mark.once
@pytest.mark.usefixtures("neighbour")
def test_the_core_is_offered_while_that_is_answered() -> None:
    def read() -> int:
        """The completion is there when the thread gets the core again, and not before."""
        return 1 if queue.reads == 2 else -C.FI_EAGAIN

    queue = Scripted(read)
    for _ in range(100_000):
        queue.reads = 0 if queue.queue.useless else 1  # after a useful yield, the next one comes before the poll
        found = queue.poll(offering=True)
        if found == 1 and queue.queue.useless == 0:
            break
    assert (found, queue.queue.useless) == (1, 0)


@pytest.mark.once
def test_the_core_is_offered_ever_more_rarely_where_nobody_answers() -> None:
    queue = Scripted(lambda: int(-C.FI_EAGAIN))
    useless = []
    for _ in range(1000):
        assert queue.poll(offering=True) == -C.FI_EAGAIN
        useless.append(queue.queue.useless)
    left_out = [1 << n for n in range(1, 8)]
    assert [useless.count(n) for n in range(1, 8)] == [1 + count for count in left_out]
    assert useless[-1] == 8
