"""A peer may be added before its endpoint exists. Messages for it wait, and never reach another endpoint."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest

import aiofabric
from aiofabric import Caps, EndpointType, UnreachableError
from tests.fixtures.providers import require

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from aiofabric import Address, Peer, RdmEndpoint
    from tests.fixtures.children import Child, Parent

pytestmark = pytest.mark.anyio

SIZES = (0, 20, 3000, 100_000)


@pytest.fixture
def names(request: pytest.FixtureRequest) -> list[str]:
    """Names that no endpoint has."""
    require("shm")
    return [f"fi_shm://absent-{os.getpid()}-{abs(hash(request.node.name)):x}-{number}" for number in range(3)]


def opened(node: str | None = None) -> AbstractAsyncContextManager[RdmEndpoint]:
    return aiofabric.open_endpoint(EndpointType.RDM, node, provider="shm", recv_size=max(SIZES))


def message(name: str, size: int) -> bytes:
    return name.encode().ljust(size, b".") if size else b""


async def send_all(endpoint: RdmEndpoint, name: str, peer: Peer) -> None:
    for size in SIZES:
        await endpoint.send(message(name, size), to=peer)


async def receive_all(endpoint: RdmEndpoint, name: str) -> None:
    with anyio.fail_after(20):
        for size in SIZES:
            assert await endpoint.recv() == message(name, size)


async def receives_and_answers(parent: Parent, name: str, sender: Address) -> None:
    async with opened(name) as endpoint:
        await receive_all(endpoint, name)
        peer = await endpoint.add_peer(sender)
        with anyio.fail_after(20):
            await send_all(endpoint, name, peer)
            assert await endpoint.recv() == b"bye"
    parent.tell("ended")


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "other processes"])
async def test_messages_for_an_absent_peer_wait_for_it(
    elsewhere: bool, names: list[str], child: Callable[..., Child]
) -> None:
    async with opened() as endpoint, opened() as present, anyio.create_task_group() as tasks:
        absent = {}
        for name in names:
            absent[name] = await endpoint.add_peer(name)
            tasks.start_soon(send_all, endpoint, name, absent[name])
            await anyio.wait_all_tasks_blocked()
            # Each of these got the number of the absent one before it.
            other = await endpoint.add_peer(f"{name}-not-sent-to")
            endpoint.remove_peer(other)
        there = await endpoint.add_peer(present.local_address)
        assert len({peer.native for peer in (*absent.values(), there)}) == 4
        tasks.start_soon(send_all, endpoint, "present", there)
        await receive_all(present, "present")
        assert present.recv_nowait() is None
        for name in reversed(names):
            if elsewhere:
                process = child(receives_and_answers, name, endpoint.local_address)
                await receive_all(endpoint, name)
                await endpoint.send(b"bye", to=absent[name])
                assert await anyio.to_thread.run_sync(process.receive) == "ended"
                continue
            async with opened(name) as appeared:
                await receive_all(appeared, name)
                back = await appeared.add_peer(endpoint.local_address)
                async with anyio.create_task_group() as answers:
                    answers.start_soon(send_all, appeared, name, back)
                    await receive_all(endpoint, name)
            endpoint.remove_peer(absent[name])
        assert present.recv_nowait() is None


async def test_an_absent_peer_that_is_removed_gives_its_number_back(names: list[str]) -> None:
    async with opened() as endpoint, opened() as present:
        there = await endpoint.add_peer(present.local_address)
        for _ in range(300):  # an address vector of shm has 256
            peers = [await endpoint.add_peer(name) for name in names]
            for peer in peers:
                endpoint.remove_peer(peer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_all, endpoint, "present", there)
            await receive_all(present, "present")


async def test_a_receive_may_name_a_peer_once_it_exists(names: list[str]) -> None:
    caps = Caps.MSG | Caps.TAGGED | Caps.SEND | Caps.RECV | Caps.DIRECTED_RECV
    async with aiofabric.open_endpoint(EndpointType.RDM, caps=caps, provider="shm", recv_size=None) as endpoint:
        peer = await endpoint.add_peer(names[0])
        with pytest.raises(UnreachableError, match="does not exist yet"):
            await endpoint.recv_tagged(1, source=peer, max_bytes=100)
        async with opened(names[0]) as appeared, anyio.create_task_group() as tasks:
            back = await appeared.add_peer(endpoint.local_address)
            tasks.start_soon(lambda: appeared.send_tagged(b"here", 1, to=back))
            assert await endpoint.recv_tagged(1, source=peer, max_bytes=100) == b"here"
