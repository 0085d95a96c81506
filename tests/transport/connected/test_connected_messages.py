"""Messages over a connection: every kind of buffer, every size, in order, with all metadata."""

import mmap
import random
from array import array
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aiofabric
from aiofabric import MessageEndpoint
from aiofabric._ffi import ffi
from tests.fixtures.providers import CARRIERS, CONNECTED, LONGEST, Pair, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)

MIB = 1 << 20


def pattern(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def mapped(data: bytes) -> mmap.mmap:
    memory = mmap.mmap(-1, max(1, len(data)))
    memory[: len(data)] = data
    return memory


KINDS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "slice": lambda data: memoryview(b"##" + data + b"##")[2:-2],
    "array": lambda data: array("H", data),
    "mmap": mapped,
    "numpy": lambda data: np.frombuffer(data, dtype=np.float64),
    "numpy table": lambda data: np.frombuffer(data, dtype=np.uint8).reshape(4, -1),
    "list": lambda data: [data[:10], bytearray(data[10:11]), b"", memoryview(data)[11:]],
    "tuple": lambda data: (data[:1], data[1:]),
    "many pieces": lambda data: [data[at : at + 7] for at in range(0, len(data), 7)],
    "one piece": lambda data: [data],
}


@pytest.mark.parametrize("size", [64, 4096], ids=["inject", "post"])
@pytest.mark.parametrize("kind", KINDS)
async def test_any_contiguous_buffer_is_sent(pair: Pair, kind: str, size: int) -> None:
    data = pattern(size)
    async with pair() as (active, passive):
        await active.send(KINDS[kind](data))
        assert await passive.recv() == data


