"""Ctrl-C that arrives while waiters are woken leaves the waiters that were not woken to the next call."""

# A waiter in whose `set_result` Ctrl-C arrives, as it may in the loop's `call_soon`.
# Privates: the lists of waiters; no public call shows who waits.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric.rpc.grpc.client.rpc import ClientRpc
from aiofabric.rpc.grpc.server.rpc import ServerRpc
from aiofabric.transport.handle import EndpointHandle
from aiofabric.transport.virtual.receive_pools import ReceivePool


class Waiter:
    def __init__(self, *, interrupted: bool = False) -> None:
        self.interrupted = interrupted
        self.woken = False

    def done(self) -> bool:
        return self.woken

    def set_result(self, _: None) -> None:
        assert not self.woken
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        self.woken = True


LOOP = SimpleNamespace(driver=SimpleNamespace(closed=lambda: False), woke=lambda: None)
LISTS: dict[str, tuple[Any, str, dict[str, Any]]] = {  # the method that wakes, the list, and what else it uses
    "client": (ClientRpc._wake_all, "_waiters", {}),
    "server": (ServerRpc._changed, "_waiters", {}),
    "endpoint": (EndpointHandle.wake_gone_waiters, "gone_waiters", {"source": LOOP}),
}


@pytest.mark.parametrize("which", LISTS)
def test_waiters_behind_an_interrupted_one_are_woken_by_the_next_call(which: str) -> None:
    wake, name, others = LISTS[which]
    waiters = [Waiter(), Waiter(interrupted=True), Waiter()]
    owner = SimpleNamespace(**others, **{name: list(waiters)})
    with pytest.raises(KeyboardInterrupt):
        wake(owner)
    assert [each.woken for each in waiters] == [True, False, False]
    wake(owner)
    assert [each.woken for each in waiters] == [True, True, True]
    assert not getattr(owner, name)


class Refused(Exception):
    """The answer of the provider."""


class Receives(ReceivePool):
    """A pool whose timer posts its receives, and then wakes the connections that wait for them."""

    def __init__(self, *, refusal: Refused | None = None) -> None:
        self.refusal = refusal
        self.timers: list[Any] = []
        driver = SimpleNamespace(call_later=lambda _, callback: self.timers.append(callback))
        double: Any = SimpleNamespace(closed=False, source=SimpleNamespace(driver=driver))
        self.multiplexer = double
        self._waits = True

    def post(self) -> None:
        if self.refusal is not None:
            raise self.refusal


def test_waiters_for_receives_that_an_interrupt_left_are_woken_by_a_timer() -> None:
    waiters: list[Any] = [Waiter(), Waiter(interrupted=True), Waiter()]
    pool = Receives()
    pool._waiters = list(waiters)
    with pytest.raises(KeyboardInterrupt):
        pool._post_again()
    assert [each.woken for each in waiters] == [True, False, False]
    (timer,) = pool.timers
    timer()
    assert [each.woken for each in waiters] == [True, True, True]
    assert not pool._waiters


def test_a_refusal_that_is_not_for_lack_of_room_wakes_the_waiters_for_receives() -> None:
    waiter: Any = Waiter()
    pool = Receives(refusal=Refused("no"))
    pool._waiters = [waiter]
    with pytest.raises(Refused):
        pool._post_again()
    assert waiter.woken
