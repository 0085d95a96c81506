"""A small service over fabric messages: deadlines, a stream, and a server that is drained while calls run."""

from collections.abc import AsyncIterator

import anyio

from aiofabric import rpc


async def square(request: bytes, context: rpc.ServerContext) -> bytes:
    """Return the square of a number; a larger number takes longer."""
    number = float(request)
    try:
        await anyio.sleep(number)
    except anyio.get_cancelled_exc_class():
        print(f"the service gives up {number}")
        raise
    return b"%f" % number**2


async def count(request: bytes, context: rpc.ServerContext) -> AsyncIterator[bytes]:
    """Stream the numbers below the given one."""
    for number in range(int(request)):
        yield b"%d" % number


HANDLERS = {"/demo.Numbers/Square": rpc.unary_unary(square), "/demo.Numbers/Count": rpc.unary_stream(count)}


async def ask(channel: rpc.Channel, number: float, seconds: float) -> None:
    try:
        reply = await channel.unary("/demo.Numbers/Square", b"%f" % number, timeout=seconds)
        print(f"{number} squared is {float(reply)}")
    except rpc.RpcError as error:
        print(f"{number}: {error}")


async def main() -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen("127.0.0.1", 0)
        async with rpc.Channel(f"127.0.0.1:{listener.address.port}") as channel, anyio.create_task_group() as group:
            await ask(channel, 0.01, seconds=5)
            await ask(channel, 60, seconds=0.1)  # the deadline ends it on both sides
            async with channel.call("/demo.Numbers/Count") as call:
                await call.send(b"5")
                call.half_close()
                print("counted", [int(number) async for number in call])
            group.start_soon(ask, channel, 0.3, 5)
            await anyio.sleep(0.1)
            await server.stop(grace=5)  # the running call ends first
            print("the service has stopped")


if __name__ == "__main__":
    anyio.run(main)
