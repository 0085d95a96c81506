"""The receives of a shared pool: their number, when they are posted, and who waits for those that were refused."""

# Privates: `_free` and `_memory` of the pool under test tell what the provider does not have.
# Doubles: the test answers the posts and the cancels in place of a provider.

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric._ffi import address_of, constants, ffi, lib
from aiofabric.cq.queue import ErrorEntry
from aiofabric.cq.slots import Slots
from aiofabric.errors import FabricError
from aiofabric.transport.virtual.protocol import ID, MASK, POOL
from aiofabric.transport.virtual.receive_pools import ReceivePool, SharedBuffer
from tests.cq.manual import Caller, ManualDriver

pytestmark = pytest.mark.once

SPARE = 8
FULL = -constants.FI_EAGAIN


class Owner:
    """A multiplexer whose provider is the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, receives: int = 1000, *, strict: bool = False) -> None:
        self.fid = None
        self.receives, self.strict, self.closed = receives, strict, False
        self.shared_out: list[ReceivePool] = []
        self.share_out = self.shared_out.append
        self.driver = ManualDriver()
        self.touched = 0
        self.source: Any = SimpleNamespace(
            slots=Slots(), operations={}, driver=self.driver, touch=self.touch, drain=lambda: 0
        )
        self.handle: Any = SimpleNamespace(register_own=lambda _: ffi.NULL, native=None)
        self.notices: Any = None
        self.answers: list[int] = []  # to the next posts; afterwards all succeed
        self.posts: list[tuple[Any, ...]] = []
        monkeypatch.setattr(lib, "fi_trecv", self.post)

    def touch(self) -> None:
        self.touched += 1

    def post(self, *args: Any) -> int:
        rc = self.answers.pop(0) if self.answers else 0
        if rc == 0:
            self.posts.append(args)
        return rc

    def pool(self, **connections: Any) -> ReceivePool:
        return ReceivePool(self, 3, 64, {int(name[1:]): each for name, each in connections.items()})

    def posted(self) -> list[SharedBuffer]:
        return [each for each in self.source.operations.values() if each.posted]


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Owner:
    return Owner(monkeypatch)


def test_a_pool_of_receives_grows_to_what_its_connections_need_and_doubles(owner: Owner) -> None:
    owner.receives = 30
    pool = owner.pool()
    counts = []
    for window in (5, 2, 11, 1, 100):
        pool.promise(window)
        counts.append((pool.promised, pool.count, pool.posted))
    assert counts == [(5, 13, 13), (7, 26, 26), (18, 26, 26), (19, 30, 30), (119, 30, 30)]
    assert owner.touched == 3
    assert owner.shared_out == []


def test_a_pool_of_receives_has_at_most_512_even_if_the_provider_has_more(owner: Owner) -> None:
    pool = owner.pool()
    pool.promise(900)
    assert (pool.count, pool.posted) == (512, 512)


def test_a_pool_of_a_provider_that_loses_messages_gets_its_receives_from_the_multiplexer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner(monkeypatch, strict=True)
    pool = owner.pool()
    pool.promise(5)
    assert owner.shared_out == [pool]
    assert (pool.wanted, pool.count, owner.posts) == (5 + SPARE, 0, [])


def test_each_receive_of_a_pool_is_posted_into_memory_of_its_own_under_the_tag_of_the_pool(owner: Owner) -> None:
    owner.pool().grow(4)
    starts = [int(ffi.cast("uintptr_t", args[1])) for args in owner.posts]
    assert sorted(start - min(starts) for start in starts) == [0, 64, 128, 192]
    memory = {address_of(ffi.from_buffer(buffer.memory)) for buffer in owner.posted()}
    assert set(starts) == memory
    assert {args[2] for args in owner.posts} == {64}
    assert {args[5:7] for args in owner.posts} == {(3 << POOL, MASK)}
    slots = {int(ffi.cast("uintptr_t", args[7])) for args in owner.posts}
    assert slots == set(owner.source.operations)
    assert len(slots) == 4
    for buffer in owner.posted():
        buffer.length = 64
        buffer.view[:] = b"x" * 64
    assert {buffer.contents for buffer in owner.posted()} == {b"x" * 64}


@pytest.mark.parametrize(
    ("promised", "count", "posted", "scarce"),
    [(21, 20, 5, True), (21, 20, 6, False), (20, 20, 5, False), (19, 20, 0, False)],
)
def test_receives_are_scarce_if_connections_share_them_and_a_quarter_is_left(
    owner: Owner, promised: int, count: int, posted: int, scarce: bool
) -> None:
    pool = owner.pool()
    pool.promised, pool.count, pool.posted = promised, count, posted
    assert pool.scarce is scarce


@pytest.mark.parametrize("refusal", [-constants.FI_EAGAIN, -constants.FI_ENOMEM])
def test_receives_that_the_provider_has_no_room_for_are_posted_again_by_one_timer(owner: Owner, refusal: int) -> None:
    pool = owner.pool()
    owner.answers = [0, refusal, refusal]
    pool.grow(4)
    assert (pool.count, pool.posted, len(owner.posts)) == (4, 1, 1)
    assert owner.touched == 1
    pool.post()
    assert pool.posted == 1
    assert len(owner.driver.delays) == 1
    assert len(owner.source.operations) == 1  # the refused one is not the provider's
    owner.answers = [refusal]
    owner.driver.pass_time()
    assert len(owner.driver.delays) == 1  # still no room: the timer is set again
    owner.driver.pass_time()
    assert pool.posted == 4
    assert owner.driver.delays == []


def test_a_receive_that_is_refused_for_another_reason_is_free_again(owner: Owner) -> None:
    pool = owner.pool()
    owner.answers = [-constants.FI_EINVAL]
    with pytest.raises(FabricError, match="fi_trecv"):
        pool.grow(2)
    assert (pool.posted, len(pool._free), owner.source.operations) == (0, 2, {})
    assert not any(buffer.posted for buffer in pool._free)
    assert owner.driver.delays == []


def test_a_pool_of_a_closed_multiplexer_posts_nothing(owner: Owner) -> None:
    pool = owner.pool()
    owner.answers = [FULL]
    pool.grow(1)
    owner.closed = True
    owner.driver.pass_time()
    pool.recycle(pool._free.pop())
    assert owner.posts == []


@pytest.mark.parametrize("strict", [True, False])
def test_a_new_connection_waits_for_refused_receives_if_messages_would_be_lost(
    owner: Owner, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiofabric")
    pool = owner.pool()
    owner.strict = strict
    at_once = Caller(owner.driver, pool.none_refused())
    assert at_once.done
    assert caplog.text == ""
    owner.answers = [FULL, FULL]
    pool.grow(1)
    waiting = Caller(owner.driver, pool.none_refused())
    assert waiting.done is not strict
    owner.driver.pass_time()
    owner.driver.settle_down()
    assert waiting.done is not strict  # refused again
    owner.driver.pass_time()
    owner.driver.settle_down()
    assert waiting.done
    assert waiting.outcome is None
    assert caplog.text.count("has no room for its receives of 64 bytes") == strict


def test_a_new_connection_does_not_wait_for_the_receives_of_a_closed_multiplexer(owner: Owner) -> None:
    pool = owner.pool()
    owner.strict = True
    owner.answers = [FULL]
    pool.grow(1)
    waiting = [Caller(owner.driver, pool.none_refused()) for _ in range(3)]
    waiting[1].cancel()
    owner.closed = True
    owner.driver.pass_time()
    owner.driver.settle_down()
    assert all(each.done for each in waiting)
    assert [each.outcome for each in (waiting[0], waiting[2])] == [None, None]


def test_taken_receives_of_a_pool_are_posted_in_batches(owner: Owner) -> None:
    pool = owner.pool()
    pool.grow(20)
    seen = []
    for buffer in owner.posted()[:9]:
        buffer.complete((0, 0, 5, 0, 0, 77, 0))  # for a connection that has ended
        seen.append(pool.posted)
    assert seen == [19, 18, 17, 16, 15, 14, 13, 20, 19]


def test_a_pool_with_half_of_its_receives_posted_posts_each_that_was_taken(owner: Owner) -> None:
    pool = owner.pool()
    pool.grow(5)
    first, second, third, *_ = owner.posted()
    first.complete((0, 0, 5, 0, 0, 77, 0))
    second.complete((0, 0, 5, 0, 0, 77, 0))
    assert pool.posted == 3
    third.complete((0, 0, 5, 0, 0, 77, 0))  # two of five are left
    assert pool.posted == 5


def test_a_message_goes_to_the_connection_that_its_tag_names(owner: Owner) -> None:
    arrived: list[tuple[SharedBuffer, int]] = []
    connection = SimpleNamespace(arrived=lambda *args: arrived.append(args))
    pool = owner.pool(n7=connection)
    pool.grow(1)
    (buffer,) = owner.posted()
    tag = 7 | 5 << 24 | 9 << 32
    assert tag & ID == 7
    buffer.complete((0, 11, 5, 0, 13, tag))
    assert arrived == [(buffer, tag)]
    assert (buffer.flags, buffer.length, buffer.data, buffer.tag) == (11, 5, 13, tag)
    assert (buffer.posted, pool.posted, pool._free) == (False, 0, [])


def test_receives_that_a_pool_gives_back_are_the_first_that_it_takes_again(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = owner.pool()
    pool.grow(6)
    held = owner.posted()[1]
    held.posted = False  # its message was not taken yet
    pool.posted -= 1
    cancelled: list[int] = []

    def cancel(_: Any, pointer: Any) -> int:
        cancelled.append(int(ffi.cast("uintptr_t", pointer)))
        return 0

    def drain() -> int:
        error = ErrorEntry(0, 0, 0, 0, 0, constants.FI_ECANCELED, 0, "", constants.FI_ADDR_NOTAVAIL)
        owner.source.operations[cancelled[-1]].fail(error)
        return 1

    monkeypatch.setattr(lib, "fi_cancel", cancel)
    owner.source.drain = drain
    assert pool.withdraw(0) == 0
    assert pool.withdraw(3) == 3
    assert (pool.count, pool.posted, len(cancelled)) == (3, 2, 3)
    assert held.slot.address not in cancelled
    pool.grow(1)
    assert (pool.count, pool.posted) == (4, 3)
    assert pool.withdraw(1) == 1
    pool.grow(5)
    assert (pool.count, pool.posted) == (8, 7)
    assert len(owner.source.operations) == 8  # three were there already
    assert pool.withdraw(100) == 7


def test_a_pool_that_ends_keeps_the_slots_that_the_provider_has(owner: Owner) -> None:
    pool = owner.pool()
    pool.grow(4)
    for buffer in owner.posted()[:1]:
        buffer.posted = False
    pool.end()
    assert owner.source.operations == {}
    assert (owner.source.slots.in_use, owner.source.slots.quarantined) == (0, 3)
    pool.end()  # nothing is left
    assert owner.source.slots.quarantined == 3


def test_a_pool_without_connections_releases_its_pages_once_all_messages_were_taken(owner: Owner) -> None:
    released: list[int] = []
    pool = owner.pool()
    pool.promise(4)
    memory: Any = SimpleNamespace(madvise=released.append)
    assert len(pool._memory) == 1
    pool._memory[:] = [memory]
    pool.release_pages()
    assert released == []  # it has a connection
    pool.promised = 0
    idle = owner.posted()[1]
    idle.posted = False
    pool.posted -= 1
    pool.withdrawn(idle)
    buffer = owner.posted()[0]
    buffer.posted = False
    pool.posted -= 1
    pool.release_pages()
    assert released == []  # a message is held
    pool.recycle(buffer)
    assert len(pool._free) == 1
    pool.release_pages()
    assert len(released) == 1


def test_registered_memory_of_a_pool_keeps_its_pages(owner: Owner) -> None:
    """The provider has pinned them, and would still write to the old ones."""
    owner.handle.register_own = lambda _: ffi.cast("void *", 1)
    pool = owner.pool()
    pool.grow(2)
    assert pool._memory == []
    assert {int(ffi.cast("uintptr_t", args[3])) for args in owner.posts} == {1}
