"""An atomic operation, step by step: what is checked before it is posted, and the structure that is posted."""

# Doubles: calls of libfabric, and the defects of a provider.
# Privates: an object with the methods of `Atomic` stands for the endpoint.

from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import (
    AtomicForm,
    AtomicOp,
    Caps,
    Datatype,
    FabricError,
    MessageTooLongError,
    NotSupportedError,
    OpFlags,
    RemoteRegion,
)
from aiofabric._ffi import constants, ffi
from aiofabric.features import Quirk
from aiofabric.flags import Access
from aiofabric.transport.rma import atomic as module
from aiofabric.transport.rma.atomic import Atomic
from tests.cq.manual import done
from tests.fixtures.methods import methods_of

pytestmark = pytest.mark.once

READ_WRITE = Access.REMOTE_READ | Access.REMOTE_WRITE
REMOTE = RemoteRegion(address=4096, key=11, length=80, access=READ_WRITE)
SUM, READ = AtomicOp.SUM, AtomicOp.ATOMIC_READ
MOST = 10  # elements of one operation


class Route:
    """The route of the peer; it records what is posted."""

    name, peer = "the peer", 7

    def __init__(self) -> None:
        self.shut: Any = None
        self.waiting: list[str] = []
        self.posts: list[Any] = []
        self.kept: list[Any] = []
        self.checked: list[Any] = []

    def check_flags(self, flags: int, size: int) -> int:
        self.checked.append((flags, size))
        return flags

    def accessed(self) -> None:
        """The peer does not sleep."""

    def submit(
        self, call: str, function: Any, args: Any, keep: Any, size: int, registrations: Any, *, message: Any
    ) -> Any:
        self.posts.append((call, args, size))
        self.kept.append(keep)  # the structure points to it
        return "transfer"

    async def outcome(self, transfer: Any) -> None:
        assert transfer == "transfer"


@methods_of(Atomic, "atomic", "try_atomic", "fetch_atomic", "compare_atomic", "atomic_count", "_check", "_perform")
class Endpoint:
    """An endpoint with atomics."""

    def __init__(self) -> None:
        self.route = Route()
        self.admits = True
        self.info: Any = SimpleNamespace(
            caps=Caps.ATOMIC,
            fabric_attr=SimpleNamespace(prov_name="none", name="none"),
            domain_attr=SimpleNamespace(name="none"),
            ep_attr=SimpleNamespace(type=SimpleNamespace(name="RDM")),
        )
        self.handle: Any = SimpleNamespace(
            fid=ffi.NULL,
            inject_size=64,
            tx_flags=0,
            known=Quirk(0),
            checkpoint=None,
            thread_check=SimpleNamespace(admits=lambda: self.admits),
            refuse=lambda call: OSError(f"{call} refused"),
            check_open=lambda: None,
            check_usable=lambda call: None,
            route_to=lambda to: self.route,
            regions=SimpleNamespace(busy=False, acquire=lambda *_: None),
        )
        self._handle = self.handle

    @property
    def post(self) -> Any:
        (post,) = self.route.posts
        return post


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The provider's answers, and its defects."""
    state = SimpleNamespace(valid=0, injected=0, injects=[], known=Quirk(0))

    def valid(fid: Any, datatype: int, op: int, count: Any) -> int:
        count[0] = MOST
        return int(state.valid)

    def inject(*arguments: Any) -> int:
        state.injects.append(arguments)
        return int(state.injected)

    library = SimpleNamespace(
        fi_atomicvalid=valid,
        fi_fetch_atomicvalid=valid,
        fi_compare_atomicvalid=valid,
        fi_inject_atomic=inject,
        fi_atomicmsg="base",
        fi_fetch_atomicmsg="fetch",
        fi_compare_atomicmsg="compare",
    )
    monkeypatch.setattr(module, "lib", library)
    monkeypatch.setattr(module, "quirks", lambda _: state.known)
    return state


@pytest.fixture
def endpoint(provider: Any) -> Any:
    return Endpoint()


def elements(count: int) -> Any:
    return array("q", range(count))


# -- the structure


