"""Make calls with a deadline over message endpoints. A call that its caller cancels is cancelled at the service too."""

import anyio
import msgspec

import aiofabric


class Message(msgspec.Struct):
    id: int
    number: float  # the argument of a call, or its result
    seconds: float = 0  # time limit of the call; 0 cancels the call


pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.Decoder(Message).decode


async def serve(listener: aiofabric.Listener) -> None:
    async def work(call: Message) -> None:
        with anyio.move_on_after(call.seconds) as scopes[call.id]:
            await anyio.sleep(call.number)  # a larger number takes longer
            await ep.send(pack(Message(call.id, call.number**2)))
        if scopes.pop(call.id).cancelled_caught:
            print(f"the service gives up {call.number}")

    scopes: dict[int, anyio.CancelScope] = {}
    async with await (await listener.accept_request()).accept() as ep, anyio.create_task_group() as tg:
        async for data in ep:
            call = unpack(data)
            if call.seconds:
                tg.start_soon(work, call)
            elif call.id in scopes:
                scopes[call.id].cancel()


async def square(ep: aiofabric.MessageEndpoint, id: int, number: float, seconds: float) -> None:
    """Make one call at a time on this connection. Skip replies to cancelled calls."""
    try:
        with anyio.fail_after(seconds):
            await ep.send(pack(Message(id, number, seconds * 2)))  # the caller's own limit ends first
            while (reply := unpack(await ep.recv())).id != id:
                pass
            print(f"{number} squared is {reply.number}")
    except TimeoutError:
        await ep.send(pack(Message(id, number)))
        print(f"{number} takes longer than {seconds} s")


async def main() -> None:
    async with aiofabric.listen("127.0.0.1", 0) as listener, anyio.create_task_group() as tg:
        tg.start_soon(serve, listener)
        async with await aiofabric.connect(listener.address) as ep:
            await square(ep, 1, 0.01, seconds=5)
            await square(ep, 2, 60, seconds=0.1)  # the caller cancels it at its deadline
            await square(ep, 3, 0.02, seconds=5)


if __name__ == "__main__":
    anyio.run(main)
