"""Registration of local memory: operations find it, it stays until they complete, and it is never made twice."""

# Privates: `_longest` bounds each search, and must not grow for ever.
# Doubles: no provider refuses a registration or a send on request.

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aiofabric
from aiofabric import Access, AtomicOp, Caps, Datatype, MessageEndpoint, OpFlags
from aiofabric._ffi import constants, ffi, lib
from aiofabric.features import Quirk, quirks
from aiofabric.memory import pin
from tests.fixtures.internals import handle_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.peers import peers
from tests.fixtures.providers import Pair
from tests.fixtures.registrations import Registrations
from tests.fixtures.sides import Open

if TYPE_CHECKING:
    from collections.abc import Callable

BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE
CAPS = Caps.MSG | Caps.TAGGED | Caps.RMA
NULL = ffi.NULL
RECEIVES = ("fi_recv", "fi_trecv", "fi_recvv", "fi_trecvv")  # shm's have room behind them
LONG = 40_000  # bytes: more than a provider here, or aiofabric, copies at once

pytestmark = pytest.mark.anyio
one_loop = pytest.mark.parametrize("anyio_backend", LOOPS[:1])


def of(region: aiofabric.MemoryRegion) -> Any:
    return handle_of(region).descriptor


async def test_a_part_of_a_registered_buffer_uses_its_registration(sides: Open, registrations: Registrations) -> None:
    async with sides(recv_size=None) as (one, other, to, _):
        memory, room = bytearray(random.Random(2).randbytes(4 * LONG)), bytearray(4 * LONG)
        view = memoryview(memory)
        with one.domain.register(memory, access=BOTH) as mine, other.domain.register(room, access=BOTH) as theirs:

            async def sent(data: Any, **options: Any) -> bytes:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(other.recv_into, memoryview(room)[LONG:])
                    await one.send(data, **to, **options)
                return bytes(room[LONG : 2 * LONG])

            assert await sent(view[7 : 7 + LONG]) == memory[7 : 7 + LONG]
            assert await sent([view[:100], view[LONG : 2 * LONG - 100]]) == memory[:100] + memory[LONG : 2 * LONG - 100]
            assert await sent(view[:LONG], remote_data=3) == memory[:LONG]
            mixed = [bytes(100), view[: LONG - 100]]
            assert await sent(mixed) == bytes(100) + memory[: LONG - 100]
            await one.write(view[LONG:], theirs.remote[LONG:], **to)
            await one.write(view[:LONG], theirs.remote[:LONG], **to, remote_data=5)
            await one.write(view[:10], theirs.remote[:10], **to, flags=OpFlags.DELIVERY_COMPLETE)
            await one.read_into(view[LONG : 2 * LONG], theirs.remote[LONG : 2 * LONG], **to)
            assert room[2 * LONG :] == memory[2 * LONG :]
            mine_used = registrations.descriptors(
                "fi_send", "fi_tsend", "fi_sendv", "fi_tsendv", "fi_senddata", "fi_tsenddata",
                "fi_write", "fi_writedata", "fi_writemsg", "fi_read",
            )  # fmt: skip
            assert mine_used.count(of(mine)) >= 9  # an RDM peer that is being connected has them posted again
            assert set(mine_used) == {of(mine), NULL}  # the bytes beside a slice, and a virtual connection's own
            received = registrations.descriptors(*RECEIVES)
            assert received.count(of(theirs)) >= 4
            assert registrations.made == 2
            assert handle_of(mine).users == handle_of(theirs).users == 0
        assert await_nothing(one, other)


def await_nothing(*endpoints: Any) -> bool:
    """Whether nothing is registered, so that no operation searches for registrations."""
    return not any(handle_of(ep).regions.busy or len(handle_of(ep).regions) for ep in endpoints)


