"""Hazard: a callback, or another task, closes an endpoint while a function of it runs.

The function must not use objects that fi_close has freed. Tests that would crash otherwise run in a process of their
own.
"""

# Privates: `_run` is replaced, to close the endpoint between two pieces of one call.

import time
from array import array
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import (
    Access,
    AtomicOp,
    Caps,
    EndpointType,
    FabricConnectionResetError,
    FabricError,
    Group,
)
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import HOST, VIRTUAL, connected_pair, require

SIZE = 4 << 20
MESSAGE = 1 << 20
SENDS = 4
StartChild = Callable[..., Child]


async def shuts_down_while_it_is_closed(parent: Parent) -> str:
    async def send() -> None:
        with pytest.raises(ClosedResourceError):
            await active.send(bytes(SIZE))

    async def close() -> None:
        await anyio.wait_all_tasks_blocked()
        active.close()

    async with connected_pair("tcp", recv_size=None) as (active, _), anyio.create_task_group() as tasks:
        for _ in range(SENDS):
            tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(close)
        with pytest.raises(ClosedResourceError):
            await active.shutdown()
    return "alive"


def test_a_shutdown_that_waits_for_sends(child: StartChild) -> None:
    assert child(shuts_down_while_it_is_closed).result() == "alive"


async def asks_for_settings_of_a_lost_connection(parent: Parent) -> str:
    async with connected_pair("tcp") as (active, passive):
        passive.close()
        with pytest.raises(FabricConnectionResetError):
            await active.recv()
        for name in ("rx_flags", "tx_flags", "rx_size_left", "tx_size_left"):
            with pytest.raises(FabricConnectionResetError):
                getattr(active.settings, name)
    return "alive"


def test_settings_of_a_connection_that_has_ended(child: StartChild) -> None:
    assert child(asks_for_settings_of_a_lost_connection).result() == "alive"


async def stands_still(parent: Parent, provider: str) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider, recv_size=MESSAGE, recv_count=16) as listener:
        parent.tell(listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            await endpoint.send(await endpoint.recv())
            time.sleep(60)  # noqa: ASYNC251 (it reads nothing, and does not let go of anything, until it is killed)


async def closes_when_a_send_fails(parent: Parent, provider: str, port: int) -> int:
    told: list[BaseException | None] = []
    everyone = anyio.Event()

    def done(error: BaseException | None) -> None:
        told.append(error)
        endpoint.close()
        if len(told) == SENDS:
            everyone.set()

    endpoint = await aiofabric.connect(HOST, port, provider=provider)
    await endpoint.send(b"hello")
    await endpoint.recv()
    for _ in range(SENDS):
        endpoint.send_nowait(bytes(MESSAGE), done)
    await anyio.wait_all_tasks_blocked()
    parent.tell("posted")
    await everyone.wait()
    return len(told)


@pytest.mark.parametrize("provider", VIRTUAL)
def test_a_callback_closes_the_last_connection_when_its_peer_is_gone(child: StartChild, provider: str) -> None:
    require(provider)
    peer = child(stands_still, provider)
    closing = child(closes_when_a_send_fails, provider, peer.receive())
    assert closing.receive() == "posted"
    peer.kill()
    assert closing.result() == SENDS


async def closes_when_a_queued_send_is_refused(parent: Parent) -> tuple[int, list[str]]:
    problems: list[str] = []
    told: list[BaseException | None] = []

    def done(error: BaseException | None) -> None:
        told.append(error)
        active.close()

    async with connected_pair("tcp", recv_size=None) as (active, passive):
        handle = handle_of(active)
        driver: Any = handle.source.driver
        driver.report = lambda message, error: problems.append(f"{message}: {error!r}")
        assert handle.tx is not None
        handle.tx.limit = 1
        active.send_nowait(bytes(SIZE))
        active.send_nowait(bytes(1000), done)
        [queued] = handle.tx.waiting
        queued.post = (lambda *_: -22, ())  # refused when its time has come
        await passive.recv_into(bytearray(SIZE))
        with pytest.raises(FabricConnectionResetError):
            await passive.recv_into(bytearray(SIZE))
    assert [type(error) for error in told] == [FabricError]
    return handle.source.slots.in_use, problems


def test_a_callback_closes_when_a_queued_send_is_refused(child: StartChild) -> None:
    assert child(closes_when_a_queued_send_is_refused).result() == (0, [])


async def leaves_between_two_pieces(parent: Parent, provider: str) -> str:
    one_piece = Group._run

    async def run(group: Group, *args: Any) -> None:
        await one_piece(group, *args)
        group.close()

    Group._run = run  # type: ignore[assignment,method-assign]
    caps = Caps.MSG | Caps.TAGGED | Caps.COLLECTIVE
    async with aiofabric.open_endpoint(EndpointType.RDM, HOST, provider=provider, caps=caps) as endpoint:
        group = await endpoint.join_collective([await endpoint.add_peer(endpoint.local_address)])
        with pytest.raises(ClosedResourceError):
            await group.allreduce(AtomicOp.SUM, array("q", range(SIZE // 1024)))
    return "alive"


def test_a_group_that_is_left_between_two_pieces(child: StartChild) -> None:
    provider = "tcp;ofi_rxm"
    require(provider)
    assert child(leaves_between_two_pieces, provider).result() == "alive"


async def begins_with_a_checkpoint(parent: Parent, what: str) -> str:
    async with connected_pair("tcp") as (active, passive):
        with passive.domain.register(bytearray(64), access=Access.REMOTE_READ) as region:
            batch = await active.batch().__aenter__()

            async def checkpoint() -> None:
                active.close()

            handle_of(active).checkpoint = checkpoint
            with pytest.raises(ClosedResourceError):
                await (active.read_into(bytearray(64), region.remote) if what == "a read" else batch.send(b"1"))
    return "alive"


@pytest.mark.parametrize("what", ["a read", "a batch"])
def test_an_operation_that_begins_with_a_checkpoint(child: StartChild, what: str) -> None:
    """As trio's do."""
    assert child(begins_with_a_checkpoint, what).result() == "alive"


async def goes_on_to_a_removed_peer(parent: Parent, provider: str) -> str:
    async with (
        aiofabric.open_endpoint(EndpointType.RDM, HOST, provider=provider) as one,
        aiofabric.open_endpoint(EndpointType.RDM, HOST, provider=provider) as other,
    ):
        peer = await one.add_peer(other.local_address)
        batch = await one.batch(to=peer).__aenter__()
        one.remove_peer(peer)
        for size in (1, MESSAGE):
            with pytest.raises(ClosedResourceError):
                await batch.send(bytes(size))
    return "alive"


def test_a_batch_to_a_peer_that_was_removed(child: StartChild) -> None:
    """Its number may be the next one's."""
    provider = "tcp;ofi_rxm"
    require(provider)
    assert child(goes_on_to_a_removed_peer, provider).result() == "alive"
