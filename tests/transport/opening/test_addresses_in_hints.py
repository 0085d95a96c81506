"""The local and the peer's address may be given in the hints instead of as node and service."""

import os
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Address, EndpointType, Hints, RdmEndpoint
from tests.fixtures.children import Child, Parent, run_in_child
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio

HERE = Address.from_ip("127.0.0.3", 0)  # not the address that a provider takes by default
NAME = Address.from_str(f"fi_shm://tests-of-addresses-in-hints-{os.getpid()}")  # other test processes have their own


@pytest.mark.parametrize("provider", ["tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "sockets", "net"])
async def test_listening_and_connecting(provider: str) -> None:
    require(provider)
    async with (
        aiofabric.listen(hints=Hints(src_addr=HERE), provider=provider) as listener,
        anyio.create_task_group() as tasks,
    ):
        assert listener.address.host == HERE.host

        async def accept() -> None:
            async with await (await listener.accept_request()).accept() as accepted:
                await accepted.send(b"here")

        tasks.start_soon(accept)
        there = Hints(dest_addr=listener.address)
        with anyio.fail_after(20):
            async with await aiofabric.connect(hints=there, provider=provider) as endpoint:
                assert await endpoint.recv() == b"here"


async def test_reserving() -> None:
    async with aiofabric.reserve(hints=Hints(src_addr=HERE), provider="tcp") as reservation:
        assert reservation.address.host == HERE.host


@pytest.mark.parametrize(("provider", "kind"), [("tcp;ofi_rxm", EndpointType.RDM), ("udp", EndpointType.DGRAM)])
async def test_opening_without_a_connection(provider: str, kind: EndpointType) -> None:
    hints = Hints(src_addr=HERE)
    async with aiofabric.open_endpoint(kind, hints=hints, provider=provider) as endpoint:
        assert endpoint.local_address.host == HERE.host


async def test_a_place_is_given_once() -> None:
    """libfabric ignores the address of the hints beside a node or a service."""
    hints = Hints(src_addr=HERE, dest_addr=HERE)
    refused = pytest.raises(ValueError, match=r"_addr=fi_sockaddr_in://127.0.0.3:0, and the call names")
    calls: list[Any] = [aiofabric.listen, aiofabric.reserve]
    for place in (("127.0.0.1",), (None, 7471)):
        for call in calls:
            with refused:
                await call(*place, hints=hints).__aenter__()
        with refused:
            await aiofabric.connect(*place, hints=hints)
        with refused:
            await aiofabric.open_endpoint(EndpointType.RDM, *place, hints=hints).__aenter__()


@pytest.mark.parametrize("given", ["text", "address", "hints"])
async def test_an_endpoint_in_shared_memory_has_the_requested_name(given: str) -> None:
    where: Any = {"text": {"node": str(NAME)}, "address": {"node": NAME}, "hints": {"hints": Hints(src_addr=NAME)}}[
        given
    ]
    for _ in range(2):  # the name is free again after a close
        async with (
            aiofabric.open_endpoint(EndpointType.RDM, provider="shm", **where) as named,
            aiofabric.open_endpoint(EndpointType.RDM, provider="shm") as other,
        ):
            assert named.local_address == NAME
            assert other.local_address != NAME
            await say_hello(other, named)


async def say_hello(sender: RdmEndpoint, receiver: RdmEndpoint) -> None:
    """Send a message to an endpoint by its name."""
    peer = await sender.add_peer(str(receiver.local_address))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: sender.send(b"hello", to=peer))
            assert await receiver.recv() == b"hello"


def test_a_name_used_again_leads_to_its_new_endpoint() -> None:
    """The provider found the memory of the first: messages went to another endpoint, or the process hung or crashed."""
    ended = run_in_child(
        """
        import anyio, sys, aiofabric
        from contextlib import AsyncExitStack
        from aiofabric import EndpointType
        from tests.transport.opening.test_addresses_in_hints import say_hello

        def opened(node=None):
            return aiofabric.open_endpoint(EndpointType.RDM, node, provider="shm")

        async def main():
            async with opened() as stays:
                for count in range(4):
                    async with AsyncExitStack() as stack:
                        for _ in range(count):  # one gets the memory where the named one was
                            await stack.enter_async_context(opened())
                        named, other = [await stack.enter_async_context(opened(node)) for node in (sys.argv[1], None)]
                        assert str(named.local_address) == sys.argv[1]
                        for one in (other, stays):
                            await say_hello(one, named)
                            await say_hello(named, one)
                        stays.remove_peer(await stays.add_peer(sys.argv[1]))

        anyio.run(main)
    """,
        str(NAME),
    )
    assert ended.status == 0, ended


def test_a_chosen_name_that_is_taken_is_refused() -> None:
    """2.x removed the other endpoint's file and then ended the process. A killed process does not keep its name."""
    ended = run_in_child(
        """
        import anyio, os, sys, aiofabric
        from aiofabric import EndpointType
        from tests.fixtures.children import run_in_child
        from tests.transport.opening.test_addresses_in_hints import say_hello

        def opened(node=None):
            return aiofabric.open_endpoint(EndpointType.RDM, node, provider="shm")

        async def main(die):
            async with opened(sys.argv[1]) as first, opened() as other:
                assert str(first.local_address) == sys.argv[1]
                if die:
                    os.kill(os.getpid(), 9)
                try:
                    await opened(sys.argv[1]).__aenter__()
                except aiofabric.FabricError as error:
                    print(error)
                await say_hello(other, first)

        if len(sys.argv) == 2:
            code = sys.orig_argv[sys.orig_argv.index("-c") + 1]
            assert run_in_child(code, sys.argv[1], "die").signal == 9
        anyio.run(main, len(sys.argv) > 2)
    """,
        str(NAME),
    )
    assert ended.status == 0, ended
    assert "[FI_EADDRINUSE]. Process" in ended.out
    assert "Choose another name" in ended.out


async def has_a_name(parent: Parent, name: str, peer: Address) -> None:
    try:
        async with aiofabric.open_endpoint(EndpointType.RDM, name, provider="shm") as endpoint:
            parent.tell("opened")
            if await parent.areceive() == "send":
                await endpoint.send(b"hello", to=await endpoint.add_peer(peer))
                await endpoint.recv()
    except aiofabric.FabricError as error:
        parent.tell(str(error))


async def test_a_name_of_which_a_peer_knows_an_earlier_endpoint_is_refused(child: Callable[..., Child]) -> None:
    """The first message of the new endpoint hung or crashed the peer, which maps the memory of the earlier one."""
    name = f"{NAME}-elsewhere"
    async with aiofabric.open_endpoint(EndpointType.RDM, provider="shm") as peer:
        first = child(has_a_name, name, peer.local_address)
        assert await first.areceive() == "opened"
        first.tell("send")
        assert await peer.recv() == b"hello"
        await peer.send(b"and back", to=await peer.add_peer(name))
        await first.aresult()
        for _ in range(2):
            second = child(has_a_name, name, peer.local_address)
            assert f"Process {os.getpid()} has an endpoint" in await second.areceive()
        assert peer.recv_nowait() is None
    again = child(has_a_name, name, peer.local_address)
    assert await again.areceive() == "opened"
    again.tell("close")
    await again.aresult()


async def test_listening_at_a_name_in_shared_memory_is_refused() -> None:
    for node in (NAME, str(NAME)):
        with pytest.raises(ValueError, match="listen at a host and port"):
            await aiofabric.listen(node, provider="shm").__aenter__()
