"""Promise: a sender that is killed in the middle of large messages harms no later message, of any sender.

Over rxm the receiver reads a large message out of the sender's memory. If that fails, the provider reports the receive
twice.
"""

from __future__ import annotations

import os
import signal
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

import aiofabric
from aiofabric import EndpointType
from aiofabric.streams import connect_stream, listen_stream
from tests.fixtures.providers import HOST, require

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiofabric import Address
    from aiofabric.streams import FabricStream
    from tests.fixtures.children import Child, Parent

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(120)]

SIZE = 100_000
COUNT = 200
SENDERS = 3


def message(sender: int, number: int) -> bytes:
    return struct.pack("<II", sender, number) * (SIZE // 8)


async def send_until_killed(sender: int, send: Callable[[bytes], Awaitable[object]]) -> None:
    number = 0
    while True:
        await send(message(sender, number))
        number += 1


async def sends_a_stream(parent: Parent, sender: int, place: Address, provider: str) -> None:
    with suppress(anyio.BrokenResourceError):
        async with await connect_stream(place, provider=provider) as stream:
            await send_until_killed(sender, stream.send)


async def check_until_the_end(stream: FabricStream, sender: int, pid: int, who_ends: str) -> int:
    """Check each message; in the middle the sender is killed, or this side aborts. Returns how many came."""
    arrived, number = b"", 0
    while True:
        while len(arrived) >= SIZE:
            assert arrived[:SIZE] == message(sender, number), f"message {number} of sender {sender}"
            arrived = arrived[SIZE:]
            number += 1
            if number == COUNT and who_ends == "killed sender":
                os.kill(pid, signal.SIGKILL)
            elif number == COUNT:
                stream.abort()
                return number
        try:
            arrived += await stream.receive(1 << 20)
        except (anyio.BrokenResourceError, anyio.EndOfStream):
            return number


async def receives_streams(parent: Parent, provider: str, who_ends: str) -> None:
    async with listen_stream(HOST, 0, provider=provider) as listener:
        parent.tell(listener.address)
        for sender in range(SENDERS):
            pid = await anyio.to_thread.run_sync(parent.receive)
            async with await listener.accept() as stream:
                assert await check_until_the_end(stream, sender, pid, who_ends) >= COUNT
            parent.tell("all came")


@pytest.mark.parametrize("who_ends", ["killed sender", "receiver"])
@pytest.mark.parametrize("provider", ["tcp", "tcp;ofi_rxm", "shm"])
async def test_streams_of_later_senders_are_whole(child: Callable[..., Child], provider: str, who_ends: str) -> None:
    """In a child: rxm of 2.x keeps a domain whose peers were killed."""
    receiver = child(receives_streams, require(provider), who_ends)
    address = await anyio.to_thread.run_sync(receiver.receive)
    for sender in range(SENDERS):
        receiver.tell(child(sends_a_stream, sender, address, provider).pid)
        assert await anyio.to_thread.run_sync(receiver.receive) == "all came"
    await anyio.to_thread.run_sync(receiver.result)


async def sends_many_to_an_endpoint(parent: Parent, sender: int, receiver: Address, provider: str) -> None:
    async with (
        aiofabric.open_endpoint(EndpointType.RDM, provider=provider) as endpoint,
        anyio.create_task_group() as tasks,
    ):
        peer = await endpoint.add_peer(receiver)

        async def send_some() -> None:
            while True:
                await endpoint.send(message(sender, 0), to=peer)

        for _ in range(8):
            tasks.start_soon(send_some)


async def receives_of_many(parent: Parent, provider: str, options: dict[str, Any]) -> int:
    """Returns how many receives failed: a message of a dead sender is lost, and said to be."""
    failures = 0
    opening = aiofabric.open_endpoint(EndpointType.RDM, provider=provider, recv_size=SIZE, **options)
    async with opening as endpoint:
        parent.tell(endpoint.local_address)
        for sender in range(SENDERS):
            known = [message(each, 0) for each in range(sender + 1)]
            count = 0
            while count < COUNT:
                try:
                    arrived = await endpoint.recv()
                except OSError:
                    failures += 1
                    continue
                assert arrived in known, f"wrong bytes after {count} messages of sender {sender}"
                count += arrived == known[sender]
            parent.tell("enough")
    return failures


@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])
@pytest.mark.parametrize("options", [{}, {"multi_recv": 1 << 20}], ids=["one each", "multi_recv"])
@pytest.mark.parametrize("provider", ["tcp;ofi_rxm", "shm"])
async def test_messages_of_later_senders_to_an_endpoint_are_whole(
    child: Callable[..., Child], provider: str, options: dict[str, Any]
) -> None:
    if options and (provider == "shm" or aiofabric.library_version() >= (2, 0)):
        pytest.skip("no safe multi-receive buffers here: aiofabric refuses them")
    receiver = child(receives_of_many, require(provider), options)
    address = await anyio.to_thread.run_sync(receiver.receive)
    for sender in range(SENDERS):
        process = child(sends_many_to_an_endpoint, sender, address, provider)
        assert await anyio.to_thread.run_sync(receiver.receive) == "enough"
        os.kill(process.pid, signal.SIGKILL)
    failures = await anyio.to_thread.run_sync(receiver.result)
    assert failures <= 8 * SENDERS
