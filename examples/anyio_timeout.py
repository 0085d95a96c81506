"""Set time limits with anyio. A cancelled receive loses neither the connection nor a message."""

import anyio

import aiofabric


async def slow_server(listener: aiofabric.Listener) -> None:
    """Answer each question after a second message, when the first time limit of the client has passed."""
    request = await listener.accept_request()
    async with await request.accept() as ep:
        async for question in ep:
            await ep.recv()  # "hurry up"
            await ep.send(b"the answer to " + question)


async def main() -> None:
    async with aiofabric.listen("127.0.0.1", 0) as listener, anyio.create_task_group() as tg:
        tg.start_soon(slow_server, listener)
        async with await aiofabric.connect(listener.address) as ep:
            await ep.send(b"everything")
            try:
                with anyio.fail_after(0.1):
                    await ep.recv()
            except TimeoutError:
                print("no answer within 0.1 s")

            await ep.send(b"hurry up")
            with anyio.move_on_after(5) as timeout:
                print((await ep.recv()).decode())
            print("too late" if timeout.cancelled_caught else "in time")


if __name__ == "__main__":
    anyio.run(main)
