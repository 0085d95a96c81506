"""Closed endpoints that linger, and when they go: the state alone, with endpoints that only record what is done."""

# Doubles: which names belong to this process, the files of endpoints, and calls of libfabric.
# Privates: the registers of open and closed endpoints are the module's own.

from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Address, FabricError, UnreachableError
from aiofabric._ffi import constants, ffi
from aiofabric.cq.queue import ErrorEntry
from aiofabric.features import Quirk
from aiofabric.transport.connectionless import shm_same_process as module
from aiofabric.transport.connectionless.shm_same_process import SameProcessRoute, _Remains, _Watch
from tests.cq.manual import EndingRoute
from tests.fixtures.methods import Hashable, methods_of

pytestmark = pytest.mark.once

ELSEWHERE = object()  # another thread
DISAPPEAR: Any = module.LingeringHandle._disappear


class Queue:
    """The completion queue of an endpoint: what each read returns."""

    def __init__(self, order: list[Any]) -> None:
        self.order = order
        self.reads: list[Any] = []
        self.errors: list[Any] = []

    def read(self) -> Any:
        return self.reads.pop(0) if self.reads else []

    def read_error(self) -> Any:
        return self.errors.pop(0) if self.errors else None

    def progress(self) -> None:
        self.order.append("progress")


class Vector:
    """The addresses that an endpoint knows."""

    def __init__(self, order: list[Any]) -> None:
        self.order = order
        self.known: set[Any] = set()

    def knows(self, address: Any) -> bool:
        return address in self.known

    def lose(self, address: Any) -> None:
        self.order.append(("loses", str(address)))
        self.known.discard(address)

    def prepare(self, address: Any) -> int:
        return 77


class Transfer:
    """An operation that is in flight when its endpoint closes."""

    def __init__(self, *, receives: bool) -> None:
        self.owner = SimpleNamespace(receives=receives)
        self.slot = SimpleNamespace(pointer="receive" if receives else "send")
        self.registrations: tuple[Any, ...] = ()
        self.pins: Any = None


class Endpoint:
    """An endpoint of this process."""

    what, opened_at = "RdmEndpoint", "here"

    def __init__(self, order: list[Any], name: str) -> None:
        self.order = order
        self.address = Address.from_str(f"fi_shm://{name}")
        self.fid = ffi.NULL
        self.linked: set[Any] = set()
        self.thread: Any = get_ident()
        self.queue = Queue(order)
        self.vector: Any = Vector(order)
        self.source: Any = SimpleNamespace(operations={}, draining=False, drain=lambda: self.drains.append(1))
        self.drains: list[int] = []
        self.overflow: Any = None
        self.known = Quirk(0)
        self.lingers = self.entered = True
        self.submission_queues: tuple[Any, ...] = ()
        self.cancelled: list[Any] = []
        self.refuses_to_leave = False

    def cancel(self, pointer: Any) -> None:
        self.cancelled.append(pointer)

    def _leave(self) -> None:
        self.order.append(f"{self.address} left")
        if self.refuses_to_leave:
            raise FabricError(constants.FI_EBUSY, "fi_close")


@pytest.fixture
def order() -> list[Any]:
    return []


