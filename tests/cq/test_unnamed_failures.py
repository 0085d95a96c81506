"""Hazard: an error entry of shm names no operation, so the read or write that failed never ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aiofabric._ffi import constants
from aiofabric.cq.operation import State
from aiofabric.cq.unnamed_failures import watch
from tests.cq.manual import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.once


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    it = Endpoint(limit=2)
    yield it
    it.close()


def submitted(endpoint: Endpoint, label: str) -> Any:
    transfer = endpoint.submit(label)
    watch(endpoint.source, transfer)
    return transfer


def test_an_unnamed_failure_ends_the_oldest_operation_and_gives_back_what_it_had(endpoint: Endpoint) -> None:
    first, second, queued = (submitted(endpoint, label) for label in ("first", "second", "queued"))
    assert [each.state for each in (first, second, queued)] == [State.POSTED, State.POSTED, State.QUEUED]
    copies: Any = endpoint.source.unmatched.unnamed_failure
    slots = endpoint.source.statistics().slots_in_use
    assert copies.failed()
    assert [each.state for each in (first, second, queued)] == [State.FINISHED, State.POSTED, State.QUEUED]
    assert first not in endpoint.submissions.posted
    assert endpoint.source.statistics().slots_in_use == slots - 1
    assert isinstance(first.error, OSError)
    assert first.error.errno == constants.FI_EACCES
    assert copies.failed()
    assert copies.failed()  # the queued one
    assert not endpoint.submissions.waiting
    assert not copies.failed()
    statistics = endpoint.source.statistics()
    assert (statistics.slots_in_use, statistics.in_flight, statistics.queued) == (0, 0, 0)


def test_an_operation_that_has_ended_is_not_the_one_that_failed(endpoint: Endpoint) -> None:
    first, second = submitted(endpoint, "first"), submitted(endpoint, "second")
    endpoint.queue.complete(first.slot.address)
    endpoint.driver.settle_down()
    copies: Any = endpoint.source.unmatched.unnamed_failure
    assert copies.failed()
    assert second.state is State.FINISHED
    assert second.error is not None
    assert first.error is None


def test_an_operation_that_ended_within_its_posting_is_not_watched(endpoint: Endpoint) -> None:
    transfer = endpoint.submit("at once")
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down()
    assert transfer.state is State.FINISHED
    watch(endpoint.source, transfer)
    assert endpoint.source.unmatched.unnamed_failure is None


@pytest.mark.parametrize(("context", "failed"), [(0, True), (12345, False)])
def test_only_an_error_without_a_context_is_given_to_an_operation(
    endpoint: Endpoint, context: int, failed: bool
) -> None:
    transfer = submitted(endpoint, "write")
    endpoint.queue.fail(context, constants.FI_EIO)
    endpoint.driver.settle_down()
    assert (transfer.error is not None) is failed
