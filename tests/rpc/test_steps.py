"""Steps of the runtime that a program cannot cause on purpose: a failed piece, an end that raises, a lost attempt."""

# Privates: the steps of a transport; only a provider that fails takes them.
# Doubles: the report of a driver, because what is reported to a loop ends the test.

from __future__ import annotations

import socket
from time import monotonic
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from aiofabric import rpc
from aiofabric.cm.clients.backoff import Backoff
from aiofabric.cq.loops.drivers import current_driver
from aiofabric.rpc.channel.subchannel import Subchannel
from aiofabric.rpc.protocol.flow import Budget
from aiofabric.rpc.runtime.deadlines import Deadlines
from aiofabric.rpc.runtime.tasks import tasks_of
from aiofabric.rpc.runtime.transport import RpcTransport
from tests.fixtures.methods import methods_of
from tests.fixtures.providers import OWN_HOST
from tests.fixtures.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.once]


@methods_of(RpcTransport, "_transmit", "_send_pieces", "_piece_sent", "_frames_sent", "_sent", "_flush")
class Sending:
    """A transport whose provider takes messages, and finishes them when the test says so."""

    def __init__(self) -> None:
        self.ended = False
        self.ends: list[BaseException] = []
        self.posted: list[Any] = []
        self._pieces = 0
        self._handle = SimpleNamespace(thread_check=SimpleNamespace(admits=lambda: True), tx=self)
        self.pieces = [(b"header", memoryview(b"piece"))]
        self.connection: Any = SimpleNamespace(
            rotation=[1], output=[], next_piece=lambda: self.pieces.pop() if self.pieces else None, sent=0
        )
        self.connection.handed_over = self.connection.has_left = lambda size: None
        self.connection.pieces_handed_over = lambda: None

    def inject(self, frames: Any) -> bool:
        return False

    def post(self, frames: Any) -> Any:
        self.posted.append(SimpleNamespace(error=None, notify=None, length=5))
        return self.posted[-1]

    def _end(self, error: BaseException) -> None:
        self.ended = True
        self.ends.append(error)


@pytest.mark.parametrize("what", ["piece", "frame"])
async def test_a_message_that_the_provider_could_not_send_ends_the_connection(what: str) -> None:
    sending: Any = Sending()
    if what == "piece":
        sending._send_pieces()
    else:
        sending._transmit(b"frame")
    (transfer,) = sending.posted
    transfer.error = OSError("on purpose")
    transfer.notify(transfer)
    assert sending.ends == [transfer.error]
    assert sending._pieces == 0


class Expires:
    """A call with a deadline."""

    over = False

    def __init__(self, deadline: float, error: BaseException | None = None) -> None:
        self.deadline: float | None = deadline
        self.error = error
        self.at_end = anyio.Event()

    def expired(self) -> None:
        self.at_end.set()
        if self.error is not None:
            raise self.error


async def test_a_deadline_whose_call_raises_leaves_the_others_their_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = current_driver()
    reported: list[BaseException] = []
    monkeypatch.setattr(driver, "report", lambda _, error: reported.append(error))
    deadlines, now = Deadlines(driver), monotonic()
    error = LookupError("on purpose")
    calls = [Expires(now), Expires(now, error), Expires(now), Expires(now + 0.02)]
    for call in calls:
        deadlines.add(call)
    with anyio.fail_after(10):
        for call in calls:
            await call.at_end.wait()
    assert reported == [error]
    assert not len(deadlines)


async def test_closing_a_subchannel_cancels_an_attempt_that_is_not_the_first_one() -> None:
    tasks = tasks_of(current_driver())
    limits = rpc.Limits()
    with socket.socket() as silent:
        silent.bind((OWN_HOST, 0))  # refuses at first, and then accepts without an answer
        options: dict[str, Any] = {
            "backoff": Backoff(0.01, 1, 0.01),
            "connect_timeout": 300,
            "options": {"provider": "tcp"},
        }
        states: list[rpc.Connectivity] = []

        def changed() -> None:
            states.append(subchannel.state)
            if subchannel.state is rpc.Connectivity.IDLE:
                silent.listen()
                subchannel.connect()

        subchannel = Subchannel(silent.getsockname(), limits, Budget(limits.memory), tasks, changed, **options)
        subchannel.connect()
        await until(lambda: rpc.Connectivity.IDLE in states)
        assert subchannel.state is rpc.Connectivity.CONNECTING
        await anyio.lowlevel.checkpoint()
        subchannel.close()
        with anyio.fail_after(10):
            await tasks.wait()
