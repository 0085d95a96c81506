"""Three processes in a row: a source, a stage that doubles, and a slow sink. The sink's pace holds up the source.

Nothing here counts or waits: streams over a fabric have flow control, so ``send`` waits for the reader.
"""

import multiprocessing
from multiprocessing.connection import Connection

import anyio

from aiofabric.streams import MessageStream, connect_messages, listen_messages

ITEMS = 400
ITEM = 64 * 1024  # bytes: all of them would be 25 MiB


async def source(port: int) -> None:
    async with await connect_messages("127.0.0.1", port) as out:
        start = anyio.current_time()
        for number in range(ITEMS):
            await out.send(number.to_bytes(4, "big") + bytes(ITEM))
    print("the source was held up:", anyio.current_time() - start > 0.2)


async def double(parent: Connection, port: int) -> None:
    async def stage(stream: MessageStream) -> None:
        async with stream, await connect_messages("127.0.0.1", port) as out:
            async for item in stream:
                await out.send((2 * int.from_bytes(item[:4], "big")).to_bytes(4, "big") + item[4:])

    async with listen_messages("127.0.0.1", 0) as listener:
        parent.send(listener.address.port)
        await stage(await listener.accept())


async def sink(parent: Connection) -> None:
    async with listen_messages("127.0.0.1", 0) as listener:
        parent.send(listener.address.port)
        total = 0
        async with await listener.accept() as stream:
            async for item in stream:
                total += int.from_bytes(item[:4], "big")
                await anyio.sleep(0.001)
        print("the sink's total:", total)


def main() -> None:
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    last = processes.Process(target=anyio.run, args=(sink, theirs))
    last.start()
    middle = processes.Process(target=anyio.run, args=(double, theirs, ours.recv()))
    middle.start()
    anyio.run(source, ours.recv())
    middle.join()
    last.join()


if __name__ == "__main__":
    main()
