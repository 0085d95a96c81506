"""Hazard: an array of objects is sent as its pointers, and a peer's bytes become pointers of this process."""

import ctypes
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Access, rpc
from aiofabric._core import refuse_pointers
from aiofabric.streams import connect_messages, connect_stream, listen_messages, listen_stream, open_datagrams
from tests.fixtures.providers import Pair, over

pytestmark = pytest.mark.anyio
numpy = pytest.importorskip("numpy")
provider = over(["tcp", "shm"])


class Structure(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("text", ctypes.c_char_p))


def array(size: int = 1) -> Any:
    return numpy.array(["an object"] * size, dtype=object)


POINTERS = {
    "objects": array(),
    "a view of objects": memoryview(array()),
    "a field of a structure": numpy.zeros(2, dtype=[("number", "i4"), ("object", "O")]),
    "addresses": (ctypes.c_void_p * 2)(),
    "strings": (ctypes.c_char_p * 2)(),
    "wide strings": (ctypes.c_wchar_p * 2)(),
    "pointers to numbers": (ctypes.POINTER(ctypes.c_int) * 2)(),
    "ctypes' objects": (ctypes.py_object * 2)(),
    "functions": (ctypes.CFUNCTYPE(None) * 2)(),
    "ctypes' structure": Structure(),
}
VALUES = {
    "complex numbers": numpy.zeros(2, complex),
    "fields with such letters": numpy.zeros(2, dtype=[("O", "i4"), ("P:", "f8"), ("X", "S3")]),
    "half precision": numpy.zeros(2, numpy.float16),
    "dates": numpy.zeros(2, "M8[s]"),
    "text": numpy.array(["text"]),
    "bytes": b"text",
    "no buffer": 5,
}


@pytest.mark.parametrize("what", POINTERS)
def test_a_format_with_pointers_is_refused(what: str) -> None:
    with pytest.raises(TypeError, match="holds pointers"):
        refuse_pointers(POINTERS[what])


@pytest.mark.parametrize("what", VALUES)
def test_other_formats_are_not_refused(what: str) -> None:
    refuse_pointers(VALUES[what])


@pytest.mark.parametrize("size", [1, 64, 100_000])
async def test_endpoints_refuse_pointers(pair: Pair, size: int) -> None:
    async with pair() as (one, two):
        objects = array(size)
        for data in (objects, memoryview(objects), [b"x", objects], [objects, b"x"]):
            with pytest.raises(TypeError, match="holds pointers"):
                await one.send(data)
        for room in (objects, [bytearray(4), objects]):
            with pytest.raises(TypeError, match="holds pointers"):
                await two.recv_into(room)
        with pytest.raises(TypeError, match="holds pointers"):
            one.domain.register(objects, access=Access.REMOTE_READ)
        with one.domain.register(bytearray(8 * size), access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
            with pytest.raises(TypeError, match="holds pointers"):
                await two.write(objects, region.remote)
            with pytest.raises(TypeError, match="holds pointers"):
                await two.read_into(objects, region.remote)
        await one.send(b"still works")
        assert await two.recv() == b"still works"


async def test_an_endpoint_without_a_pool_refuses_pointers(pair: Pair) -> None:
    async with pair(recv_size=None) as (one, _):
        with pytest.raises(TypeError, match="holds pointers"):
            await one.recv_into(array())


async def test_private_data_and_rpc_messages_refuse_pointers() -> None:
    with pytest.raises(TypeError, match="holds pointers"):
        await aiofabric.connect("127.0.0.1", 1, provider="tcp", param=array())
    async with rpc.Channel("127.0.0.1:1") as channel:
        with pytest.raises(TypeError, match="holds pointers"):
            await channel.unary("/test/echo", array())


@pytest.mark.parametrize(("listen", "connect"), [(listen_stream, connect_stream), (listen_messages, connect_messages)])
async def test_streams_refuse_pointers(listen: Any, connect: Any) -> None:
    async with listen("127.0.0.1", provider="tcp") as listener, anyio.create_task_group() as tasks:
        accepted: list[Any] = []

        async def accept() -> None:
            accepted.append(await listener.accept())

        tasks.start_soon(accept)
        stream = await connect("127.0.0.1", listener.address.port, provider="tcp")
    async with stream, accepted[0]:
        for size in (1, 100_000):
            with pytest.raises(TypeError, match="holds pointers"):
                await stream.send(array(size))
        if hasattr(stream, "receive_into"):
            with pytest.raises(TypeError, match="holds pointers"):
                await stream.receive_into(array())
        stream.abort()


async def test_datagrams_refuse_pointers() -> None:
    async with await open_datagrams("127.0.0.1") as stream:
        with pytest.raises(TypeError, match="holds pointers"):
            await stream.send((array(), ("127.0.0.1", 9)))