async def test_what_is_in_no_region_has_no_descriptor(sides: Open, registrations: Registrations) -> None:
    async with sides() as (one, other, to, _):
        assert await_nothing(one, other)
        memory = bytearray(LONG)
        await one.send(memory, **to)
        with one.domain.register(memory[: LONG // 2]) as region:  # a copy: elsewhere
            await one.send(memory, **to)
            half = memoryview(region.buffer)
            await one.send([half[: LONG // 4], memory], **to)
        for _ in range(2):
            assert len(await other.recv()) == LONG
        assert len(await other.recv()) == LONG + LONG // 4
        names = [name for name, _ in registrations.posted if name not in ("fi_recv", "fi_trecv")]
        whole = registrations.descriptors(*names)
        assert [each for each in whole if each != NULL] == [registrations_first(whole)]
        assert registrations.made == 1


def registrations_first(found: list[Any]) -> Any:
    return next(each for each in found if each != NULL)


async def test_a_region_closed_meanwhile_outlives_its_operation(sides: Open, registrations: Registrations) -> None:
    async with sides(recv_size=None) as (one, other, to, _):
        memory = bytearray(LONG)
        region = other.domain.register(memory)
        descriptor = of(region)

        async def receive() -> None:
            assert await other.recv_into(memory) == LONG

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            while handle_of(region).users == 0:
                await anyio.lowlevel.checkpoint()
            region.close()
            assert region.closed
            assert len(registrations.open) == 1  # still registered
            with pytest.raises(BufferError):
                memory.append(0)
            assert (
                handle_of(other).regions.find(handle_of(other), pin(memory), Access.RECV) is None
            )  # and takes no new ones
            await one.send(bytes(LONG), **to)
        assert not registrations.open
        memory.append(0)
        assert registrations.descriptors(*RECEIVES).count(descriptor) == 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.recv_into, memory)
            await one.send(bytes(LONG), **to)
        assert registrations.descriptors(*RECEIVES)[-1] == NULL
        assert registrations.descriptors(*RECEIVES).count(descriptor) == 1


async def test_a_cancelled_receive_lets_its_region_go(sides: Open, registrations: Registrations) -> None:
    async with sides(recv_size=None) as (_, other, _, _):
        memory = bytearray(LONG)
        with other.domain.register(memory) as region:
            with anyio.move_on_after(0.02):
                await other.recv_into(memory)
            assert handle_of(region).users == 0
        assert not registrations.open


async def test_an_abandoned_send_keeps_its_region_until_the_endpoint_closes(
    pair: Pair, registrations: Registrations
) -> None:
    """tcp cannot cancel a send: the buffer is in the provider's hands until the peer reads, or the end."""
    async with pair(recv_size=None, close_timeout=0.1) as (active, _):
        memory = bytearray(32 << 20)
        region = active.domain.register(memory)
        with anyio.move_on_after(0.02):
            await active.send(memory)
        assert active.statistics().abandoned == 1
        assert handle_of(region).users == 1
        region.close()
        assert len(registrations.open) == 1
        await active.aclose()
        assert not registrations.open


async def test_closing_the_domain_first_closes_everything_in_order(provider: str, registrations: Registrations) -> None:
    """The region is the newest child of the domain: it closes first, and stays registered until the endpoint has."""
    hints = aiofabric.Hints(
        fabric_attr=aiofabric.FabricAttr(prov_name=provider), ep_attr=aiofabric.EpAttr(type=aiofabric.EndpointType.MSG)
    )
    info = aiofabric.getinfo("127.0.0.1", hints=hints)[0]
    domain = aiofabric.Domain(info)
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        accepted: list[MessageEndpoint] = []

        async def accept() -> None:
            # The message has no receive: it is too long for a pool, and the connection would end before the domain.
            accepted.append(await (await listener.accept_request()).accept(recv_size=None))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            active = await aiofabric.connect(listener.address, provider=provider, domain=domain, recv_size=None)
        memory = bytearray(32 << 20)
        region = domain.register(memory)
        failures: list[BaseException] = []

        async def use(call: Any) -> None:
            try:
                await call(memory)
            except aiofabric.FabricError as error:
                failures.append(error)
            except anyio.ClosedResourceError as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use, active.recv_into)
            tasks.start_soon(use, active.send)
            while handle_of(region).users < 2:
                await anyio.lowlevel.checkpoint()
            domain.close()
        assert len(failures) == 2
        assert not registrations.open
        await accepted[0].aclose()


async def test_a_post_that_the_provider_refuses_holds_nothing(
    pair: Pair, registrations: Registrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair() as (active, passive):
        memory = bytearray(LONG)
        with active.domain.register(memory) as region:
            calls: list[tuple[str, Any]] = [("fi_send", memory), ("fi_sendv", [memory, b"more"])]
            for name, data in calls:
                with monkeypatch.context() as patch:
                    patch.setattr(lib, name, lambda *_: -constants.FI_EINVAL)
                    with pytest.raises(aiofabric.FabricError):
                        await active.send(data)
                assert handle_of(region).users == 0
            # queued behind a provider without room, then refused there
            with monkeypatch.context() as patch:
                answers = [-constants.FI_EAGAIN, -constants.FI_EINVAL]
                patch.setattr(lib, "fi_send", lambda *_: answers.pop(0))
                with pytest.raises(aiofabric.FabricError):
                    await active.send(memory)
            assert handle_of(region).users == 0
            # queued, and closed there
            with monkeypatch.context() as patch:
                patch.setattr(lib, "fi_send", lambda *_: -constants.FI_EAGAIN)
                with anyio.move_on_after(0.02):
                    await active.send(memory)
            assert handle_of(region).users == 0
        await active.send(b"still here")
        assert await passive.recv() == b"still here"


# -- a provider that wants all local memory registered


async def test_everything_posted_is_registered(sides: Open, demanding: Registrations) -> None:
    """The double looks at every post; at the end nothing is registered but the endpoints' own receives."""
    async with sides() as (one, other, to, back):
        own = len(demanding.open)
        assert 1 <= own <= 4
        target = bytearray(4 * LONG)
        with other.domain.register(target, access=BOTH) as theirs:
            remote = theirs.remote
            for n in range(100):  # pools are registered once, however much goes through
                await one.send(b"%d" % n, **to, remote_data=n)
                assert await other.recv() == b"%d" % n
                await other.send(b"%d" % n, **back)
                assert await one.recv() == b"%d" % n
            await one.send(bytes(LONG), **to)
            await one.send([bytes(100), bytes(LONG)], **to)
            await one.send(b"", **to, remote_data=1)
            for size in (LONG, LONG + 100, 0):
                assert len(await other.recv()) == size
            await one.write(bytes(LONG), remote[:LONG], **to)
            await one.write(bytes(LONG), remote[:LONG], **to, remote_data=1, flags=OpFlags.DELIVERY_COMPLETE)
            assert await one.read(remote[:LONG], **to) == bytes(LONG)
            assert len(demanding.open) <= own + 3  # the region, and how far a pool has grown
            with one.domain.register(bytearray(LONG)) as mine:
                made = demanding.made
                await one.write(mine.buffer, remote[:LONG], **to)
                await one.read_into(memoryview(mine.buffer)[5:], remote[5:LONG], **to)
                assert demanding.made == made  # never twice


async def test_direct_receives_are_registered_while_they_are_posted(sides: Open, demanding: Registrations) -> None:
    async with sides(recv_size=None) as (one, other, to, _):
        before = len(demanding.open)
        room = bytearray(LONG)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.recv_into, room)
            while not other.statistics().receives:
                await anyio.lowlevel.checkpoint()
            assert len(demanding.open) == before + 1
            await one.send(b"x" * LONG, **to)
        assert len(demanding.open) == before
        with anyio.move_on_after(0.02):
            await other.recv_into(room)
        assert len(demanding.open) == before


async def test_operations_on_one_buffer_share_a_registration(pair: Pair, demanding: Registrations) -> None:
    data = bytes(1 << 20)
    async with pair() as (active, passive), passive.domain.register(bytearray(1 << 20), access=BOTH) as region:
        made = demanding.made
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(active.write, data, region.remote)
        assert made + 1 <= demanding.made < made + 20
        assert handle_of(region).users == 0


async def test_an_abandoned_send_stays_registered_until_the_endpoint_closes(
    pair: Pair, demanding: Registrations
) -> None:
    async with pair(recv_size=None, close_timeout=0.1) as (active, passive):
        before = len(demanding.open)
        memory = bytearray(32 << 20)
        with anyio.move_on_after(0.02):
            await active.send(memory)
        assert active.statistics().abandoned == 1
        assert len(demanding.open) == before + 1
        await active.aclose()
        assert len(demanding.open) == before
        with suppress(aiofabric.FabricConnectionError):
            await passive.send(b"")


async def test_a_refused_registration_is_the_operations_error(pair: Pair, demanding: Registrations) -> None:
    async with pair() as (active, passive):
        open_before = len(demanding.open)
        with passive.domain.register(bytearray(LONG), access=BOTH) as region:
            mine = active.domain.register(bytearray(LONG))
            calls: list[Callable[[], Any]] = [
                lambda: active.send(bytes(LONG)),
                lambda: active.send([memoryview(mine.buffer)[:5], bytes(LONG)]),
                lambda: active.write(bytes(LONG), region.remote),
                lambda: active.write([memoryview(mine.buffer)[:5], bytes(LONG - 5)], region.remote),
                lambda: active.read(region.remote, flags=OpFlags.DELIVERY_COMPLETE),
            ]
            for call in calls:
                demanding.refuse = constants.FI_ENOMEM
                with pytest.raises(aiofabric.FabricError, match="fi_mr_regattr"):
                    await call()
                assert handle_of(mine).users == 0
                assert active.statistics().sends == 0
            mine.close()
        assert len(demanding.open) == open_before
        await active.send(b"goes on")
        assert await passive.recv() == b"goes on"


@one_loop
@pytest.mark.parametrize("provider", ["shm", "sockets"])
async def test_atomics_have_a_descriptor_for_each_part(provider: str, demanding: Registrations) -> None:
    async with peers(provider, CAPS | Caps.ATOMIC) as (one, other, to, _):
        memory = np.zeros(8, dtype=np.int64)
        with other.domain.register(memory, access=BOTH) as region:
            ones = np.ones(8, dtype=np.int64)
            flags = OpFlags.DELIVERY_COMPLETE
            if Quirk.DELIVERED_ATOMIC_CORRUPTS in quirks(one.info):
                flags = OpFlags(0)  # the fetch behind it tells
            await one.atomic(AtomicOp.SUM, ones, region.remote, to=to, flags=flags)
            assert list(await one.fetch_atomic(AtomicOp.SUM, ones, region.remote, to=to)) == [1] * 8
            got = await one.compare_atomic(AtomicOp.CSWAP, 5 * ones, 2 * ones, region.remote, to=to)
            assert list(got) == [2] * 8
            assert list(memory) == [5] * 8
            await one.fetch_atomic(AtomicOp.SUM, 1, region.remote[:8], to=to, datatype=Datatype.INT64)
            with one.domain.register(ones):
                made = demanding.made
                await one.atomic(AtomicOp.SUM, ones, region.remote, to=to, flags=flags)
                await one.fetch_atomic(AtomicOp.SUM, ones[:1], region.remote[:8], to=to, result=ones[1:2])
                assert demanding.made == made


@one_loop
async def test_multi_receive_buffers_are_registered_once(demanding: Registrations) -> None:
    async with peers("sockets", CAPS | Caps.MULTI_RECV, multi_recv=1 << 16, recv_size=1000, recv_count=2) as (
        one, other, to, _,
    ):  # fmt: skip
        for n in range(300):
            await one.send(b"%04d" % n * 100, to=to)
            assert await other.recv() == b"%04d" % n * 100
        assert len(demanding.descriptors("fi_recvmsg")) > 4
        assert len(set(demanding.descriptors("fi_recvmsg"))) == 2  # one for each endpoint


# -- finding the region of a buffer


@pytest.mark.once
def test_find_against_a_plain_search() -> None:
    """Any order of registering and closing, overlaps included."""
    random_numbers = random.Random(3)
    arena = bytearray(1 << 16)
    view = memoryview(arena)
    base = int(ffi.cast("uintptr_t", pin(arena)))
    hints = aiofabric.Hints(fabric_attr=aiofabric.FabricAttr(prov_name="tcp"))
    with aiofabric.Domain(aiofabric.getinfo(hints=hints)[0]) as domain:
        table = handle_of(domain).regions
        regions: list[aiofabric.MemoryRegion] = []
        for _ in range(2000):
            if regions and random_numbers.random() < 0.45:
                regions.pop(random_numbers.randrange(len(regions))).close()
            elif len(regions) < 40:
                start = random_numbers.randrange(len(arena) - 1)
                stop = random_numbers.randrange(
                    start + 1, min(len(arena), start + random_numbers.choice((64, 30000))) + 1
                )
                regions.append(domain.register(view[start:stop], access=Access.REMOTE_READ))
            assert table.busy == bool(regions)
            at = random_numbers.randrange(len(arena) - 1)
            size = random_numbers.randrange(1, min(64, len(arena) - at) + 1)
            got = table.find(handle_of(domain), pin(view[at : at + size]), Access.SEND)
            holding = [handle_of(r).start for r in regions if _holds(r, base + at, size)]
            assert (None if got is None else got.start) == max(holding, default=None)
        for region in regions:
            region.close()
        assert len(table) == 0
        assert table._longest == 0


def _holds(region: aiofabric.MemoryRegion, start: int, size: int) -> bool:
    handle: Any = handle_of(region)
    return bool(handle.start <= start and start + size <= handle.stop)


@pytest.mark.once
def test_a_read_only_region_takes_nothing_in() -> None:
    hints = aiofabric.Hints(fabric_attr=aiofabric.FabricAttr(prov_name="tcp"))
    with aiofabric.Domain(aiofabric.getinfo(hints=hints)[0]) as domain:
        data = bytes(100)
        with domain.register(data, access=Access.REMOTE_READ) as region:
            assert region.access == Access.REMOTE_READ | Access.SEND
            table = handle_of(domain).regions
            assert table.find(handle_of(domain), pin(data), Access.SEND) is handle_of(region)
            assert table.find(handle_of(domain), pin(data), Access.RECV) is None
        with domain.register(bytearray(100), access=BOTH) as region:
            assert Access.RECV | Access.WRITE in region.access
