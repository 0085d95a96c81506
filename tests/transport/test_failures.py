"""Which error an operation ends with, and which receive is ended for a kept message: the rules alone."""

import errno
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import (
    FabricConnectionEndedError,
    FabricConnectionResetError,
    FabricError,
    TruncatedMessageError,
)
from aiofabric._ffi import constants
from aiofabric.cq.operation import State
from aiofabric.cq.queue import ErrorEntry
from aiofabric.features import Quirk
from aiofabric.transport.failures import Failures, Refill
from tests.cq.manual import ManualDriver
from tests.fixtures.methods import Hashable, methods_of

pytestmark = pytest.mark.once

ENDED = (errno.EPIPE, constants.FI_ENOTCONN, constants.FI_ECONNRESET, constants.FI_ECONNABORTED, constants.FI_ESHUTDOWN)


@methods_of(Failures, "lost_peer", "closed_error", "flushed", "explain", "refill", "recall", "failure")
class Endpoint:
    """The state of an endpoint that its errors depend on."""

    what = "Endpoint"
    peer_name = "the peer"

    def __init__(self) -> None:
        self.closed = self.ending = self.end_received = False
        self.gone: Any = None
        self.loss = ""
        self.tx: Any = object()
        self.last_access: tuple[str, int] | None = None
        self.regions = SimpleNamespace(exposed=False)
        self.recalled: dict[Any, Any] = {}
        self.private: dict[Any, None] = {}
        self.known: set[Quirk] = set()
        self.driver = ManualDriver()
        self.source = SimpleNamespace(driver=self.driver, touch=lambda: self.calls.append("touch"))
        self.rx = SimpleNamespace(posted=[], dismiss=lambda receive, error: self.dismissed.append((receive, error)))
        self.dismissed: list[Any] = []
        self.calls: list[Any] = []
        self.cancels = True  # whether the provider can cancel

    def send_no_more(self, error: Any) -> None:
        self.calls.append(error)

    def lost_because(self, words: str) -> None:
        self.loss = words

    def cancel(self, pointer: Any) -> int:
        self.calls.append(pointer)
        return 0 if self.cancels else -constants.FI_ENOSYS

    # -- for the test

    def explained(self, code: int, state: State = State.POSTED) -> Any:
        own: Any = self
        return own.explain(operation(state), entry(code))

    def lost(self) -> Any:
        own: Any = self
        return own.lost_peer()


def operation(state: State = State.POSTED, pointer: str = "context") -> Any:
    return Operation(state=state, what="fi_recv", length=7, slot=SimpleNamespace(pointer=pointer))


class Operation(Hashable):
    """An operation of an endpoint."""

    owner = SimpleNamespace(name="its peer")


def entry(code: int, overflow: int = 0) -> ErrorEntry:
    return ErrorEntry(0, 0, 0, overflow, 0, code, 9, "the provider's text", constants.FI_ADDR_NOTAVAIL)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


# -- the loss of the peer


def test_the_loss_of_a_peer_is_a_reset(endpoint: Endpoint) -> None:
    error = endpoint.lost()
    assert isinstance(error, FabricConnectionResetError)
    assert (error.peer, error.detail) == ("the peer", "")


def test_the_loss_of_a_peer_names_the_last_access_to_its_memory(endpoint: Endpoint) -> None:
    endpoint.last_access = ("a read", 300)
    endpoint.regions.exposed = True
    assert "was a read of 300 bytes" in endpoint.lost().detail
    endpoint.last_access = None
    assert "registered memory for remote access" in endpoint.lost().detail


def test_a_peer_that_ended_in_order_is_not_lost(endpoint: Endpoint) -> None:
    endpoint.end_received = True
    assert isinstance(endpoint.lost(), FabricConnectionEndedError)


def test_an_endpoint_that_closes_in_order_is_closed(endpoint: Endpoint) -> None:
    endpoint.ending = endpoint.end_received = True
    assert isinstance(endpoint.lost(), ClosedResourceError)


# -- an operation that failed


@pytest.mark.parametrize("code", ENDED)
def test_an_operation_that_a_connections_end_failed_has_the_reason_of_the_end(code: int, endpoint: Endpoint) -> None:
    assert isinstance(endpoint.explained(code), FabricConnectionResetError)
    own: Any = endpoint
    assert endpoint.calls == [own.lost_peer]  # later sends are refused
    endpoint.calls.clear()
    reason = OSError("gone")
    endpoint.gone = lambda: reason
    assert endpoint.explained(code) is reason
    assert not endpoint.calls


@pytest.mark.parametrize("code", ENDED)
def test_without_a_connection_such_codes_are_failures(code: int, endpoint: Endpoint) -> None:
    endpoint.tx = None
    error = endpoint.explained(code)
    assert isinstance(error, FabricError)
    assert (error.errno, error.peer) == (code, "its peer")
    assert not endpoint.calls


