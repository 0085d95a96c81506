"""Hazard: a limit or a release exists on the usual path, and is missing on a second path that is rarer."""

import asyncio
from contextlib import suppress

import anyio
import pytest

import aiofabric
from aiofabric import Access, FabricError, OpFlags
from aiofabric._ffi import constants
from aiofabric.testing import live_resources
from aiofabric.transport.messages.pool import Pool
from aiofabric.transport.virtual.route import ConnectionRoute
from tests.aio.protocols import where
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.providers import VIRTUAL, Pair, over, require
from tests.fixtures.sides import Open

# Doubles: no provider refuses the first receive on request.

pytestmark = pytest.mark.anyio
provider = over(VIRTUAL)

BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE


@pytest.mark.parametrize("way", ["injected", "posted", "posted without waiting"])
async def test_the_window_of_a_virtual_connection_holds_for_each_way_of_sending(pair: Pair, way: str) -> None:
    """With four receives at the peer, four messages leave, whether or not they have a completion."""
    size = 8 if way == "injected" else 3000

    async def send() -> None:
        for _ in range(10):
            await active.send(bytes(size))

    async with pair(recv_count=4, recv_size=4096) as (active, passive), anyio.create_task_group() as tasks:
        if way == "posted without waiting":
            for _ in range(10):
                active.send_nowait(bytes(size))
        else:
            tasks.start_soon(send)
        assert isinstance(handle_of(active).tx, ConnectionRoute)
        assert handle_of(passive).pool is not None
        with anyio.fail_after(30):  # rxm opens its own connection with the first message
            while handle_of(active).tx.sent < 4 or handle_of(passive).pool.messages < 4:
                await anyio.lowlevel.checkpoint()
        for _ in range(20):  # the four have arrived, so a fifth could leave now
            await anyio.lowlevel.checkpoint()
        assert handle_of(active).tx.sent == 4
        assert active.statistics().queued == (6 if way == "posted without waiting" else 1)
        for _ in range(10):
            assert len(await passive.recv()) == size


async def test_a_virtual_connection_that_cannot_be_opened_leaves_nothing(provider: str) -> None:
    """One domain has so many sizes of receives; the endpoint that is refused is no longer the multiplexer's."""
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        accepted: list[aiofabric.MessageEndpoint] = []

        async def accept() -> None:
            async for request in listener:
                accepted.append(await request.accept())  # noqa: PERF401

        tasks.start_soon(accept)
        ends: list[aiofabric.MessageEndpoint] = []
        size, before, refused = 100_000, 0, ""
        while not refused:
            before = len(live_resources())
            try:
                ends.append(await aiofabric.connect(listener.address, provider=provider, recv_size=size))
            except ValueError as error:
                refused = str(error)
            else:
                size += 1  # each larger than all before it: no pool of a larger size can take its place
        assert "have at most" in refused
        assert len(live_resources()) <= before
        ends.append(await aiofabric.connect(listener.address, provider=provider, recv_size=size - 1))
        await ends[-1].send(b"still works")
        tasks.cancel_scope.cancel()
    for each in (*ends, *accepted):
        each.abort()


async def test_a_write_with_data_and_flags_is_reported(sides: Open) -> None:
    async with sides(remote_writes=10) as (one, other, to, _):
        with other.domain.register(bytearray(64), access=BOTH, endpoint=other) as region:
            await one.write(b"x", region.remote[:1], **to, remote_data=7, flags=OpFlags.DELIVERY_COMPLETE)
            assert (await other.remote_write()).data == 7


async def test_a_write_in_pieces_with_data_is_reported(sides: Open) -> None:
    async with sides(remote_writes=10) as (one, other, to, _):
        if one.info.tx_attr.iov_limit < 2:
            pytest.skip(f"{one.info.fabric_attr.prov_name} gathers no buffers")
        memory = bytearray(64)
        with other.domain.register(memory, access=BOTH, endpoint=other) as region:
            await one.write([b"one", b"two"], region.remote[:6], **to, remote_data=8)
            assert (await other.remote_write()).data == 8
            assert memory[:6] == b"onetwo"


async def test_a_factory_that_raises_leaves_nothing_open(provider: str) -> None:
    """The leak check after each test counts what is left."""
    if anyio.get_cancelled_exc_class().__module__.startswith("trio"):
        pytest.skip("asyncio's interface")

    def factory() -> asyncio.Protocol:
        raise LookupError("no protocol")

    server = await aiofabric.aio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, provider=provider)
    async with server:
        host, port = where(server)
        with pytest.raises(LookupError, match="no protocol"):
            await aiofabric.aio.create_connection(factory, host, port, provider=provider)
    with suppress(OSError):
        await server.wait_closed()


async def test_a_pool_whose_first_post_fails_leaves_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    require("tcp")
    accepted: list[aiofabric.MessageEndpoint] = []
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            async for request in listener:
                with suppress(FabricError):  # the client has failed
                    accepted.append(await request.accept())

        tasks.start_soon(accept)
        async with await aiofabric.connect(listener.address, provider="tcp") as sound:
            while not accepted:
                await anyio.lowlevel.checkpoint()
            before = source_of(sound).statistics().slots_in_use
            with monkeypatch.context() as patch:
                patch.setattr(Pool, "post", refuse_post)
                with pytest.raises(FabricError, match="fi_recv"):
                    await aiofabric.connect(listener.address, provider="tcp")
            with anyio.fail_after(10):  # the accepted end of that connection has slots, too
                while source_of(sound).statistics().slots_in_use != before:
                    for each in accepted[1:]:
                        each.abort()
                    await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    for each in accepted:
        each.abort()


def refuse_post(_: Pool) -> None:
    raise FabricError(constants.FI_EIO, "fi_recv")
