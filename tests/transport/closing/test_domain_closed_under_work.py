"""Hazard: a domain is closed while a transfer of one of its endpoints runs.

tcp of 1.17 cannot close an endpoint with a read, and its queue must not be closed before the endpoint.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import pytest

import aiofabric
from aiofabric import Access, MessageEndpoint, RemoteRegion
from tests.fixtures.providers import HOST, OWN_HOST, require
from tests.transport.closing.sides import ENDS, PROVIDERS

if TYPE_CHECKING:
    from tests.fixtures.children import Parent

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

ROUNDS = 6


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return require(request.param)


def size_of(provider: str) -> int:
    return 2 << 20 if "rxd" in provider else 16 << 20


async def work(what: str, endpoint: MessageEndpoint, memory: bytearray, remote: RemoteRegion) -> None:
    with suppress(*ENDS):
        await (endpoint.read_into if what == "read" else endpoint.write)(memory, remote)


async def work_and_close(what: str, endpoint: MessageEndpoint, size: int) -> None:
    remote = RemoteRegion.unpack(await endpoint.recv())
    memory = bytearray(size)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(work, what, endpoint, memory, remote)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        endpoint.domain.close()


async def offer(endpoint: MessageEndpoint, size: int) -> None:
    """Offer memory until the peer has gone."""
    access = Access.REMOTE_READ | Access.REMOTE_WRITE
    with suppress(*ENDS), endpoint.domain.register(bytearray(size), access=access) as region:
        await endpoint.send(region.remote.pack())
        async for _ in endpoint:
            pass


async def accept(listener: aiofabric.Listener, size: int) -> None:
    await offer(await (await listener.accept_request()).accept(), size)


async def in_one_process(parent: Parent, provider: str, what: str) -> int:
    size = size_of(provider)
    for number in range(ROUNDS):
        with anyio.fail_after(20):
            async with (
                aiofabric.listen(HOST, 0, provider=provider) as listener,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(accept, listener, size)
                endpoint = await aiofabric.connect(HOST, listener.address.port, provider=provider)
                await work_and_close(what, endpoint, size)
        parent.tell(number)
    return ROUNDS


async def target(parent: Parent, provider: str) -> int:
    async with aiofabric.listen(OWN_HOST, 0, provider=provider) as listener:
        parent.tell(listener.address.port)
        for _ in range(ROUNDS):
            async with await (await listener.accept_request()).accept() as endpoint:
                await offer(endpoint, size_of(provider))
    return ROUNDS


async def initiator(parent: Parent, provider: str, what: str, port: int) -> int:
    for number in range(ROUNDS):
        with anyio.fail_after(20):
            endpoint = await aiofabric.connect(OWN_HOST, port, provider=provider)
            await work_and_close(what, endpoint, size_of(provider))
        parent.tell(number)
    return ROUNDS


@pytest.mark.parametrize("what", ["read", "write"])
def test_both_ends_on_one_domain(child, provider: str, what: str) -> None:  # type: ignore[no-untyped-def]
    both = child(in_one_process, provider, what)
    assert [both.receive(60.0) for _ in range(ROUNDS)] == [*range(ROUNDS)]
    assert both.result(60.0) == ROUNDS


@pytest.mark.parametrize("what", ["read", "write"])
def test_the_peer_is_in_another_process(child, provider: str, what: str) -> None:  # type: ignore[no-untyped-def]
    serving = child(target, provider)
    client = child(initiator, provider, what, serving.receive())
    assert [client.receive(60.0) for _ in range(ROUNDS)] == [*range(ROUNDS)]
    assert client.result(60.0) == ROUNDS
    assert serving.result(60.0) == ROUNDS