def test_an_atomic_has_one_list_of_elements(endpoint: Any) -> None:
    done(endpoint.atomic(SUM, elements(3), REMOTE))
    call, args, size = endpoint.post
    _, message, flags = args
    assert (call, size, flags) == ("fi_atomicmsg", 24, OpFlags.COMPLETION)
    assert (message.addr, message.datatype, message.op) == (7, Datatype.INT64, SUM)
    assert (message.iov_count, message.rma_iov_count) == (1, 1)
    assert (message.msg_iov.count, message.rma_iov.count) == (3, 3)
    assert (message.rma_iov.addr, message.rma_iov.key) == (4096, 11)


def test_a_fetch_has_a_second_list_for_the_result(endpoint: Any) -> None:
    before = done(endpoint.fetch_atomic(SUM, elements(3), REMOTE))
    assert len(before) == 3
    call, args, _ = endpoint.post
    assert (call, len(args)) == ("fi_fetch_atomicmsg", 2 + 3 + 1)
    assert (args[2].count, args[4]) == (3, 1)


def test_a_comparison_has_three(endpoint: Any) -> None:
    before = done(endpoint.compare_atomic(AtomicOp.CSWAP, elements(2), elements(2), REMOTE))
    assert len(before) == 2
    call, args, _ = endpoint.post
    assert (call, len(args)) == ("fi_compare_atomicmsg", 2 + 6 + 1)


def test_a_comparison_is_with_as_many_elements(endpoint: Any) -> None:
    with pytest.raises(ValueError, match="2 elements to write, 3 to compare with"):
        done(endpoint.compare_atomic(AtomicOp.CSWAP, elements(2), elements(3), REMOTE))
    assert not endpoint.route.posts


def test_flags_are_checked_with_the_size_of_the_operand(endpoint: Any) -> None:
    done(endpoint.atomic(SUM, elements(3), REMOTE, flags=OpFlags.FENCE))
    assert endpoint.route.checked == [(int(OpFlags.FENCE), 24)]
    assert endpoint.post[1][-1] == OpFlags.FENCE | OpFlags.COMPLETION


# -- what is refused


@pytest.mark.parametrize(("count", "fits"), [(MOST, True), (MOST + 1, False)])
def test_an_operation_has_at_most_the_providers_number_of_elements(count: int, fits: bool, endpoint: Any) -> None:
    if fits:
        done(endpoint.atomic(SUM, elements(count), REMOTE))
        assert endpoint.post[2] == 80
        return
    with pytest.raises(MessageTooLongError, match="There are 11 elements; the provider handles at most 10"):
        done(endpoint.atomic(SUM, elements(count), RemoteRegion(address=4096, key=11, length=800)))


def test_an_operation_stays_within_the_region(endpoint: Any) -> None:
    with pytest.raises(IndexError):
        done(endpoint.atomic(SUM, elements(3), REMOTE[:23]))
    done(endpoint.atomic(SUM, elements(3), REMOTE[:24]))


@pytest.mark.parametrize(
    ("op", "access", "fits"),
    [
        (SUM, Access.REMOTE_WRITE, True),
        (SUM, Access.REMOTE_READ, False),
        (READ, Access.REMOTE_READ, True),
        (READ, Access.REMOTE_WRITE, False),
    ],
)
def test_an_operation_needs_the_access_of_the_region(op: AtomicOp, access: Access, fits: bool, endpoint: Any) -> None:
    remote = RemoteRegion(address=4096, key=11, length=80, access=access)
    if fits:
        done(endpoint.fetch_atomic(op, elements(1), remote))
    else:
        with pytest.raises(FabricError):
            done(endpoint.fetch_atomic(op, elements(1), remote))
        assert not endpoint.route.posts


def test_a_region_is_a_region(endpoint: Any) -> None:
    with pytest.raises(TypeError, match="remote must be a RemoteRegion, not int"):
        done(endpoint.atomic(SUM, elements(1), 4096))


@pytest.mark.parametrize("reason", ["caps", "provider"])
def test_an_operation_that_the_provider_lacks_is_refused(reason: str, endpoint: Any, provider: Any) -> None:
    endpoint.info.caps = Caps.MSG if reason == "caps" else Caps.ATOMIC
    provider.valid = -constants.FI_EOPNOTSUPP if reason == "provider" else 0
    assert endpoint.atomic_count(SUM, Datatype.INT64) == 0
    with pytest.raises(NotSupportedError):
        done(endpoint.atomic(SUM, elements(1), REMOTE))
    assert not endpoint.route.posts


