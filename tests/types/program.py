"""A user's program, for type checkers only: each line that ends in ``# wrong`` has an error, and no other line has."""

import array
import asyncio
import functools
from typing import assert_type

import numpy

import aiofabric
from aiofabric import EndpointType, MessageEndpoint, aio, streams


async def client() -> None:
    endpoint = await aiofabric.connect("127.0.0.1", 7471, provider="tcp", recv_size=4096, waiting=aiofabric.Waiting.FD)
    assert_type(endpoint, MessageEndpoint)
    await endpoint.send(b"bytes")
    await endpoint.send(bytearray(8))
    await endpoint.send(memoryview(b"view"))
    await endpoint.send(array.array("d", [1.0]))
    await endpoint.send(numpy.zeros(8))
    await endpoint.send([b"several", bytearray(8)], flags=aiofabric.OpFlags.DELIVERY_COMPLETE)
    await endpoint.send("text")  # wrong
    await endpoint.send(5)  # wrong
    await endpoint.send(["text"])  # wrong
    await endpoint.send(b"bytes", flags="FI_FENCE")  # wrong
    endpoint.send_nowait("text")  # wrong
    message = await endpoint.recv()
    assert_type(message, aiofabric.Message)
    message.upper()
    assert_type(await endpoint.recv_into(bytearray(8)), int)
    await endpoint.recv_into("text")  # wrong
    async with endpoint.recv_view() as view:
        assert_type(view, memoryview)
    remote = aiofabric.RemoteRegion.unpack(message)
    assert_type(await endpoint.read(remote), bytes)
    assert_type(await endpoint.write(numpy.zeros(8), remote), int)
    await endpoint.write("text", remote)  # wrong
    async with endpoint.batch() as batch:
        await batch.send(b"bytes")
        await batch.send("text")  # wrong


async def wrong_options() -> None:
    await aiofabric.connect("127.0.0.1", 7471, recv_sise=1)  # wrong
    await aiofabric.connect("127.0.0.1", 7471, recv_size="64k")  # wrong
    await aiofabric.connect("127.0.0.1", 7471, waiting="poll")  # wrong
    await aiofabric.connect("127.0.0.1", 7471, param="text")  # wrong
    await aiofabric.connect(("127.0.0.1", 7471))  # wrong
    await aiofabric.connect(b"127.0.0.1", 7471)  # wrong
    aiofabric.listen("127.0.0.1", 0, recv_sise=1)  # wrong
    aiofabric.open_endpoint(EndpointType.RDM, recv_sise=1)  # wrong
    aiofabric.open_scalable_endpoint(recv_sise=1)  # wrong


def friend(request: aiofabric.ConnectionRequest) -> bool:
    return request.param == b"friend"


async def asynchronous(request: aiofabric.ConnectionRequest) -> bool:
    return True


async def server() -> None:
    async with aiofabric.listen("127.0.0.1", 0, accept=friend, backlog=10) as listener:
        assert_type(listener.address.port, int | None)
        async for request in listener:
            endpoint = await request.accept(param=b"welcome", recv_count=8)
            assert_type(endpoint, MessageEndpoint)
            await endpoint.sent(b"bytes")  # wrong
            await request.accept(recv_sise=8)  # wrong
            await request.accept(param="text")  # wrong
            request.reject(param="text")  # wrong
    aiofabric.listen(accept=asynchronous)  # wrong
    aiofabric.listen(accept=functools.partial(asynchronous))  # wrong
    aiofabric.listen(accept=True)  # wrong


async def datagrams() -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, caps=aiofabric.Caps.MSG | aiofabric.Caps.TAGGED) as reliable:
        assert_type(reliable, aiofabric.RdmEndpoint)
        peer = await reliable.add_peer("127.0.0.1", 7471)
        assert_type(peer, aiofabric.Peer)
        await reliable.send_tagged(b"bytes", 1, to=peer)
        await reliable.send_tagged("text", 1, to=peer)  # wrong
        await reliable.send(b"bytes", to="peer")  # wrong
        assert_type((await reliable.recv_tagged(1)).tag, int)
    async with aiofabric.open_endpoint(EndpointType.DGRAM) as plain:
        assert_type(plain, aiofabric.DatagramEndpoint)
        plain.send_tagged(b"bytes", 1)  # wrong
    aiofabric.open_endpoint(EndpointType.RDM, caps="FI_MSG")  # wrong


async def familiar_shapes() -> None:
    stream = await streams.connect_stream("127.0.0.1", 7471)
    assert_type(stream, streams.FabricStream)
    assert_type(await stream.receive(), bytes)
    await stream.send("text")  # wrong
    await streams.connect_stream(("127.0.0.1", 7471))  # wrong
    await streams.connect_stream("127.0.0.1", 7471, recv_size=1)  # wrong
    async with streams.listen_messages("127.0.0.1", 0) as listener:
        assert_type(await listener.accept(), streams.MessageStream)
    reader, writer = await aio.open_connection("127.0.0.1", 7471, provider="tcp")
    assert_type(reader, asyncio.StreamReader)
    assert_type(writer, asyncio.StreamWriter)
    await aio.open_connection("127.0.0.1", 7471, provder="tcp")  # wrong
    await aio.start_server(print, "127.0.0.1", 0, ssl=True)  # wrong
    transport, protocol = await aio.create_connection(asyncio.Protocol, "127.0.0.1", 7471)
    assert_type(protocol, asyncio.Protocol)
    transport.write("text")  # wrong
