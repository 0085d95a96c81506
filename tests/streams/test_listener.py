"""FabricListener and FabricConnectable in anyio's programs: serve, MultiListener, TLS on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.abc import AnyByteStream, ByteStreamConnectable, Listener, SocketAttribute
from anyio.streams.stapled import MultiListener
from anyio.streams.tls import TLSAttribute, TLSConnectable, TLSListener

import aiofabric
from aiofabric.streams import FabricAttribute, FabricConnectable, FabricStream, connect_stream, listen_stream
from tests.fixtures.certificates import NAME
from tests.fixtures.internals import channel_of, endpoint_of
from tests.fixtures.providers import CARRIERS, require

if TYPE_CHECKING:
    from tests.fixtures.certificates import Tls

pytestmark = pytest.mark.anyio

LOCAL = "127.0.0.1"


async def echo(stream: AnyByteStream) -> None:
    async with stream:
        async for chunk in stream:
            await stream.send(chunk)


async def ask(stream: AnyByteStream) -> None:
    """See that an echo answers, and close."""
    async with stream:
        await stream.send(b"echo")
        answer = b""
        while len(answer) < 4:
            answer += await stream.receive()
        assert answer == b"echo"


async def refused_by(connectable: FabricConnectable) -> BaseException | None:
    with pytest.raises(anyio.ConnectionFailed, match=str(connectable.port)) as caught:
        await connectable.connect()
    return caught.value.__cause__


@pytest.mark.parametrize("own_tasks", [True, False])
async def test_serve(provider: str, own_tasks: bool) -> None:
    async with listen_stream(LOCAL, 0, provider=provider) as listener, anyio.create_task_group() as tg:
        tg.start_soon(listener.serve, echo, None if own_tasks else tg)
        streams = [await connect_stream(listener.address, provider=provider) for _ in range(3)]
        for stream in reversed(streams):
            await ask(stream)
        tg.cancel_scope.cancel()


async def test_several_listeners_as_one() -> None:
    available = [require(name) for name in CARRIERS]
    async with anyio.create_task_group() as tg:
        listeners = [listen_stream(LOCAL, 0, provider=provider) for provider in available]
        async with listeners[0] as tcp, listeners[1] as shm:
            both = MultiListener([tcp, shm])
            assert both.extra(FabricAttribute.provider) == shm.extra(FabricAttribute.provider)
            tg.start_soon(both.serve, echo)
            for provider, listener in zip(available, (tcp, shm), strict=True):
                await ask(await connect_stream(LOCAL, listener.address.port, provider=provider))
            tg.cancel_scope.cancel()
        await both.aclose()


async def test_beside_a_listener_of_the_kernels(provider: str) -> None:
    kernels = await anyio.create_tcp_listener(local_host=LOCAL)
    port = kernels.extra(SocketAttribute.local_port)
    async with (
        listen_stream(LOCAL, 0, provider=provider) as ours,
        MultiListener([ours, kernels]) as both,
        anyio.create_task_group() as tg,
    ):
        tg.start_soon(both.serve, echo)
        await ask(await connect_stream(ours.address, provider=provider))
        await ask(await anyio.connect_tcp(LOCAL, port))
        tg.cancel_scope.cancel()


async def test_tls_on_both_sides(provider: str, tls: Tls) -> None:
    async with listen_stream(LOCAL, 0, provider=provider) as listener, anyio.create_task_group() as tg:
        tg.start_soon(TLSListener(listener, tls.server).serve, echo)
        plain = FabricConnectable(LOCAL, listener.address.port, provider=provider)
        connectable = TLSConnectable(plain, hostname=NAME, ssl_context=tls.client)
        stream = await connectable.connect()
        assert stream.extra(TLSAttribute.tls_version).startswith("TLS")
        assert stream.extra(FabricAttribute.provider) == provider
        assert stream.extra(SocketAttribute.remote_port) == listener.address.port
        await ask(stream)
        tg.cancel_scope.cancel()


async def test_a_connectable_is_anyios(provider: str) -> None:
    async with listen_stream(LOCAL, 0, provider=provider) as listener, anyio.create_task_group() as tg:
        tg.start_soon(listener.serve, echo)
        connectable = FabricConnectable(host=LOCAL, port=listener.address.port, provider=provider)
        assert isinstance(connectable, ByteStreamConnectable)
        assert anyio.as_connectable(connectable) is connectable
        stream = await connectable.connect()
        assert isinstance(stream, FabricStream)
        await ask(stream)
        tg.cancel_scope.cancel()
    assert isinstance(await refused_by(connectable), ConnectionRefusedError)


async def test_everything_on_a_domain_of_ones_own(provider: str) -> None:
    async with listen_stream(LOCAL, 0, provider=provider) as shared:
        info = shared.extra(FabricAttribute.info)
    with aiofabric.Domain(info) as domain:
        async with listen_stream(LOCAL, 0, domain=domain) as listener, anyio.create_task_group() as tg:
            tg.start_soon(listener.serve, echo)
            stream = await FabricConnectable(LOCAL, listener.address.port, domain=domain).connect()
            assert endpoint_of(channel_of(stream)).domain is domain
            await ask(stream)
            tg.cancel_scope.cancel()


async def test_accepting_is_for_one_task_until_it_is_closed(provider: str) -> None:
    async with listen_stream(LOCAL, 0, provider=provider) as listener:
        assert isinstance(listener, Listener)
        async with anyio.create_task_group() as tg:
            tg.start_soon(_closed_in_accept, listener.accept)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(anyio.BusyResourceError):
                await listener.accept()
            await listener.aclose()
        await _closed_in_accept(listener.accept)
        async with anyio.create_task_group() as tg:
            await _closed_in_accept(listener.serve, echo, tg)
        await listener.aclose()


async def _closed_in_accept(accept: Any, *args: Any) -> None:
    with pytest.raises(anyio.ClosedResourceError):
        await accept(*args)


async def test_accepted_streams_outlive_their_listener(provider: str) -> None:
    async with listen_stream(LOCAL, 0, provider=provider) as listener, anyio.create_task_group() as tg:
        accepted: list[FabricStream] = []

        async def accept() -> None:
            accepted.append(await listener.accept())

        tg.start_soon(accept)
        stream = await connect_stream(listener.address, provider=provider)
    async with stream, accepted[0] as other:
        await stream.send(b"still here")
        assert await other.receive() == b"still here"


async def test_a_cancelled_accept_loses_no_request(provider: str) -> None:
    async with listen_stream(LOCAL, 0, provider=provider) as listener, anyio.create_task_group() as tg:
        for _ in range(3):
            with anyio.move_on_after(0.01) as scope:
                await listener.accept()
            assert scope.cancelled_caught
        tg.start_soon(listener.serve, echo)
        await ask(await connect_stream(listener.address, provider=provider))
        tg.cancel_scope.cancel()


async def test_typed_attributes(provider: str) -> None:
    async with listen_stream(LOCAL, 0, provider=provider) as listener:
        assert listener.extra(FabricAttribute.provider) == provider
        assert listener.extra(FabricAttribute.local_address) == listener.address
        assert listener.extra(SocketAttribute.local_address) == (LOCAL, listener.address.port)
        assert listener.extra(SocketAttribute.local_port) == listener.address.port
        for missing in (SocketAttribute.remote_address, SocketAttribute.raw_socket, FabricAttribute.remote_address):
            with pytest.raises(anyio.TypedAttributeLookupError):
                listener.extra(missing)
