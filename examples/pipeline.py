"""Connect three processes in a row: a source, a stage that doubles, and a slow sink, with flow control."""

import multiprocessing
import signal
from typing import Any

import anyio

from aiofabric.streams import connect_messages, listen_messages

ITEMS, ITEM = 400, 64 * 1024  # bytes: all items together have 25 MiB
processes = multiprocessing.get_context("spawn")


async def source(port: int, taken: Any) -> None:
    ahead = 0
    async with await connect_messages("127.0.0.1", port) as out:
        for number in range(ITEMS):
            await out.send(number.to_bytes(4, "big") + bytes(ITEM))  # waits while the next stage is behind
            ahead = max(ahead, number + 1 - taken.value)
    print(f"of {ITEMS} items, at most {ahead} were under way")


async def double(parent: Any, port: int) -> None:
    async with listen_messages("127.0.0.1", 0) as listener, await connect_messages("127.0.0.1", port) as out:
        parent.send(listener.address.port)
        async with await listener.accept() as stream:
            async for item in stream:
                await out.send((2 * int.from_bytes(item[:4], "big")).to_bytes(4, "big") + item[4:])


async def sink(parent: Any, taken: Any) -> None:
    total = 0
    async with listen_messages("127.0.0.1", 0) as listener:
        parent.send(listener.address.port)
        async with await listener.accept() as stream:
            async for item in stream:
                taken.value += 1
                total += int.from_bytes(item[:4], "big")
                await anyio.sleep(0.001)
    parent.send(total)


def start(stage: Any, argument: Any) -> tuple[Any, int]:
    ours, theirs = processes.Pipe()
    process = processes.Process(target=anyio.run, args=(stage, theirs, argument), daemon=True)
    process.start()
    theirs.close()  # if a stage fails, `recv` below raises EOFError
    print(f"process {process.pid} listens at port {(port := ours.recv())}", flush=True)
    return ours, port


if __name__ == "__main__":
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: Ctrl-C ends only this process
    taken = processes.Value("i", 0)
    at_sink, port = start(sink, taken)
    _, port = start(double, port)
    signal.signal(signal.SIGINT, interrupt)
    anyio.run(source, port, taken)
    print("the sink's total:", at_sink.recv())
