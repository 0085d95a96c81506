"""Completions that finish no operation: writes of a peer, and messages of senders that are not known yet."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from aiofabric._ffi import constants
from aiofabric.cq.operation import State
from aiofabric.cq.polling import Waiting
from aiofabric.cq.source.source import Source
from tests.cq.manual import Endpoint, ManualDriver

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.once

WRITE = constants.FI_REMOTE_WRITE | constants.FI_RMA
WITH_DATA = WRITE | constants.FI_REMOTE_CQ_DATA
UNKNOWN = constants.FI_EADDRNOTAVAIL


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    it = Endpoint()
    it.source.touch()
    it.driver.settle_down()  # the queue is armed
    yield it
    it.close()


@pytest.mark.parametrize("consumes", [False, True])
def test_a_peers_write_consumes_a_receive_only_where_the_provider_says_so(endpoint: Endpoint, consumes: bool) -> None:
    transfer = endpoint.submit()
    assert endpoint.source.unmatched.rx_cq_data is False
    endpoint.source.unmatched.rx_cq_data = consumes
    endpoint.queue.complete(transfer.slot.address, flags=WITH_DATA)
    endpoint.queue.complete(0, flags=WITH_DATA)  # of no receive
    endpoint.driver.settle_down()
    assert endpoint.posted == [transfer.slot.address] * (1 + consumes)
    assert (transfer.state, endpoint.driver.reports) == (State.POSTED, [])


def test_data_of_writes_that_nobody_reads_is_told_once(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "aiofabric")
    endpoint.queue.complete(0, flags=WRITE)
    endpoint.driver.settle_down()
    assert caplog.messages == []
    for _ in range(2):
        endpoint.queue.complete(0, flags=WITH_DATA)
    endpoint.driver.settle_down()
    (message,) = caplog.messages
    assert "remote_writes=" in message
    assert endpoint.source.statistics().stale == 3


def test_writes_that_are_read_are_neither_told_nor_stale(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "aiofabric")
    entries: list[Any] = []
    endpoint.source.unmatched.peer_wrote = entries.append
    endpoint.queue.complete(0, flags=WITH_DATA, data=7)
    endpoint.driver.settle_down()
    assert [entry[4] for entry in entries] == [7]
    assert (caplog.messages, endpoint.source.statistics().stale) == ([], 0)


@pytest.mark.parametrize(("errno", "introduces"), [(UNKNOWN, True), (UNKNOWN, False), (constants.FI_EIO, True)])
def test_a_message_of_a_new_sender_has_arrived_if_the_sender_can_be_introduced(
    endpoint: Endpoint, errno: int, introduces: bool
) -> None:
    introduced: list[bytes] = []

    def introduce(address: bytes) -> int:
        introduced.append(address)
        return 3

    if introduces:
        endpoint.source.unmatched.introduce = introduce
    caller = endpoint.await_(transfer := endpoint.submit())
    endpoint.queue.fail(transfer.slot.address, errno, length=5, address=b"sender")
    endpoint.driver.settle_down()
    if errno == UNKNOWN and introduces:
        assert introduced == [b"sender"]
        assert caller.outcome is transfer
        assert transfer.length == 5
    else:
        assert introduced == []
        assert caller.outcome.errno == errno


def test_a_source_without_a_queue_waits_as_it_was_asked_to_and_polls_nothing() -> None:
    driver = ManualDriver()
    source = Source(driver, None)
    driver.settle_down()
    assert source.statistics().waiting is Waiting.ADAPTIVE
    assert driver.delays == []
    source.close()


@pytest.mark.parametrize("known", [True, False])
def test_a_drain_goes_on_behind_a_failure(endpoint: Endpoint, known: bool) -> None:
    failed, other = endpoint.submit(), endpoint.submit()
    endpoint.queue.fail(failed.slot.address if known else 12345, constants.FI_EIO)
    endpoint.queue.complete(other.slot.address)
    assert endpoint.source.drain() == 2
    assert other.state is State.FINISHED
