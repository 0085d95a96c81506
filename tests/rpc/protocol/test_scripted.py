"""Two state machines over a network that delays, divides and interleaves messages, compared with a model."""

# Privates: `_unread` and `_queue` say what is kept in memory; nothing public does.

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiofabric.rpc.protocol.connection import Limits
from tests.rpc.protocol.network import AcceptedCall, MadeCall, Network

pytestmark = pytest.mark.once

SIZES = st.sampled_from([0, 1, 64, 1000, 16384, 16385, 40_000, 66_000, 200_000, 300_000])


@dataclass
class Expected:
    """The messages that one call has sent in each direction, and its possible ends."""

    made: MadeCall
    requests: list[bytes] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)
    half_closed: bool = False
    finished: tuple[int, str] | None = None
    cancelled: bool = False


class Conversation(RuleBasedStateMachine):
    """Many calls at once."""

    @initialize(window=st.sampled_from([65536, 262144]), table=st.sampled_from([0, 60, 16384]))
    def open(self, window: int, table: int) -> None:
        limits = Limits(window=window, table=table, memory=1 << 20)
        self.network = Network(limits, limits)
        self.calls: list[Expected] = []
        self.number = 0
        self.cut = False

    def body(self, size: int) -> bytes:
        self.number += 1
        return self.number.to_bytes(4, "little") * (size // 4) + b"." * (size % 4)

    def pick(self, which: int) -> Expected:
        return self.calls[which % len(self.calls)]

    def served(self, expected: Expected) -> AcceptedCall | None:
        return self.network.served.get(expected.made.id)

    @precondition(lambda self: not self.cut and len(self.calls) < 8)
    @rule(size=st.none() | SIZES, end=st.booleans(), key=st.sampled_from("abc"))
    def begin(self, size: int | None, end: bool, key: str) -> None:
        message = None if size is None else self.body(size)
        made = self.network.call("/s/" + key, ((key, key),), message=message, end=end)
        self.calls.append(Expected(made, [] if message is None else [message], half_closed=end))

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 7), size=SIZES, end=st.booleans())
    def request(self, which: int, size: int, end: bool) -> None:
        expected = self.pick(which)
        if not expected.half_closed and not expected.made.over:
            message = self.body(size)
            expected.made.post(message, end=end)
            expected.requests.append(message)
            expected.half_closed = end

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 7))
    def half_close(self, which: int) -> None:
        expected = self.pick(which)
        expected.made.half_close()
        expected.half_closed = True

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 7))
    def cancel(self, which: int) -> None:
        expected = self.pick(which)
        if expected.made.cancel():
            expected.cancelled = True

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 7), size=SIZES)
    def reply(self, which: int, size: int) -> None:
        expected = self.pick(which)
        served = self.served(expected)
        if served is not None and not served.over and expected.finished is None:
            message = self.body(size)
            served.post(message)
            expected.replies.append(message)

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 7), code=st.sampled_from([0, 5]), size=st.none() | SIZES)
    def finish(self, which: int, code: int, size: int | None) -> None:
        expected = self.pick(which)
        served = self.served(expected)
        if served is not None and not served.over and expected.finished is None:
            message = None if size is None else self.body(size)
            if message is not None:
                expected.replies.append(message)
            expected.finished = (code, "text" if code else "")
            served.finish(code, "text" if code else "", message=message)

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 7))
    def consume(self, which: int) -> None:
        expected = self.pick(which)
        expected.made.consumed()
        served = self.served(expected)
        if served is not None:
            served.consumed()

    @rule(to_server=st.integers(0, 5), to_client=st.integers(0, 5))
    def deliver(self, to_server: int, to_client: int) -> None:
        self.network.send()
        self.network.deliver(self.network.to_server, to_server)
        self.network.deliver(self.network.to_client, to_client)

    @precondition(lambda self: self.calls and not self.cut)
    @rule()
    def lose_the_connection(self) -> None:
        self.cut = True
        self.network.cut()

    @invariant()
    def nothing_is_wrong(self) -> None:
        if not hasattr(self, "network"):
            return
        network = self.network
        assert network.client.failed is None, network.client.failed
        assert network.server.failed is None, network.server.failed
        for expected in self.calls:
            made, served = expected.made, self.served(expected)
            assert made.got == expected.replies[: len(made.got)]
            if served is not None:
                assert served.got == expected.requests[: len(served.got)]
            if made.status is not None and made.status.code == 0:
                assert made.got == expected.replies
            assert made.events.count("ended") == int(made.over)

    def teardown(self) -> None:
        if not hasattr(self, "network"):
            return
        network = self.network
        for _ in range(200):  # applications that take everything and end every call
            network.settle()
            for expected in self.calls:
                served = self.served(expected)
                for call in (expected.made, served):
                    while call is not None and call._unread:
                        call.consumed()
                if served is not None and not served.over and expected.finished is None and not served._queue:
                    expected.finished = (0, "")
                    served.finish()
            if all(expected.made.over for expected in self.calls):
                break
        network.settle()
        for expected in self.calls:
            made, served = expected.made, self.served(expected)
            assert made.over, "a call has no end"
            assert made.status is not None
            if expected.cancelled:
                assert made.status.code == 1
            elif self.cut and made.status.code == 14:
                assert served is None or made.status.may_have_run
            elif expected.finished is not None:
                assert (made.status.code, made.status.details) == expected.finished
                assert made.got == expected.replies
            if served is not None:
                assert served.over
                while served._unread:
                    served.consumed()
            while made._unread:
                made.consumed()
        assert (network.client.budget.used, network.server.budget.used) == (0, 0)
        assert (network.client.budget.waiting, network.server.budget.waiting) == (0, 0)
        assert not network.client.calls
        assert not network.server.calls


TestConversation = Conversation.TestCase
TestConversation.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
