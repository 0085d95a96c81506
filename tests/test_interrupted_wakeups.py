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
    "receives": (
        ReceivePool._post_again,
        "_waiters",
        {"multiplexer": SimpleNamespace(closed=False), "post": lambda: None, "_waits": True},
    ),
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
