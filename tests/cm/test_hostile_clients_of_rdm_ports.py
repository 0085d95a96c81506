"""Hazard: hostile clients connect to the port of a connectionless endpoint over TCP, which accepts connections itself.

aiofabric gets no event for these clients. It must serve honest peers meanwhile, disconnect clients that send nothing,
and not spin.
"""

import socket
from collections.abc import Callable

import anyio
import pytest

import aiofabric
from aiofabric import Address, EndpointType, EpAttr, FabricAttr, Hints
from aiofabric.errors import NoProviderError
from tests.fixtures.children import Child, Parent
from tests.fixtures.clients import (
    HERE,
    ONE_LOOP,
    Listening,
    connections,
    first_words,
    kinds,
    questions,
)
from tests.fixtures.internals import source_of

pytestmark = pytest.mark.anyio

PROVIDERS = ["tcp", "tcp;ofi_rxm"]
SPUN = 20_000  # needless passes: a tenth of a second of spinning


@pytest.fixture(params=PROVIDERS)
def rdm(request: pytest.FixtureRequest) -> str:
    """A provider whose connectionless endpoints use TCP."""
    name: str = request.param
    try:
        aiofabric.getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name=name), ep_attr=EpAttr(type=EndpointType.RDM)))
    except NoProviderError as error:
        pytest.skip(str(error))
    return name


def at(port: int) -> Address:
    return Address.from_ip(HERE, port)


async def serve(parent: Parent, provider: str) -> None:
    """Answer every message, which is its sender's port."""
    async with (
        aiofabric.open_endpoint(EndpointType.RDM, HERE, provider=provider) as endpoint,
        anyio.create_task_group() as tasks,
    ):

        async def echo() -> None:
            while True:
                port = int.from_bytes(await endpoint.recv(), "big")
                peer = await endpoint.add_peer(at(port))
                await endpoint.send(b"at your service", to=peer)

        tasks.start_soon(echo)
        parent.tell(endpoint.local_address.port)
        source = source_of(endpoint)
        await questions(parent, lambda: {"passes": source.statistics().passes})
        tasks.cancel_scope.cancel()


async def call(provider: str, port: int) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, HERE, provider=provider) as endpoint:
        peer = await endpoint.add_peer(at(port))
        ours = endpoint.local_address.port
        assert ours is not None
        await endpoint.send(ours.to_bytes(2, "big"), to=peer)
        assert await endpoint.recv() == b"at your service"


async def honest(provider: str, port: int) -> None:
    with anyio.fail_after(15):
        await call(provider, port)


@ONE_LOOP
async def test_a_client_that_waits_to_be_accepted_is_seen(rdm: str) -> None:
    """2.x's rxm accepts one in 10 ms; meanwhile, the queue's descriptor is readable without an event."""
    async with aiofabric.open_endpoint(EndpointType.RDM, HERE, provider=rdm) as endpoint:
        waits = source_of(endpoint).delays.may_stay_readable
        assert waits is not None
        assert not waits()
        with socket.create_connection((HERE, endpoint.local_address.port)) as client:  # no step of the loop until then
            client.sendall(b"x")
            assert waits()


@ONE_LOOP
async def test_two_thousand_that_say_nothing_cost_nothing(rdm: str, child: Callable[..., Child]) -> None:
    listening = Listening(child(serve, rdm))
    await honest(rdm, listening.port)
    before, _ = await listening.tells()
    with connections(listening.port, lambda: b""):
        _, then = await listening.tells()
        await honest(rdm, listening.port)
        here, now = await listening.tells()
        assert here <= before + 10
        assert now["passes"] - then["passes"] < SPUN
    await listening.end()


@ONE_LOOP
@pytest.mark.parametrize("kind", ["half a request", "nonsense"])
async def test_who_speaks_nonsense_stops_nobody(kind: str, rdm: str, child: Callable[..., Child]) -> None:
    async def ask(port: int) -> None:
        await call(rdm, port)

    words = kinds(await first_words(ask), kind)[kind]
    listening = Listening(child(serve, rdm))
    await honest(rdm, listening.port)
    before, then = await listening.tells()
    with connections(listening.port, words, 300):  # 2.x's rxm accepts a hundred a second
        await honest(rdm, listening.port)
    await honest(rdm, listening.port)
    _, now = await listening.tells()
    assert now["passes"] - then["passes"] < SPUN
    if kind == "nonsense":  # of half a request, 2.x's tcp keeps the one that ends with the header
        await listening.until(lambda descriptors, _: descriptors <= before + 1)
    await listening.end()
