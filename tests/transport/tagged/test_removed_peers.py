"""Receives that name a removed peer: tcp of 2.x looks their peer up when it gets them, and would crash."""

from collections.abc import Callable
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from aiofabric import Caps, Claim, Hints, Peer, RdmEndpoint, RxAttr, library_version
from aiofabric._ffi import constants
from aiofabric.transport.failures import Refill
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import handle_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.peers import RARE, peers, skip_without
from tests.fixtures.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS[:1])]

CAPS = Caps.MSG | Caps.TAGGED | Caps.SOURCE | Caps.DIRECTED_RECV
NAMES = ["tcp;ofi_rxm", "tcp", "shm", *RARE[:2]]
POSTED, QUEUED = 4, 3


async def receives_of_a_removed_peer(_: Parent, name: str, direct: bool) -> None:
    """Posted and queued receives end, and those of others do not."""
    ended: list[str] = []

    async def receive(ep: RdmEndpoint, source: Peer) -> None:
        call = partial(ep.recv_tagged_into, bytearray(10)) if direct else partial(ep.recv_tagged, max_bytes=10)
        with pytest.raises(anyio.ClosedResourceError, match="was removed"):
            await call(tag=5, source=source)
        ended.append("receive")

    hints = Hints(rx_attr=RxAttr(size=POSTED))
    async with peers(name, CAPS, hints=hints) as (one, other, there, back), anyio.create_task_group() as tasks:
        again, got = await other.add_peer(other.local_address), []
        posted = other.info.rx_attr.size

        async def later() -> None:
            got.append(await other.recv_tagged(5, source=again, max_bytes=10))

        for _number in range(posted + QUEUED):
            tasks.start_soon(receive, other, back)
        tasks.start_soon(later)
        await until(lambda: other.statistics().queued == QUEUED + 1)
        other.remove_peer(back)
        await until(lambda: len(ended) == posted + QUEUED)
        await other.send_tagged(b"own", 5, to=again)
        await until(lambda: got == [b"own"])
        back = await other.add_peer(one.local_address)
        tasks.start_soon(partial(one.send_tagged, b"new", 5, to=there))
        assert await other.recv_tagged(5, source=back, max_bytes=10) == b"new"


@pytest.mark.parametrize("direct", [False, True], ids=["recv_tagged", "recv_tagged_into"])
@pytest.mark.parametrize("name", NAMES)
async def test_receives_that_name_a_peer_end_when_it_is_removed(
    name: str, direct: bool, child: Callable[..., Child]
) -> None:
    skip_without(name, CAPS)
    await child(receives_of_a_removed_peer, name, direct).aresult()


async def remove_the_peer_of_a_recalled_receive(_: Parent, name: str, ended: bool) -> None:
    async with peers(name, CAPS) as (_one, other, _there, back), anyio.create_task_group() as tasks:
        caught: list[BaseException] = []

        async def receive() -> None:
            with pytest.raises(anyio.ClosedResourceError, match="was removed") as error:
                await other.recv_tagged(5, source=back, max_bytes=10)
            caught.append(error.value)

        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        handle = handle_of(other)
        (posted,) = handle.rx.posted
        assert handle.recall(posted, Refill)
        assert not handle.recall(posted, Refill)
        if ended:
            await until(lambda: handle.source.drain() or not handle.rx.posted)
        other.remove_peer(back)
        await until(lambda: caught)
        assert not handle.rx.posted
        assert not handle.recalled


@pytest.mark.parametrize("ended", [False, True], ids=["cancelled", "ended"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_receive_that_looks_for_a_kept_message_ends_when_its_peer_is_removed(
    name: str, ended: bool, child: Callable[..., Child]
) -> None:
    """It is not posted again with a number that another peer may have."""
    skip_without(name, CAPS)
    await child(remove_the_peer_of_a_recalled_receive, name, ended).aresult()


async def claim_of_a_removed_peer(_: Parent, name: str, size: int, call: str) -> None:
    async with peers(name, CAPS) as (one, other, there, back), anyio.create_task_group() as tasks:
        tasks.start_soon(partial(one.send_tagged, bytes(size), 5, to=there))
        claims: list[Claim] = []
        with anyio.fail_after(10):
            while not claims:
                if claim := await other.claim_tagged(5, source=back):
                    claims.append(claim)
                await anyio.lowlevel.checkpoint()
        other.remove_peer(back)
        with anyio.fail_after(10):
            got = await getattr(claims[0], call)()
        assert call == "discard" or got == bytes(size)
        assert not handle_of(other).numbers_in_use() - {constants.FI_ADDR_UNSPEC}
        back = await other.add_peer(one.local_address)
        other.remove_peer(back)


@pytest.mark.parametrize("call", ["recv", "discard"])
@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("name", NAMES)
async def test_a_claim_that_names_a_removed_peer_keeps_its_message(
    name: str, size: int, call: str, child: Callable[..., Child]
) -> None:
    skip_without(name, CAPS)
    if name == "shm" and library_version() < (1, 18):
        pytest.skip("its FI_PEEK would receive")
    await child(claim_of_a_removed_peer, name, size, call).aresult()
