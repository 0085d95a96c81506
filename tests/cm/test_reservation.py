"""Addresses that are reserved before it is known whether a connection or a listener will use them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import Reservation
from tests.fixtures.children import Child, Parent
from tests.fixtures.ports import free_port

pytestmark = pytest.mark.anyio


async def echo(listener: aiofabric.Listener) -> None:
    async with await (await listener.accept_request()).accept() as ep:
        async for message in ep:
            await ep.send(message)


async def test_a_connection_from_a_reserved_address(provider: str) -> None:
    async with (
        aiofabric.listen("127.0.0.1", provider=provider) as listener,
        aiofabric.reserve("127.0.0.1", provider=provider) as reservation,
        anyio.create_task_group() as tg,
    ):
        tg.start_soon(echo, listener)
        address = reservation.address
        assert address.port
        async with await aiofabric.connect(listener.address, reservation=reservation) as ep:
            assert ep.local_address == address
            assert reservation.closed
            await ep.send(b"from the reserved port")
            assert await ep.recv() == b"from the reserved port"


async def test_a_listener_at_a_reserved_address(provider: str) -> None:
    async with aiofabric.reserve("127.0.0.1", provider=provider) as reservation:
        address = reservation.address
        async with (
            aiofabric.listen(reservation=reservation) as listener,
            anyio.create_task_group() as tg,
        ):
            assert reservation.closed
            assert listener.address == address
            tg.start_soon(echo, listener)
            async with await aiofabric.connect(address, provider=provider) as ep:
                await ep.send(b"hello")
                assert await ep.recv() == b"hello"


async def test_no_two_reservations_have_the_same_address(provider: str) -> None:
    async with (
        aiofabric.reserve("127.0.0.1", provider=provider) as one,
        aiofabric.reserve("127.0.0.1", provider=provider) as other,
    ):
        assert one.address != other.address
        assert repr(one) == f"<Reservation {one.address}>"
    with pytest.raises(ClosedResourceError):
        _ = one.address
    assert repr(one) == "<Reservation closed>"


async def test_a_reservation_is_used_once(provider: str) -> None:
    async with aiofabric.reserve("127.0.0.1", provider=provider) as reservation:
        async with aiofabric.listen(reservation=reservation):
            pass
        with pytest.raises(ClosedResourceError):
            async with aiofabric.listen(reservation=reservation):
                pass


async def test_a_connection_that_failed_frees_the_address(provider: str) -> None:
    async with aiofabric.reserve("127.0.0.1", provider=provider) as nobody_listens:
        target = nobody_listens.address
        async with aiofabric.reserve("127.0.0.1", provider=provider) as reservation:
            with pytest.raises(ConnectionRefusedError):
                await aiofabric.connect(target, provider=provider, reservation=reservation)
            assert isinstance(reservation, Reservation)
            assert reservation.closed


async def fail_before_the_connect(_: Parent) -> None:
    def refuse(_: Any) -> None:
        raise ZeroDivisionError

    async with aiofabric.listen("127.0.0.1", provider="sockets") as listener, anyio.create_task_group() as tg:
        port = free_port()
        async with aiofabric.reserve("127.0.0.1", port, provider="sockets") as reservation:
            connect = partial(aiofabric.connect, listener.address, reservation=reservation)
            with pytest.raises(ZeroDivisionError):
                await connect(prepare=refuse)
            tg.start_soon(echo, listener)
            async with await connect() as ep:
                assert ep.local_address is not None
                assert ep.local_address.port == port
                await ep.send(b"from the reserved address")
                assert await ep.recv() == b"from the reserved address"
            with pytest.raises(ClosedResourceError):
                await connect()
        with pytest.raises(ClosedResourceError):
            await connect()


async def test_sockets_does_not_free_the_reservation_of_a_connection_that_failed(child: Callable[..., Child]) -> None:
    """Its fi_close takes the handle of an endpoint that is not connected for a request, and frees it."""
    await child(fail_before_the_connect).aresult()
