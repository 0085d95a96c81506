"""Run an echo server for many connections, and two clients."""

import anyio

import aiofabric


async def echo(request: aiofabric.ConnectionRequest) -> None:
    async with await request.accept() as ep:
        async for message in ep:  # ends when the peer closes
            await ep.send(message)


async def client(name: str, address: aiofabric.Address) -> None:
    async with await aiofabric.connect(address) as ep:
        for word in ("one", "two", "three"):
            await ep.send(f"{name} says {word}".encode())
            print((await ep.recv()).decode())


async def main() -> None:
    async with aiofabric.listen("127.0.0.1", 0) as listener, anyio.create_task_group() as server:

        async def accept_all() -> None:
            async for request in listener:
                server.start_soon(echo, request)

        server.start_soon(accept_all)
        async with anyio.create_task_group() as clients:
            clients.start_soon(client, "Ada", listener.address)
            clients.start_soon(client, "Grace", listener.address)
        server.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
