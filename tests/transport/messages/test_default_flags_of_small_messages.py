"""Hazard: default flags ask for more than fi_inject does, and small messages are injected nevertheless."""

import signal
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import EndpointSettings, Hints, MessageEndpoint, OpFlags, TxAttr
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import HOST, require
from tests.fixtures.stopping import stop

pytestmark = pytest.mark.anyio


async def takes(parent: Parent, provider: str) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider) as listener:
        parent.tell(listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            async for _ in endpoint:
                pass


def by_hints() -> dict[str, Any]:
    return {"hints": Hints(tx_attr=TxAttr(op_flags=OpFlags.DELIVERY_COMPLETE))}


def before_enabling() -> dict[str, Any]:
    def prepare(settings: EndpointSettings) -> None:
        settings.tx_flags = OpFlags.DELIVERY_COMPLETE

    return {"prepare": prepare}


def afterwards() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("size", [0, 8, 4000])
@pytest.mark.parametrize(
    ("provider", "way"),
    [
        ("tcp", by_hints),
        ("sockets", by_hints),
        ("sockets", before_enabling),
        ("sockets", afterwards),
    ],  # tcp's are fixed
)
async def test_delivery_is_waited_for_whatever_the_size(
    child: Callable[..., Child], provider: str, way: Callable[[], dict[str, Any]], size: int
) -> None:
    """A stopped peer delivers nothing. The flags of an open tcp endpoint cannot be changed."""
    require(provider)
    peer = child(takes, provider)
    port = await peer.areceive()
    async with await aiofabric.connect(HOST, port, provider=provider, **way()) as endpoint:
        if way is afterwards:
            endpoint.settings.tx_flags = OpFlags.DELIVERY_COMPLETE
        await endpoint.send(bytes(size))  # the peer answers now
        stop(peer.pid)
        done: list[bool] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, endpoint, bytes(size), done)
            try:
                await anyio.sleep(0.1)  # there is no state to wait for, because nothing may happen
                assert not done
                assert endpoint.statistics().sends == 1
            finally:
                peer.send_signal(signal.SIGCONT)
        assert done
        assert not endpoint.try_send(b"")


async def send(endpoint: MessageEndpoint, data: bytes, done: list[bool]) -> None:
    sending: Awaitable[None] = endpoint.send(data)
    await sending
    done.append(True)
