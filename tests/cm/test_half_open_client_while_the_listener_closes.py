"""Hazard: a client has connected its socket and sent nothing yet when the listener closes.

The provider frees its record of that client together with the passive endpoint, but leaves the client in the epoll set
of the event queue. If the queue is read when the client sends, freed memory is read (SIGSEGV in tcp, every version).
"""

import pytest

from tests.fixtures.children import run_in_child

CODE = """
import random, socket, sys
import anyio, psutil, aiofabric

HERE = "127.0.0.1"

def accepted(port):
    found = psutil.Process().net_connections("tcp")
    return sum(each.laddr.port == port and each.status == "ESTABLISHED" for each in found)

async def serve(listener, *, task_status):
    task_status.started()
    async for request in listener:
        async with await request.accept() as passive:
            async for message in passive:
                await passive.send(message)

async def main():
    async with aiofabric.listen(HERE, 0, provider="tcp") as other, anyio.create_task_group() as tasks:
        await tasks.start(serve, other)
        for words in (b"", b"x", bytes(12), random.randbytes(1000)):
            async with aiofabric.listen(HERE, 0, provider="tcp") as listener:
                port = listener.address.port
                halves = [socket.create_connection((HERE, port)) for _ in range(5)]
                while accepted(port) < 5:
                    await anyio.lowlevel.checkpoint()
            for half in halves:
                half.sendall(words)
                half.close()
            async with await aiofabric.connect(other.address, provider="tcp") as active:
                await active.send(b"still here")
                assert await active.recv() == b"still here"
        tasks.cancel_scope.cancel()
    print("survived")

anyio.run(main, backend=sys.argv[1], backend_options={"use_uvloop": True} if sys.argv[2:] else {})
"""


@pytest.mark.parametrize("loop", [["asyncio"], ["asyncio", "uvloop"], ["trio"]], ids=" on ".join)
def test_half_open_client_while_the_listener_closes(loop: list[str]) -> None:
    ended = run_in_child(CODE, *loop)
    assert (ended.signal, ended.out) == (None, "survived\n"), ended.err


GARBAGE = """
import random, socket, sys
import anyio, aiofabric

async def main():
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
        for seed in range(40):
            with socket.create_connection(("127.0.0.1", listener.address.port)) as client:
                client.sendall(random.Random(seed).randbytes(seed * 7))
        async def serve():
            async with await (await listener.accept_request()).accept() as passive:
                await passive.send(b"welcome")
                async for _ in passive:
                    pass
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            async with await aiofabric.connect(listener.address, provider="tcp") as active:
                print(bytes(await active.recv()).decode())

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_listener_survives_clients_that_talk_nonsense(loop: str) -> None:
    ended = run_in_child(GARBAGE, loop)
    assert (ended.signal, ended.out) == (None, "welcome\n"), ended.err