@pytest.fixture(autouse=True)
def registers(order: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty registers; names of this process begin with "our"."""
    monkeypatch.setattr(module, "_here", {})
    monkeypatch.setattr(module, "_gone", {})
    monkeypatch.setattr(module, "Transfer", Transfer)
    monkeypatch.setattr(module, "is_own", lambda address: "our" in str(address))
    monkeypatch.setattr(module, "remove", lambda address: order.append(("removed", str(address))))


def opened(order: list[Any], *names: str) -> list[Any]:
    endpoints = [Endpoint(order, name) for name in names]
    for each in endpoints:
        module._here[each.address] = each  # type: ignore[assignment]
    return endpoints


def link(one: Any, other: Any) -> None:
    one.linked.add(other)
    other.linked.add(one)
    one.vector.known.add(other.address)
    other.vector.known.add(one.address)


def closed(endpoint: Any) -> bool:
    """The endpoint closes; whether it lingers."""
    return module.leave(endpoint)


def lingering() -> list[Any]:
    return [str(handle.address) for handle in module._gone]


# -- which endpoints linger


def test_an_endpoint_that_nobody_knows_goes_at_once(order: list[Any]) -> None:
    (one,) = opened(order, "ours")
    assert not closed(one)
    assert (lingering(), module._here, one.entered) == ([], {}, False)


def test_an_endpoint_that_another_one_knows_lingers(order: list[Any]) -> None:
    one, other = opened(order, "ours", "our-other")
    link(one, other)
    assert closed(one)
    assert (lingering(), one.lingers, one.entered) == (["fi_shm://ours"], True, False)
    assert list(module._here.values()) == [other]


@pytest.mark.parametrize(
    ("name", "here", "is_closed"), [("ours", True, False), ("ours", False, True), ("theirs", False, False)]
)
def test_the_name_of_a_closed_endpoint_is_refused(name: str, here: bool, is_closed: bool, order: list[Any]) -> None:
    address = Address.from_str(f"fi_shm://{name}")
    if here:
        opened(order, name)
    assert module.is_closed(address) is is_closed
    watch: Any = _Watch(None)  # type: ignore[arg-type]
    if is_closed:
        with pytest.raises(UnreachableError, match="was closed in this process"):
            watch.admit(address)
    else:
        watch.admit(address)


# -- addresses that are added


def test_two_endpoints_of_the_process_know_each_other(order: list[Any]) -> None:
    one, other = opened(order, "ours", "our-other")
    watch = _Watch(one)
    assert watch.inserted(other.address, 5)
    assert (one.linked, other.linked) == ({other}, {one})
    assert watch.inserted(one.address, 6)  # its own
    assert one.linked == {other}
    assert not watch.inserted(Address.from_str("fi_shm://theirs"), 7)
    assert order == []


def test_endpoints_that_would_crash_at_an_answer_are_introduced_once(
    order: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened(order, "ours", "our-other")
    one.known = Quirk.ANSWER_CRASHES
    writes: list[Any] = []
    monkeypatch.setattr(module, "lib", SimpleNamespace(fi_inject_write=lambda *arguments: writes.append(arguments[3])))
    watch = _Watch(one)
    for _ in range(2):
        assert watch.inserted(other.address, 5)
    assert writes == [77, 5]
    assert order == ["progress"] * 3


@pytest.mark.parametrize("crashes", [False, True])
def test_only_others_of_the_process_read_our_memory(crashes: bool, order: list[Any]) -> None:
    one, other = opened(order, "ours", "our-other")
    one.known = Quirk.ANSWER_CRASHES if crashes else Quirk(0)
    assert module.reads_ours(one, other.address) is crashes
    assert not module.reads_ours(one, one.address)
    assert not module.reads_ours(one, Address.from_str("fi_shm://theirs"))


# -- when they go


def gone(order: list[Any]) -> list[str]:
    return [each.removesuffix(" left") for each in order if isinstance(each, str) and each.endswith(" left")]


def test_one_that_no_open_endpoint_knows_goes(order: list[Any]) -> None:
    one, other = opened(order, "ours", "our-other")
    link(one, other)
    closed(one)
    module.sweep()
    assert (gone(order), order[-1]) == ([], ("removed", "fi_shm://ours"))
    closed(other)
    module.sweep()
    assert sorted(gone(order)) == ["fi_shm://our-other", "fi_shm://ours"]
    assert (lingering(), one.lingers, other.lingers, other.linked) == ([], False, False, set())


def test_one_that_is_quiet_and_was_forgotten_goes(order: list[Any]) -> None:
    one, other = opened(order, "ours", "our-other")
    link(one, other)
    closed(one)
    other.vector.known.clear()
    module.sweep()
    assert gone(order) == ["fi_shm://ours"]
    assert order[:2] == [("loses", "fi_shm://our-other"), ("loses", "fi_shm://ours")]
    assert other.linked == set()


@pytest.mark.parametrize("reason", ["its thread", "the other's thread", "a pass", "a message"])
def test_one_that_may_be_in_use_stays(reason: str, order: list[Any]) -> None:
    one, other = opened(order, "ours", "our-other")
    link(one, other)
    if reason == "a message":
        one.source.operations = {1: Transfer(receives=False)}
    closed(one)
    other.vector.known.clear()
    one.thread = ELSEWHERE if reason == "its thread" else one.thread
    other.thread = ELSEWHERE if reason == "the other's thread" else other.thread
    other.source.draining = reason == "a pass"
    module.sweep()
    assert lingering() == ["fi_shm://ours"]
    assert bool(other.drains) is (reason == "a message")
    one.queue.reads = [[(1, 0, 5)]]
    one.thread = other.thread = get_ident()
    other.source.draining = False
    module.sweep()
    assert lingering() == []


def test_few_quiet_ones_stay(order: list[Any]) -> None:
    (other,) = opened(order, "our-other")
    for number in range(6):
        (one,) = opened(order, f"our-{number}")
        link(one, other)
        closed(one)
    module.sweep()
    assert gone(order) == ["fi_shm://our-0", "fi_shm://our-1"]
    assert len(lingering()) == 4


def test_one_that_the_provider_does_not_release_is_logged(order: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    one, other = opened(order, "ours", "our-other")
    link(one, other)
    closed(one)
    module._here.clear()
    one.refuses_to_leave = True
    module.sweep()
    assert lingering() == []
    assert "RdmEndpoint opened at here" in caplog.text


@pytest.mark.parametrize("count", [3, 4])
def test_room_is_bounded(count: int, order: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 4)
    (other,) = opened(order, "our-other")
    for number in range(count):
        (one,) = opened(order, f"our-{number}")
        link(one, other)
        closed(one)
    if count == 4:
        with pytest.raises(FabricError, match="4 closed endpoints of this process"):
            module.check_room()
    else:
        module.check_room()


# -- operations that are in flight when an endpoint closes


def test_all_operations_are_cancelled_and_sends_are_awaited(order: list[Any]) -> None:
    (one,) = opened(order, "ours")
    one.source.operations = {1: Transfer(receives=True), 2: Transfer(receives=False)}
    remains = _Remains(one, {})
    remains.empty()
    assert one.cancelled == ["receive", "send"]
    assert remains.sending
    one.queue.reads = [[(2, 0, 5)], None, [(1, 0, 5)]]
    assert remains.read() == {2: 5, 1: 5}
    assert (remains.pending, remains.sending) == ({}, False)


def test_errors_are_read_too(order: list[Any]) -> None:
    (one,) = opened(order, "ours")
    one.source.operations = {1: Transfer(receives=False), 3: Transfer(receives=True)}
    remains = _Remains(one, {})
    one.queue.reads = [None, [(9, 0, 4)]]
    one.queue.errors = [ErrorEntry(1, 0, 6, 0, 0, 5, 0, "", 0)]
    assert remains.read() == {1: 6, 9: 4}
    assert (list(remains.pending), remains.sending) == ([3], False)


def test_registrations_are_held_until_the_native_endpoint_is_closed(order: list[Any]) -> None:
    one, other = opened(order, "ours", "our-other")
    link(one, other)
    uses: list[str] = []
    send: Any = Transfer(receives=False)
    send.registrations = (SimpleNamespace(end_use=lambda: uses.append("ended")),)
    one.source.operations = {1: send}
    closed(one)
    assert (send.registrations, uses) == ((), [])
    module._here.clear()
    module.sweep()
    assert uses == ["ended"]


# -- long messages that are injected


@methods_of(SameProcessRoute, "_inject")
class Sending:
    """A route to an endpoint of this process; it records how a message is sent."""

    def __init__(self, posted: int = 0) -> None:
        self.posted = [0] * posted
        self.order: list[str] = []

    def post(self, data: bytes, tag: int | None) -> None:
        self.order.append("posted")


@pytest.mark.parametrize(("posted", "sent"), [(0, True), (255, True), (256, False)])
def test_a_long_injected_message_has_a_completion(posted: int, sent: bool) -> None:
    """Its memory is the sender's until the other endpoint has read it."""
    route: Any = Sending(posted)
    assert route._inject(bytes(129), None) is sent
    assert route.order == ["posted"] * sent


# -- sends of other endpoints


class Linked:
    """Another endpoint of this process, or an alias of one."""

    def __init__(self, address: Address, *aliases: Any) -> None:
        self.there, self.third = EndingRoute(), EndingRoute()  # to the one that closes, and to another one
        self.by_peer = {
            Hashable(address=address): self.there,
            Hashable(address=Address.from_str("fi_shm://third")): self.third,
        }
        self.children = [object(), *aliases]
        self.thread: Any = get_ident()
        self.over = False
        self.source = SimpleNamespace(driver=SimpleNamespace(closed=lambda: self.over))


@pytest.mark.parametrize("reason", ["", "another thread", "closed loop"])
def test_nothing_is_sent_to_an_endpoint_that_closes(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends of endpoints in other threads, or of loops that have ended, cannot be ended here."""
    monkeypatch.setattr(module, "LingeringHandle", Linked)
    address = Address.from_str("fi_shm://ours")
    alias = Linked(address)
    other = Linked(address, alias)
    other.thread = ELSEWHERE if reason == "another thread" else other.thread
    other.over = reason == "closed loop"
    closing: Any = SimpleNamespace(address=address, linked={other}, thread=get_ident())
    DISAPPEAR(closing)
    for each in (other, alias):
        assert isinstance(each.there.closed_off(), UnreachableError)
        assert (each.there.failed is not None) is (reason == "")
        assert (each.third.closed_off, each.third.failed) == (None, None)
