"""The fast paths in C of usual calls do the same as the methods in Python, which have all cases.

The same script runs on two pairs of connections: one as it is, the other without its fast paths.
"""

# Privates: `_budget_used`, `_owed` and `_unread` are a part of what must be the same.

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiofabric import _core
from aiofabric.rpc.protocol.client import ClientConnection
from aiofabric.rpc.protocol.connection import Limits
from aiofabric.rpc.protocol.frames import FRAME_COST, HEADER, NO_INDEX, NO_TIMEOUT, Flag, Kind, frame
from aiofabric.rpc.protocol.server import ServerConnection
from tests.fixtures.children import run_in_child
from tests.rpc.protocol.network import AcceptedCall, Network

if TYPE_CHECKING:
    from tests.rpc.protocol.network import MadeCall

pytestmark = pytest.mark.once


class LongClient(ClientConnection):
    """A client whose calls never take the fast path."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.status_ok = None

    def begin(self, *_: Any) -> bool:
        return False


class LongServer(ServerConnection):
    """A server whose calls never take the fast path."""

    def __init__(self, limits: Limits, new_call: Any) -> None:
        super().__init__(limits, new_call, admits=lambda: None)

    def conclude(self, *_: Any) -> bool:
        return False


LIMITS = Limits(window=65536, max_calls=8, max_message=30_000)


def pair(long: bool, limits: Limits = LIMITS) -> Network:
    network = Network(limits, limits)
    if long:
        network.client = LongClient(limits)
        network.server = LongServer(limits, network._new_call)
    network.settle()
    return network


def state_of(call: Any) -> tuple[Any, ...]:
    status = getattr(call, "status", None)
    return (
        *(call.id, call.method, call.over, call.received_end, call.sent_end, call.unsent, call.deadline),
        *(
            call.credits,
            call.window,
            call.outstanding,
            call.receive_window,
            call.queued,
            call._owed,
            call._budget_used,
            call.held,
        ),
        *(call.got, call.events, bool(call._unread), call._queue is None, call.initial_metadata),
        status and (status.code, status.details, status.metadata, status.may_have_run),
    )


SIZES = st.sampled_from([0, 1, 64, 16384, 16385, 29_999, 40_000])
STEPS = st.one_of(
    st.tuples(
        st.just("call"), st.sampled_from(["/a/b", "/c/d"]), SIZES, st.booleans(), st.sampled_from([None, 1.0, 9.0])
    ),
    st.tuples(st.just("finish"), st.integers(0, 9), st.none() | SIZES, st.sampled_from([0, 0, 0, 5])),
    st.tuples(st.just("post"), st.integers(0, 9), SIZES),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("release"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["settle", "send", "drain", "wait"])),
)


def run(network: Network, steps: list[tuple[Any, ...]]) -> list[Any]:
    """Everything that can be observed of a script."""
    made: list[MadeCall] = []
    seen: list[Any] = []
    for action, *arguments in steps:
        served = [call for _, call in sorted(network.served.items())]
        if action == "call":
            method, size, end, deadline = arguments
            if network.client.usable:
                until = None if deadline is None else network.now + deadline
                made.append(network.call(method, message=bytes(size), end=end, deadline=until))
        elif action in ("settle", "send"):
            getattr(network, action)()
        elif action == "drain":
            network.server.drain()
        elif action == "wait":
            network.now += 2.0
        elif arguments[0] < len(served if action != "cancel" else made):
            if action == "finish":
                message = None if arguments[1] is None else bytes(arguments[1])
                served[arguments[0]].finish(arguments[2], message=message)
            elif action == "post":
                served[arguments[0]].post(bytes(arguments[1]))
            elif action == "cancel":
                made[arguments[0]].cancel()
            elif action == "release" and network.server.running:
                served[arguments[0]].release()
        seen.append([state_of(call) for call in (*made, *served)])
        seen.append((network.server.highest, network.server.running, network.client.next_id))
        seen.append((sorted(network.client.calls), sorted(network.server.calls)))
        seen.append((network.client.budget.used, network.server.budget.used, network.server.budget.running))
    network.settle()
    assert network.client.failed is None
    return [seen, network.recorded, [state_of(call) for call in made], network.server.failed is None]


@given(st.lists(STEPS, max_size=30))
def test_the_fast_paths_do_the_same_as_the_general_ones(steps: list[tuple[Any, ...]]) -> None:
    assert run(pair(False), steps) == run(pair(True), steps)


def test_a_usual_call_takes_the_fast_paths() -> None:
    network = pair(False)
    network.call(message=b"x", end=True)  # defines the name of the method
    network.settle()

    class Spied(AcceptedCall):
        def _end(self) -> None:
            pytest.fail("the general path was taken")

    network.server.new_call = Spied
    network.client.emit_start = lambda *_: pytest.fail("the general path was taken")  # type: ignore[method-assign]
    for connection in (network.client, network.server):
        for kind in (Kind.START, Kind.STATUS):
            connection._handlers[kind] = lambda *_: pytest.fail("the general path was taken")
    call = network.call(message=b"request", end=True)
    network.settle()
    network.server.calls[call.id].finish(message=b"reply")
    network.settle()
    assert (call.got, call.events, call.over) == ([b"reply"], ["message", "ended"], True)


STARTS = st.tuples(
    st.sampled_from([0, 1, 2, 3, 0x83, 7, 0x0B, 0xFF]),  # flags
    st.sampled_from([0, 1, 2, NO_INDEX]),
    st.sampled_from([0, 1, 2, 3, 1 << 40]),  # id
    st.sampled_from([b"", b"\0" * 7, NO_TIMEOUT.to_bytes(8, "little"), (5_000_000).to_bytes(8, "little")]),
    st.sampled_from([0, 1, 30_000, 30_001]),
)


def after(connection: Any, data: bytes) -> tuple[Any, ...]:
    connection.receive(memoryview(data), 1000.0)
    output, connection.output = connection.output, []
    return str(connection.failed), [bytes(each) for each in output], sorted(connection.calls)


@given(st.lists(STARTS, max_size=4))
def test_any_start_is_read_the_same_way(starts: list[tuple[int, int, int, bytes, int]]) -> None:
    seen = []
    for long in (False, True):
        network = pair(long)
        network.client.names.define(0, "/a/b")
        network.server.receive(memoryview(frame(Kind.DEFINE, 0, b"/a/b")), 1000.0)
        calls = []
        for flags, index, id, timeout, size in starts:
            data = HEADER.pack(Kind.START, flags, index, len(timeout) + size, id) + timeout + bytes(size)
            seen_now = after(network.server, data)
            calls.append((seen_now, [state_of(each) for each in network.server.calls.values()]))
        seen.append((calls, network.server.running, network.server.highest))
    assert seen[0] == seen[1]


@given(st.integers(0, 255), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 1, 16384, 16385]))
def test_any_status_is_read_the_same_way(flags: int, code: int, id: int, size: int) -> None:
    seen = []
    for long in (False, True):
        network = pair(long, Limits())
        made = [network.call(message=b"x", end=True) for _ in range(2)]
        network.settle()
        data = HEADER.pack(Kind.STATUS, flags, code, size, id) + bytes(size)
        seen.append((after(network.client, data), [state_of(each) for each in made]))
    assert seen[0] == seen[1]


def test_a_name_of_the_wire_means_the_same_in_c() -> None:
    network = pair(False)
    network.call(message=b"x", end=True)
    network.settle()
    call = network.call(message=b"yz", end=True)
    network.send()
    (start,) = network.to_server
    kind, flags, index, length, id = HEADER.unpack_from(start)
    assert (kind, flags, index, length, id) == (Kind.START, Flag.MESSAGE | Flag.END, 0, 10, call.id)
    assert start[HEADER.size :] == NO_TIMEOUT.to_bytes(8, "little") + b"yz"
    assert call.credits == call.window - FRAME_COST - 2


def test_an_object_that_was_not_initialised_is_refused() -> None:
    call, connection = _core.CallCore(), _core.ConnectionCore()
    for use in (
        lambda: connection.emit(b""),
        lambda: connection.hold(b""),
        lambda: connection.receive(memoryview(b""), 0.0),
        lambda: connection(memoryview(b"")),
        lambda: connection.begin(call, "", b"", True, None, 0.0),
        lambda: connection.conclude(call, b""),
    ):
        with pytest.raises(RuntimeError, match="not initialised"):
            use()


DELETES = """
import sys
from aiofabric import _core
from aiofabric.rpc.protocol.frames import frame
from tests.fuzz.core_calls import ready_connection

