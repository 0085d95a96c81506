"""Ends: a server that is killed, a program that closes nothing, many clients that come and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric.rpc import grpc as aio
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import CARRIERS, over
from tests.fixtures.waiting import until
from tests.rpc.grpc import interop_server
from tests.rpc.grpc.generated import pb2, pb2_grpc
from tests.rpc.grpc.service import started

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.children import Child

pytestmark = pytest.mark.anyio

provider = over(CARRIERS)


async def test_calls_of_a_killed_server_end(child: Callable[..., Child], provider: str) -> None:
    server = child(interop_server.serve, provider)
    target = await server.areceive()
    async with aio.insecure_channel(target, options=[("aiofabric.provider", provider)]) as channel:
        stub = pb2_grpc.InteropStub(channel)
        unary = [stub.Unary(pb2.Request(wait_ms=60_000)) for _ in range(32)]
        streams = [stub.Output(pb2.Request(sizes=[1, 1], wait_ms=60_000)) for _ in range(16)]
        both = [stub.Duplex() for _ in range(16)]
        for each in both:
            await each.write(pb2.Request(sizes=[1]))
            await each.read()
        await asyncio.to_thread(server.kill)
        async with asyncio.timeout(20):
            codes = {await call.code() for call in (*unary, *streams, *both)}
        assert codes == {grpc.StatusCode.UNAVAILABLE}
        with pytest.raises(aio.CallFailedError) as raised:
            await unary[0]
        assert raised.value.may_have_run


async def test_many_clients_leave_nothing_behind() -> None:
    async def use(target: str, size: int) -> int:
        async with aio.insecure_channel(target) as channel:
            stub = pb2_grpc.InteropStub(channel)
            response: Any = await stub.Unary(pb2.Request(size=size))
            return len(response.body) + len([1 async for _ in stub.Output(pb2.Request(sizes=[size] * 10))])

    async with started(aio) as (server, target):
        assert await asyncio.gather(*(use(target, size) for size in range(50))) == [size + 10 for size in range(50)]
        core = server._core
        await until(lambda: not core.transports)
        assert (len(core.tasks), core.budget.used) == (0, 0)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_program_that_closes_nothing_ends(loop: str) -> None:
    ended = run_in_child(
        f"""
        import asyncio
        import uvloop
        from aiofabric.rpc import grpc as aio
        from tests.rpc.grpc.generated import pb2, pb2_grpc
        from tests.rpc.grpc.service import Interop

        async def main():
            global unary, stream
            server = aio.server()
            pb2_grpc.add_InteropServicer_to_server(Interop(), server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            stub = pb2_grpc.InteropStub(aio.insecure_channel(f"127.0.0.1:{{port}}"))
            await stub.Nothing(pb2.Empty())
            unary = stub.Unary(pb2.Request(wait_ms=60_000))
            stream = stub.Output(pb2.Request(sizes=[1] * 1000, wait_ms=1))
            await stream.read()

        for _ in range(2):
            {loop}.run(main())
        print("left")
        """
    )
    assert (ended.status, ended.out) == (0, "left\n"), ended.err
