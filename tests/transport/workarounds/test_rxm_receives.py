"""Hazard: rxm over verbs posts receives at a connection that it has closed.

`make test-rdma` closes such endpoints under work.
"""

# Privates: the variable is set while a domain or an endpoint opens, and only a device has such ones.

import os
import threading

import pytest

from aiofabric import Hints, Info, workarounds
from aiofabric.domain import receives_shared
from tests.transport.opening.recorded import tcp, verbs

VARIABLE = "FI_OFI_RXM_USE_SRX"

pytestmark = pytest.mark.once


def offer(provider: str) -> Info:
    found = [each.answer(Hints()) for each in (*verbs(), *tcp()) if each.provider == provider]
    return next(filter(None, found))


@pytest.mark.parametrize(
    ("provider", "before", "within"),
    [("verbs;ofi_rxm", None, "1"), ("verbs;ofi_rxm", "0", "0"), ("verbs", None, None), ("tcp;ofi_rxm", None, None)],
    ids=["rxm over verbs", "set by the program", "verbs alone", "rxm over tcp"],
)
def test_connections_of_rxm_over_verbs_share_their_receives(
    provider: str, before: str | None, within: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, before or "")
    if before is None:
        del os.environ[VARIABLE]
    monkeypatch.setitem(workarounds._states, "rxm_receives", workarounds.State.ON)
    with receives_shared(offer(provider)):
        assert os.environ.get(VARIABLE) == within
    assert os.environ.get(VARIABLE) == before


def test_two_threads_do_not_take_each_others_variable_for_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    del os.environ[VARIABLE]
    monkeypatch.setitem(workarounds._states, "rxm_receives", workarounds.State.ON)
    info, seen, entered = offer("verbs;ofi_rxm"), [], threading.Event()

    def second() -> None:
        with receives_shared(info):
            entered.set()
            seen.append(os.environ.get(VARIABLE))

    thread = threading.Thread(target=second)
    with receives_shared(info):
        thread.start()
        assert not entered.wait(0.2)  # what must not come
    thread.join()
    assert seen == ["1"]
    assert VARIABLE not in os.environ


def test_the_switch_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    del os.environ[VARIABLE]
    monkeypatch.setitem(workarounds._states, "rxm_receives", workarounds.State.OFF)
    with receives_shared(offer("verbs;ofi_rxm")):
        assert VARIABLE not in os.environ
