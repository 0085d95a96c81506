"""A message longer than its receive raises TruncatedMessageError, whatever the sign of the provider's code, or without
a code.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aiofabric
from aiofabric import Caps, EndpointType, EpAttr, Hints, TruncatedMessageError
from tests.fixtures.peers import peers, skip_without

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.anyio

CUTTING = "udp;ofi_rxd"  # tells neither side, so one byte more is asked for than the caller has room for


@pytest.mark.parametrize("provider", ["shm", "tcp;ofi_rxm", CUTTING])
async def test_a_message_too_long_for_a_connectionless_receive(provider: str) -> None:
    async with peers(provider, Caps.MSG | Caps.TAGGED, recv_size=None) as (one, other, peer, _):

        async def send() -> None:
            with suppress(TruncatedMessageError):  # 2.x's shm tells the sender too
                await one.send_tagged(bytes(1000), 1, to=peer)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            with anyio.fail_after(5), pytest.raises(TruncatedMessageError):
                await other.recv_tagged(1, max_bytes=64)


@pytest.mark.parametrize("size", [65, 1000, 100_000])
@pytest.mark.parametrize("how", ["plain", "tagged", "in pieces"])
async def test_direct_receives_over_a_provider_that_cuts(how: str, size: int) -> None:
    async with peers(CUTTING, Caps.MSG | Caps.TAGGED, recv_size=None) as (one, other, peer, _):
        room = bytearray(64)
        ways: dict[str, tuple[Callable[[bytes], Awaitable[Any]], Callable[[], Awaitable[Any]]]] = {
            "plain": (partial(one.send, to=peer), lambda: other.recv_into(room)),
            "tagged": (partial(one.send_tagged, tag=1, to=peer), lambda: other.recv_tagged_into(room, 1)),
            "in pieces": (
                partial(one.send, to=peer),
                lambda: other.recv_into([memoryview(room)[:10], memoryview(room)[10:]]),
            ),
        }
        send, receive = ways[how]

        async def send_both() -> None:
            await send(b"\1" * size)
            await send(b"\2" * 64)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send_both)
                with pytest.raises(TruncatedMessageError) as caught:
                    await receive()
                assert (caught.value.limit, caught.value.size) == (64, None)
                await receive()
                assert room == b"\2" * 64


async def test_a_pool_over_a_provider_that_cuts() -> None:
    async with peers(CUTTING, Caps.MSG | Caps.TAGGED, recv_size=64, recv_count=20) as (one, other, peer, _):
        with anyio.fail_after(10):
            for _ in range(15):  # more than a pool has at first
                for size in (64, 65, 5000, 3):
                    await one.send(bytes(size), to=peer)
                assert await other.recv() == bytes(64)
                for _ in range(2):
                    with pytest.raises(TruncatedMessageError) as caught:
                        await other.recv()
                    assert caught.value.limit == 64
                assert await other.recv() == bytes(3)


async def test_a_direct_receive_of_a_connection_over_a_provider_that_cuts() -> None:
    skip_without(CUTTING, Caps.MSG | Caps.TAGGED)
    hints = Hints(ep_attr=EpAttr(type=EndpointType.RDM))
    listen = aiofabric.listen("127.0.0.1", 0, provider=CUTTING, hints=hints, recv_size=None)
    async with listen as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            async with await (await listener.accept_request()).accept() as endpoint:
                await endpoint.send(bytes(1000))
                await endpoint.send(b"next")
                assert await endpoint.recv(10) == b"thanks"

        tasks.start_soon(accept)
        with anyio.fail_after(10):
            async with await aiofabric.connect(listener.address, provider=CUTTING, recv_size=None) as endpoint:
                with pytest.raises(TruncatedMessageError):
                    await endpoint.recv(100)
                assert await endpoint.recv(100) == b"next"
                await endpoint.send(b"thanks")