WRITABLE: dict[str, Callable[[int], Any]] = {
    "bytearray": bytearray,
    "memoryview": lambda size: memoryview(bytearray(size)),
    "array": lambda size: array("H", bytes(size)),
    "mmap": lambda size: mmap.mmap(-1, size),
    "numpy": lambda size: np.zeros(size // 8),
}


@pytest.mark.parametrize("options", [{}, {"recv_size": None}], ids=["pooled", "direct"])
@pytest.mark.parametrize("kind", WRITABLE)
async def test_any_writable_buffer_receives(pair: Pair, kind: str, options: dict[str, Any]) -> None:
    data = pattern(4096)
    target = WRITABLE[kind](8192)
    async with pair(**options) as (active, passive), anyio.create_task_group() as tasks:
        tasks.start_soon(active.send, data)
        assert await passive.recv_into(target) == len(data)
    assert bytes(memoryview(target).cast("B"))[:4096] == data


@pytest.mark.parametrize("options", [{}, {"recv_size": None}], ids=["pooled", "direct"])
async def test_what_is_no_buffer_is_refused_before_anything_happens(pair: Pair, options: dict[str, Any]) -> None:
    async with pair(**options) as (active, passive):
        wrong: Any
        for wrong in ("text", 5, None, [b"fine", "text"]):
            with pytest.raises(TypeError):
                await active.send(wrong)
        with pytest.raises(BufferError):
            await active.send(memoryview(b"abcdef")[::2])
        with pytest.raises(BufferError):
            await active.send(np.arange(10)[::2])
        with pytest.raises(BufferError):
            await passive.recv_into(b"read-only")
        with pytest.raises(BufferError):
            await passive.recv_into(memoryview(bytearray(8))[::2])
        with pytest.raises(TypeError):
            await passive.recv_into("text")  # type: ignore[arg-type]
        assert active.statistics().sends == passive.statistics().receives == 0


@pytest.mark.parametrize("size", [0, 1, 2, 127, 128, 129, 4095, 9000, 65535, 65536])
async def test_pooled_sizes(pair: Pair, size: int) -> None:
    async with pair() as (active, passive):
        data = pattern(size)
        await active.send(data)
        message = await passive.recv()
        assert message == data
        assert isinstance(message, bytes)
        await passive.send(message)
        assert await active.recv() == data


@pytest.mark.parametrize("size", [0, 1, 128, 129, 65536, MIB + 1, min(16 * MIB, LONGEST)])
async def test_direct_sizes(pair: Pair, size: int) -> None:
    data = pattern(size)
    target = bytearray(size)
    async with pair(recv_size=None) as (active, passive), anyio.create_task_group() as tasks:
        tasks.start_soon(active.send, data)
        assert await passive.recv_into(target) == size
        assert target == data
        tasks.start_soon(passive.send, data)
        assert await active.recv(max(size, 1)) == data


async def test_hundreds_of_mebibytes(pair: Pair, provider: str) -> None:
    words = min((32 if provider in CONNECTED else 4) * MIB, LONGEST)
    source, target = np.arange(words, dtype=np.int64), np.zeros(words, dtype=np.int64)
    async with pair(recv_size=None) as (active, passive), anyio.create_task_group() as tasks:
        tasks.start_soon(active.send, source)
        assert await passive.recv_into(target) == 8 * words
    assert np.array_equal(source, target)


async def test_small_and_large_messages_keep_their_order(pair: Pair) -> None:
    """Injected, posted, fenced and queued messages leave in the order of the calls."""
    sizes = random.Random(4)
    async with pair() as (active, passive), anyio.create_task_group() as tasks:

        async def send() -> None:
            for n in range(3000):
                size = sizes.choice([8, 8, 8, 100, 128, 129, 500, 20_000])
                await active.send(n.to_bytes(8, "big") + bytes(size - 8))

        tasks.start_soon(send)
        got = [int.from_bytes((await passive.recv())[:8], "big") for _ in range(3000)]
    assert got == list(range(3000))


async def test_injected_messages_are_counted_until_they_have_left(pair: Pair) -> None:
    async with pair() as (active, passive), anyio.create_task_group() as tasks:

        async def receive() -> None:
            for _ in range(5000):
                await passive.recv()

        tasks.start_soon(receive)
        for n in range(5000):
            await active.send(b"small")
            assert 0 <= active.statistics().injected <= 256, n


async def test_sends_above_the_limit_park_in_order(pair: Pair) -> None:
    """tcp itself accepts any number of sends."""
    limit = 256
    size = 65536
    async with pair(recv_size=None) as (active, passive), anyio.create_task_group() as tasks:
        for n in range(3 * limit):
            active.send_nowait(n.to_bytes(8, "big") + bytes(size - 8))
        statistics = active.statistics()
        assert statistics.sends <= limit
        assert statistics.queued >= limit
        tasks.start_soon(active.send, b"the last one")
        target = bytearray(size)
        for n in range(3 * limit):
            assert await passive.recv_into(target) == size
            assert int.from_bytes(target[:8], "big") == n
        assert await passive.recv(size) == b"the last one"
        assert active.statistics().queued == 0


@pytest.mark.parametrize(
    "data", [b"", b"small", bytes(4096), [b"two", b"pieces"]], ids=["empty", "small", "large", "list"]
)
@pytest.mark.parametrize("remote_data", [0, 1, 2**64 - 1])
async def test_remote_data_comes_along(pair: Pair, data: Any, remote_data: int) -> None:
    async with pair() as (active, passive):
        await active.send(data, remote_data=remote_data)
        await active.send(data)
        first, second = await passive.recv(), await passive.recv()
    assert first == second == (b"twopieces" if isinstance(data, list) else data)
    assert (first.remote_data, second.remote_data) == (remote_data, None)


async def test_remote_data_has_64_bits(pair: Pair) -> None:
    async with pair() as (active, _):
        for wrong in (-1, 2**64):
            with pytest.raises(ValueError, match="64 bits"):
                await active.send(b"data", remote_data=wrong)


async def test_source_of_a_message_is_the_peer(pair: Pair) -> None:
    async with pair() as (active, passive):
        await active.send(b"who is it?")
        assert (await passive.recv()).source == passive.peer_address


async def test_buffer_in_flight_cannot_be_resized(pair: Pair) -> None:
    async with pair(recv_size=None) as (active, passive), anyio.create_task_group() as tasks:
        data, target = bytearray(8 * MIB), bytearray(8 * MIB)
        tasks.start_soon(active.send, data)
        while not active.statistics().sends:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(BufferError):
            data.append(1)
        tasks.start_soon(active.recv_into, target)
        while not active.statistics().receives:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(BufferError):
            target.clear()
        await passive.recv_into(bytearray(8 * MIB))
        await passive.send(b"the end")
    data.append(1)
    target.clear()


# -- truncation


def gives_up(provider: str) -> bool:
    """Whether the provider ends a connection over a message that is too long."""
    return provider in CONNECTED and aiofabric.library_version() < (1, 18)


def skip_unless_unannounced(provider: str) -> None:
    if provider not in CONNECTED:
        pytest.skip(f"the peers of connections over {provider} always announce the longest message that they take")


LEGACY: dict[str, Any] = {"preface": False}  # a peer that does not use aiofabric does not know the limit


async def test_message_larger_than_the_pool_is_refused_with_both_sizes(pair: Pair) -> None:
    async with pair(accepting={"recv_size": 1000}) as (active, passive):
        assert (active.max_message_size, passive.max_message_size) == (1000, 65536)
        for size in (1001, 5000, 3 * MIB):
            for data in (bytes(size), [bytes(size - 1), b"1"]):
                with pytest.raises(aiofabric.MessageTooLongError) as caught:
                    await active.send(data)
                assert (caught.value.size, caught.value.limit) == (size, 1000)
                assert str(size) in str(caught.value)
                assert "1000" in str(caught.value)
                with pytest.raises(aiofabric.MessageTooLongError):
                    active.send_nowait(data)
        await active.send(bytes(1000))
        assert len(await passive.recv()) == 1000  # nothing else was sent
        await passive.send(bytes(65536))


async def test_small_message_larger_than_the_pool_is_refused(pair: Pair) -> None:
    """Also where it would be injected."""
    async with pair(accepting={"recv_size": 10}) as (active, passive):
        with pytest.raises(aiofabric.MessageTooLongError):
            await active.send(bytes(11))
        assert active.try_send(bytes(11)) is False
        assert active.max_inject == 10
        await active.send(bytes(10))
        assert len(await passive.recv()) == 10


async def test_peers_limit_does_not_limit_remote_memory(pair: Pair, provider: str) -> None:
    async with pair(recv_size=100) as (active, passive):
        target = bytearray(MIB)
        with passive.domain.register(target, access=aiofabric.Access.REMOTE_WRITE) as region:
            await active.write(b"x" * MIB, region.remote, flags=aiofabric.OpFlags.DELIVERY_COMPLETE)
        assert target == b"x" * MIB


async def test_unannounced_message_larger_than_the_pool_says_so(pair: Pair, provider: str) -> None:
    skip_unless_unannounced(provider)
    async with pair(accepting={"recv_size": 1000}, **LEGACY) as (active, passive):
        await active.send(b"fits")
        await active.send(bytes(5000))
        assert await passive.recv() == b"fits"
        with pytest.raises(aiofabric.TruncatedMessageError) as caught:
            await passive.recv()
        assert caught.value.limit == 1000
        assert caught.value.size in (5000, None)


@pytest.mark.parametrize("recv_count", [1, 2, 16])
async def test_connection_goes_on_after_a_truncated_message(pair: Pair, provider: str, recv_count: int) -> None:
    """Except on 1.17, whose tcp gives the connection up; then both sides learn that."""
    skip_unless_unannounced(provider)
    async with pair(accepting={"recv_size": 1000, "recv_count": recv_count}, **LEGACY) as (active, passive):
        for n in range(2 * recv_count + 2):
            await active.send(bytes(5000))
            with pytest.raises(aiofabric.TruncatedMessageError):
                await passive.recv()
            if gives_up(provider):
                with pytest.raises(aiofabric.FabricConnectionResetError):
                    await passive.recv()
                with pytest.raises(aiofabric.FabricConnectionResetError):
                    await active.recv()
                return
            await active.send(b"%d" % n)
            assert await passive.recv() == b"%d" % n


@pytest.mark.parametrize("size", [2000, 5000, 3 * MIB])
async def test_message_larger_than_a_direct_buffer_says_so(pair: Pair, provider: str, size: int) -> None:
    async with pair(recv_size=None) as (active, passive), anyio.create_task_group() as tasks:
        tasks.start_soon(active.send, bytes(size))
        with pytest.raises(aiofabric.TruncatedMessageError) as caught:
            await passive.recv_into(bytearray(1000))
        assert caught.value.limit == 1000
        if provider == "shm":
            assert caught.value.size == size
            tasks.start_soon(active.send, b"and goes on")
            assert await passive.recv(100) == b"and goes on"


async def test_pooled_message_larger_than_the_callers_buffer_is_kept(pair: Pair) -> None:
    async with pair() as (active, passive):
        await active.send(b"0123456789")
        await active.send(b"next")
        with pytest.raises(aiofabric.TruncatedMessageError) as caught:
            await passive.recv_into(bytearray(5))
        assert (caught.value.size, caught.value.limit) == (10, 5)
        assert await passive.recv() == b"0123456789"
        assert await passive.recv() == b"next"


async def test_requeued_message_goes_to_the_waiting_task(pair: Pair) -> None:
    async with pair() as (active, passive):
        got: list[bytes] = []

        async def too_small() -> None:
            with pytest.raises(aiofabric.TruncatedMessageError):
                await passive.recv_into(bytearray(5))

        async def patient() -> None:
            got.append(await passive.recv())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(too_small)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(patient)
            await anyio.wait_all_tasks_blocked()
            await active.send(b"0123456789")
    assert got == [b"0123456789"]


# -- the ways of receiving


async def test_ways_of_receiving_share_one_order(pair: Pair) -> None:
    async with pair() as (active, passive):
        for n in range(40):
            await active.send(b"%d" % n)
        got: list[int] = []
        while len(got) < 40:
            got.append(int(await passive.recv()))
            buffer = bytearray(10)
            got.append(int(buffer[: await passive.recv_into(buffer)]))
            async with passive.recv_view() as view:
                got.append(int(bytes(view)))
            while (message := passive.recv_nowait()) is None:
                await anyio.lowlevel.checkpoint()
            got.append(int(message))
        assert passive.recv_nowait() is None
    assert got == list(range(40))


async def test_view_is_lent_for_the_block_only(pair: Pair) -> None:
    async with pair() as (active, passive):
        for _ in range(100):
            await active.send(b"lent")
            async with passive.recv_view() as view:
                assert bytes(view) == b"lent"
            with pytest.raises(ValueError, match="released"):
                bytes(view)
        pool = passive.statistics().pool
        assert pool is not None
        assert (pool.lent, pool.messages, pool.bytes) == (0, 100, 400)


async def test_view_that_is_kept_comes_back_to_the_pool(pair: Pair) -> None:
    """A view that is exported beyond its block raises a warning; the buffer goes back when the export is gone."""
    async with pair(recv_count=2) as (active, passive):
        for _ in range(10):
            await active.send(b"12345678")
            with pytest.raises(BufferError):
                async with passive.recv_view() as view:
                    kept = ffi.from_buffer(view)
            del kept, view
        with anyio.fail_after(5):
            while (pool := passive.statistics().pool) is None or pool.lent:
                await anyio.lowlevel.checkpoint()


async def test_reader_that_does_not_read_stops_the_sender(pair: Pair) -> None:
    """Nothing grows: the pool runs dry, the provider stops reading, the socket fills, sends wait."""
    async with pair() as (active, passive):
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await active.send(bytes(60_000))
                sent += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            seen = -1
            while seen != sent:
                seen = sent
                await anyio.wait_all_tasks_blocked()
                with anyio.move_on_after(0.05):
                    await anyio.sleep_forever()
            assert sent < 1000
            for _ in range(sent + 5):
                assert len(await passive.recv()) == 60_000
            tasks.cancel_scope.cancel()


async def test_iteration_ends_with_the_connection_and_after_all_messages(pair: Pair) -> None:
    async with pair(recv_count=4) as (active, passive):
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                for n in range(100):
                    await active.send(b"%d" % n)
                await active.shutdown()

            tasks.start_soon(leave)
            assert [int(m) async for m in passive] == list(range(100))
        with pytest.raises(aiofabric.FabricConnectionResetError):
            await passive.recv()


async def test_send_is_over_when_it_returns(pair: Pair) -> None:
    """The buffer is the caller's again: changing it changes no message."""

    async def check(active: MessageEndpoint, passive: MessageEndpoint, size: int) -> None:
        data = bytearray(pattern(size))
        want = bytes(data)
        async with anyio.create_task_group() as tasks:

            async def send() -> None:
                await active.send(data)
                data[:] = bytes(size)

            tasks.start_soon(send)
            assert await passive.recv(size) == want

    async with pair(recv_size=None) as (active, passive):
        for size in (1, 128, 5000, 4 * MIB):
            await check(active, passive, size)