@pytest.mark.parametrize("connected", [True, False])
def test_a_cancelled_operation_ends_as_its_endpoint_did(connected: bool, endpoint: Endpoint) -> None:
    endpoint.tx = object() if connected else None
    assert isinstance(endpoint.explained(constants.FI_ECANCELED), FabricConnectionResetError)
    assert len(endpoint.calls) == connected
    endpoint.closed = True
    assert "closed while the operation was in flight" in str(endpoint.explained(constants.FI_ECANCELED))
    assert len(endpoint.calls) == connected


@pytest.mark.parametrize("state", [State.CANCELLING, State.ABANDONED])
def test_an_operation_whose_task_has_left_changes_nothing(state: State, endpoint: Endpoint) -> None:
    error = endpoint.explained(constants.FI_ECANCELED, state)
    assert (type(error), str(error)) == (ClosedResourceError, "cancelled")
    assert not endpoint.calls


def test_a_receive_that_was_ended_for_a_reason_has_it_once(endpoint: Endpoint) -> None:
    receive = operation()
    own: Any = endpoint
    endpoint.closed = True
    endpoint.recalled[receive] = Refill
    assert isinstance(own.explain(receive, entry(constants.FI_ECANCELED)), Refill)
    assert isinstance(own.explain(receive, entry(constants.FI_ECANCELED)), ClosedResourceError)


@pytest.mark.parametrize("stale", [False, True])
def test_the_providers_error_is_told_unless_it_is_of_an_earlier_failure(stale: bool, endpoint: Endpoint) -> None:
    endpoint.known = {Quirk.STALE_PROVIDER_ERRNO} if stale else set()
    error = endpoint.explained(constants.FI_EIO)
    assert error.provider_errno == (0 if stale else 9)
    assert ("the provider's text" in str(error)) is not stale


@pytest.mark.parametrize(("overflow", "size"), [(0, None), (5, 12)])
def test_a_truncated_message_names_the_sizes_that_are_known(
    overflow: int, size: int | None, endpoint: Endpoint
) -> None:
    own: Any = endpoint
    error = own.failure("fi_recv", entry(constants.FI_ETRUNC, overflow), 7, "the peer")
    assert isinstance(error, TruncatedMessageError)
    assert (error.limit, error.size) == (7, size)


# -- a posted receive that is ended


def recall(endpoint: Endpoint, receive: Any) -> bool:
    own: Any = endpoint
    return bool(own.recall(receive, Refill))


def test_a_posted_receive_is_cancelled_and_ends_with_the_error(endpoint: Endpoint) -> None:
    receive = operation()
    assert recall(endpoint, receive)
    assert endpoint.calls == ["context", "touch"]
    assert endpoint.recalled == {receive: Refill}
    assert not recall(endpoint, receive)  # it is under way
    assert endpoint.calls == ["context", "touch"]


@pytest.mark.parametrize("state", [each for each in State if each is not State.POSTED])
def test_a_receive_that_is_not_posted_is_left_alone(state: State, endpoint: Endpoint) -> None:
    assert not recall(endpoint, operation(state))
    assert not endpoint.calls


def test_nothing_is_cancelled_after_the_end_of_the_loop(endpoint: Endpoint) -> None:
    endpoint.driver.is_closed = True
    assert not recall(endpoint, operation())
    assert not endpoint.calls


@pytest.mark.parametrize("private", [True, False])
def test_without_a_cancel_only_a_receive_into_memory_of_our_own_ends(private: bool, endpoint: Endpoint) -> None:
    endpoint.cancels = False
    receive = operation()
    if private:
        endpoint.private[receive] = None
    assert recall(endpoint, receive) is private
    assert [each for each, _ in endpoint.dismissed] == ([receive] if private else [])
    assert all(isinstance(error, Refill) for _, error in endpoint.dismissed)
    assert not endpoint.recalled


def test_a_kept_message_ends_the_first_receive_that_it_fits(endpoint: Endpoint) -> None:
    other, impossible, first, second = (
        operation(state, name)
        for state, name in (
            (State.POSTED, "other"),
            (State.CANCELLING, "impossible"),
            (State.POSTED, "first"),
            (State.POSTED, "second"),
        )
    )
    endpoint.rx.posted = [other, impossible, first, second]
    kept: Any = SimpleNamespace(fits_receive=lambda receive: receive is not other)
    own: Any = endpoint
    own.refill(kept)
    assert list(endpoint.recalled) == [first]


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (2, FabricConnectionResetError, "The device of this host could not send"),
        (11, FabricConnectionResetError, "Connect again"),
        (12, FabricConnectionResetError, "The peer's device did not answer"),
        (9, FabricError, "provider says"),
    ],
)
def test_the_status_of_a_device_says_whether_the_connection_is_lost(
    status: int, kind: type[FabricError], words: str
) -> None:
    """IBV_WC_LOC_QP_OP_ERR without a link, IBV_WC_REM_OP_ERR after the peer was killed, IBV_WC_RETRY_EXC_ERR without an
    answer; verbs reports FI_EIO.
    """
    endpoint: Any = Endpoint()
    failed = entry(errno.EIO)._replace(provider_errno=status)
    assert type(endpoint.explain(operation(), failed)) is FabricError
    endpoint.known = {Quirk.DEVICE_ANSWERS}
    error = endpoint.explain(operation(), failed)
    assert type(error) is kind
    assert words in str(error)
