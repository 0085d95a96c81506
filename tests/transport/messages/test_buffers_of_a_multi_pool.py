"""The buffers of a pool for many messages each: when one is posted again, and what becomes of it at the end."""

# Doubles: the test answers the posts in place of a provider.
# Privates: `_least_room` asks the provider, which is the test here.

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import EndpointType, FabricError
from aiofabric._ffi import constants, ffi, lib
from aiofabric.cq.queue import ErrorEntry
from aiofabric.transport.messages.multi_pool import MultiPool
from tests.cq.manual import Endpoint

pytestmark = pytest.mark.once

RECV, RETURNED, DATA = constants.FI_RECV, constants.FI_MULTI_RECV, constants.FI_REMOTE_CQ_DATA
AGAIN, INVALID = -constants.FI_EAGAIN, -constants.FI_EINVAL


class Receiving:
    """A pool of two buffers without a provider."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.endpoint = Endpoint()
        self.answers: list[int] = []
        self.posts = self.ends = 0
        self.least = 64
        self.handle: Any = SimpleNamespace(
            source=self.endpoint.source,
            info=SimpleNamespace(
                fabric_attr=SimpleNamespace(prov_name="none"), ep_attr=SimpleNamespace(type=EndpointType.MSG)
            ),
            register_own=lambda _: ffi.NULL,
            fid=ffi.NULL,
            native_open=True,
            closed=False,
            peer_name="the peer",
            flushed=lambda code: code == constants.FI_ECANCELED,
            failure=lambda *_: ArithmeticError("failed"),
            end_came=self.end_came,
            exhausted=0,
            pool=None,
        )
        monkeypatch.setattr(lib, "fi_recvmsg", self.post)
        monkeypatch.setattr(MultiPool, "_least_room", lambda _, __: self.least)

    def post(self, *_: Any) -> int:
        self.posts += 1
        return self.answers.pop(0) if self.answers else 0

    def end_came(self) -> None:
        self.ends += 1

    def open(self, size: int = 64, room: int = 1024) -> MultiPool:
        return MultiPool(self.handle, size, 2, room)

    def slabs(self) -> list[Any]:
        source: Any = self.endpoint.source
        return [source.operations.get(address) for address in list(source.operations)]


def end(pool: MultiPool) -> None:
    pool.end(lambda: ConnectionResetError("ended"))


@pytest.fixture
def receiving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiving]:
    receiving = Receiving(monkeypatch)
    yield receiving
    receiving.endpoint.close()


def entry(pool: MultiPool, flags: int, length: int = 3, data: int = 0) -> Any:
    return (0, flags, length, pool.address, data, 0)


def failed(code: int, flags: int = 0) -> ErrorEntry:
    return ErrorEntry(0, flags, 0, 0, 0, code, 0, "", constants.FI_ADDR_NOTAVAIL)


def test_a_buffer_of_many_messages_is_posted_again_when_all_were_taken(receiving: Receiving) -> None:
    pool = receiving.open()
    assert (pool.posted, receiving.posts) == (2, 2)
    starts = {int(ffi.cast("uintptr_t", each.message.msg_iov.iov_base)) for each in receiving.slabs()}
    assert starts == {pool.address, pool.address + 1024}
    slab = receiving.slabs()[0]
    slab.complete(entry(pool, RECV))
    slab.complete(entry(pool, RECV | RETURNED))
    assert (pool.posted, receiving.posts, pool.messages, pool.bytes) == (1, 2, 2, 6)
    pool.recycle(pool.take())
    assert pool.posted == 1  # one message is still in it
    pool.recycle(pool.take())
    assert (pool.posted, receiving.posts) == (2, 3)
    end(pool)


def test_a_buffer_of_many_messages_that_is_posted_is_not_posted_twice(receiving: Receiving) -> None:
    pool = receiving.open()
    slab = receiving.slabs()[0]
    slab.complete(entry(pool, RECV))
    slab.consumed()
    pool.recycle(pool.take())
    assert (pool.posted, receiving.posts) == (2, 2)
    slab.complete(entry(pool, RETURNED))  # without a message
    assert (pool.posted, receiving.posts, pool.messages) == (2, 3, 0 + 1)
    end(pool)


@pytest.mark.parametrize(
    ("length", "flags", "data", "ends"),
    [(0, DATA, 77, 1), (1, DATA, 77, 0), (0, 0, 77, 0), (0, DATA, 78, 0)],
)
def test_an_end_mark_in_a_buffer_of_many_messages_is_no_message(
    receiving: Receiving, length: int, flags: int, data: int, ends: int
) -> None:
    pool = receiving.open()
    receiving.slabs()[0].complete(entry(pool, RECV | flags, length, data))
    assert (receiving.ends, pool.messages) == (0, 1)  # no mark was agreed on
    pool.end_mark = 77
    receiving.slabs()[1].complete(entry(pool, RECV | flags, length, data))
    assert (receiving.ends, pool.messages) == (ends, 2 - ends)
    end(pool)


@pytest.mark.parametrize("rc", [AGAIN, INVALID])
def test_a_buffer_of_many_messages_that_is_refused_is_posted_later_or_raises(receiving: Receiving, rc: int) -> None:
    receiving.answers = [0, rc]
    if rc == INVALID:
        with pytest.raises(FabricError, match="fi_recvmsg"):
            receiving.open()
        pool = receiving.handle.pool
        assert receiving.endpoint.driver.delays == []
    else:
        pool = receiving.open()
        assert (pool.posted, len(receiving.slabs())) == (1, 1)
        receiving.endpoint.driver.pass_time()
        assert (pool.posted, len(receiving.slabs())) == (2, 2)
    end(pool)


@pytest.mark.parametrize("why", ["ended", "native object closed"])
def test_a_buffer_of_many_messages_is_not_posted_to_an_endpoint_that_has_ended(receiving: Receiving, why: str) -> None:
    receiving.answers = [0, AGAIN]
    pool = receiving.open()
    if why == "ended":
        end(pool)
    else:
        receiving.handle.native_open = False
    receiving.endpoint.driver.pass_time()
    assert receiving.posts == 2
    if why != "ended":
        end(pool)


@pytest.mark.parametrize(
    ("code", "flags", "closed", "told", "posts"),
    [
        (constants.FI_EIO, 0, False, 1, 2),
        (constants.FI_EIO, RETURNED, False, 1, 3),
        (constants.FI_EIO, 0, True, 0, 2),
        (constants.FI_ECANCELED, 0, False, 0, 3),
    ],
)
def test_a_failure_in_a_buffer_of_many_messages_is_told_unless_it_was_flushed(
    receiving: Receiving, code: int, flags: int, closed: bool, told: int, posts: int
) -> None:
    pool = receiving.open()
    receiving.handle.closed = closed
    slab = receiving.slabs()[0]
    for _ in range(2):  # rxm reports it twice, before the buffer may be posted again
        slab.fail(failed(code, flags))
        assert receiving.posts == 2
    driver: Any = receiving.endpoint.source.driver
    for _, post in driver.delays:
        post()
    assert (len(pool.inbox), receiving.posts, pool.posted) == (2 * told, posts, 2)
    end(pool)


@pytest.mark.parametrize("posted", [0, 1, 2])
def test_the_slots_of_posted_buffers_of_many_messages_are_kept_at_the_end(receiving: Receiving, posted: int) -> None:
    receiving.answers = [0] * posted + [AGAIN] * 2
    pool = receiving.open()
    slots = receiving.endpoint.source.slots
    before = slots.in_use
    end(pool)
    assert (before - slots.in_use, slots.quarantined, pool.posted) == (2, posted, 0)
    assert receiving.slabs() == []
    end(pool)
    assert slots.quarantined == posted


def test_a_buffer_of_many_messages_has_room_for_two_of_the_longest(receiving: Receiving) -> None:
    end(receiving.open(size=64, room=128))
    with pytest.raises(ValueError, match="of 127 bytes is too small for messages of 64 bytes"):
        receiving.open(size=64, room=127)
    receiving.least = 63
    with pytest.raises(FabricError, match=r"less than 63 bytes left.*messages of 64 bytes") as caught:
        receiving.open()
    assert caught.value.cure == ""
