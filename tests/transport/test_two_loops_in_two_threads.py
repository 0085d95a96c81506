"""Two threads with a loop each exchange messages. Neither may use the other's endpoint."""

import threading
from queue import SimpleQueue
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import MessageEndpoint, WrongThreadError

MESSAGES = 500


def in_a_thread(backend: tuple[str, dict[str, Any]], function: Any, *args: Any) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def run() -> None:
        name, options = backend
        outcome.append(anyio.run(function, *args, backend=name, backend_options=options))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


async def echo(ports: SimpleQueue[int], endpoints: SimpleQueue[MessageEndpoint]) -> int:
    count = 0
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
        assert listener.address.port is not None
        ports.put(listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            endpoints.put(endpoint)
            async for message in endpoint:
                await endpoint.send(message)
                count += 1
    return count


async def talk(port: int, endpoints: SimpleQueue[MessageEndpoint]) -> int:
    async with await aiofabric.connect("127.0.0.1", port, provider="tcp") as endpoint:
        for number in range(MESSAGES):
            message = b"%d " % number * (number % 300 + 1)
            await endpoint.send(message)
            assert await endpoint.recv() == message
        theirs = endpoints.get(timeout=10)
        with pytest.raises(WrongThreadError, match="belongs to the thread"):
            await theirs.send(b"not mine")
        with pytest.raises(WrongThreadError, match="belongs to the thread"):
            theirs.close()
    return MESSAGES


def test_two_loops_talk(anyio_backend: tuple[str, dict[str, Any]]) -> None:
    ports: SimpleQueue[int] = SimpleQueue()
    endpoints: SimpleQueue[MessageEndpoint] = SimpleQueue()
    server, echoed = in_a_thread(anyio_backend, echo, ports, endpoints)
    client, talked = in_a_thread(anyio_backend, talk, ports.get(timeout=20), endpoints)
    client.join(30)
    server.join(30)
    assert (echoed, talked) == ([MESSAGES], [MESSAGES])