@pytest.mark.parametrize(
    ("known", "op", "form", "usable"),
    [
        (Quirk(0), READ, AtomicForm.FETCH_ATOMIC, True),
        (Quirk.FETCH_ATOMIC_CRASHES, SUM, AtomicForm.BASE, True),
        (Quirk.FETCH_ATOMIC_CRASHES, SUM, AtomicForm.FETCH_ATOMIC, False),
        (Quirk.FETCH_ATOMIC_CRASHES, SUM, AtomicForm.COMPARE_ATOMIC, False),
        (Quirk.ATOMIC_READ_EMPTY, READ, AtomicForm.FETCH_ATOMIC, False),
        (Quirk.ATOMIC_READ_EMPTY, SUM, AtomicForm.FETCH_ATOMIC, True),
    ],
)
def test_an_operation_that_the_provider_does_wrongly_is_refused(
    known: Quirk, op: AtomicOp, form: AtomicForm, usable: bool, endpoint: Any, provider: Any
) -> None:
    provider.known = known
    assert endpoint.atomic_count(op, Datatype.INT64, form) == (MOST if usable else 0)


@pytest.mark.parametrize("corrupts", [False, True])
@pytest.mark.parametrize("flags", [OpFlags(0), OpFlags.DELIVERY_COMPLETE])
def test_a_delivered_atomic_that_overwrites_messages_is_refused(flags: OpFlags, corrupts: bool, endpoint: Any) -> None:
    endpoint.handle.known = Quirk.DELIVERED_ATOMIC_CORRUPTS if corrupts else Quirk(0)
    if corrupts and flags:
        with pytest.raises(NotSupportedError, match="would overwrite later messages"):
            done(endpoint.atomic(SUM, elements(1), REMOTE, flags=flags))
    else:
        done(endpoint.atomic(SUM, elements(1), REMOTE, flags=flags))
    endpoint.route.posts.clear()
    done(endpoint.fetch_atomic(SUM, elements(1), REMOTE, flags=flags))  # it returns after the delivery


def test_another_thread_is_refused(endpoint: Any) -> None:
    endpoint.admits = False
    with pytest.raises(OSError, match="fi_fetch_atomicmsg refused"):
        done(endpoint.fetch_atomic(SUM, elements(1), REMOTE))


def test_on_trio_each_operation_begins_with_a_checkpoint(endpoint: Any) -> None:
    async def checkpoint() -> None:
        raise TimeoutError("cancelled")

    endpoint.handle.checkpoint = checkpoint
    with pytest.raises(TimeoutError):
        done(endpoint.atomic(SUM, elements(1), REMOTE))
    assert not endpoint.route.posts


# -- at once


def test_a_short_operand_is_injected(endpoint: Any, provider: Any) -> None:
    assert endpoint.try_atomic(SUM, elements(8), REMOTE)
    ((_, _, count, *rest),) = provider.injects
    assert (count, rest) == (8, [7, 4096, 11, Datatype.INT64, SUM])


@pytest.mark.parametrize("reason", ["too long", "queued", "a long key", "no room"])
def test_an_operation_that_would_have_to_wait_is_not_posted(reason: str, endpoint: Any, provider: Any) -> None:
    remote = REMOTE
    if reason == "a long key":
        remote = RemoteRegion(address=4096, key=11, length=80, raw=b"a long key", access=READ_WRITE)
    endpoint.route.waiting = ["another"] if reason == "queued" else []
    provider.injected = -constants.FI_EAGAIN if reason == "no room" else 0
    assert not endpoint.try_atomic(SUM, elements(9 if reason == "too long" else 8), remote)
    assert len(provider.injects) == (reason == "no room")


def test_an_operation_that_fails_raises(endpoint: Any, provider: Any) -> None:
    provider.injected = -constants.FI_EINVAL
    with pytest.raises(FabricError, match="fi_inject_atomic"):
        endpoint.try_atomic(SUM, elements(1), REMOTE)
    endpoint.route.shut = lambda: ConnectionResetError("lost")
    with pytest.raises(ConnectionResetError):
        endpoint.try_atomic(SUM, elements(1), REMOTE)
    assert len(provider.injects) == 1