connection, call = ready_connection(), _core.CallCore()

class Deadline:
    def __float__(self):
        delete()
        return 5.0

def delete(*_):
    for name in ("calls", "output", "_handlers", "method_indexes"):
        if hasattr(connection, name) and getattr(connection, name) is not None:
            delattr(connection, name)
    return False

{action}
"""


@pytest.mark.parametrize(
    "action",
    [
        "connection._handlers[5] = delete; connection.receive(frame(5, 1) + frame(7, 1, b'', flags=2), 0.0)",
        "connection._handlers[5] = delete; connection.receive(frame(5, 1) + frame(3, 1, bytes(9), flags=3), 0.0)",
        "connection.send_now = delete; connection.emit(b'frame')",
        "connection.send_now = delete; connection.conclude(call, b'reply')",
        "connection.begin(call, 'text', b'request', True, Deadline(), 0.0)",
    ],
)
def test_a_callback_that_deletes_the_state_gets_an_error_and_no_crash(action: str) -> None:
    ended = run_in_child(DELETES.format(action=action))
    assert ended.status == 1, ended
    assert "RuntimeError: the connection was not initialised" in ended.err or "_reading_failed" in ended.err, ended


def test_a_connection_its_calls_and_its_output_are_collected() -> None:
    def made() -> list[weakref.ref[Any]]:
        network = pair(False)
        call = network.call(message=b"x", end=True)
        network.settle()
        call.owner = network.client.transport = network  # cycles, as an endpoint and its transport make them
        network.client.output.append(network.client)  # type: ignore[arg-type]
        return [weakref.ref(each) for each in (network.client, network.server, call, *network.served.values())]

    references = made()
    assert len(references) == 4
    gc.collect()
    assert [each() for each in references] == [None] * 4
