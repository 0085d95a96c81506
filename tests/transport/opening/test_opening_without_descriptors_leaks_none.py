"""Hazard: an object cannot be opened completely because file descriptors are missing, and keeps those that it has.

Such a server accepted no client for the rest of its life, although it was at its limit only once.
"""

import pytest

from tests.fixtures.children import run_in_child

PROGRAM = """
    import os, resource, sys
    from contextlib import AsyncExitStack, suppress
    import anyio, aiofabric
    from aiofabric.testing import live_resources

    provider = sys.argv[1]

    async def connect(listener):
        with anyio.fail_after(0.2):  # nobody accepts; at the limit the listener cannot even take the connection
            await aiofabric.connect(listener.address, provider=provider)

    async def listen(listener):
        async with aiofabric.listen("127.0.0.1", 0, provider=provider):
            pass

    async def open_endpoint(listener):
        async with aiofabric.open_endpoint(aiofabric.EndpointType.RDM, "127.0.0.1", provider=provider):
            pass

    def state():
        return len(os.listdir("/proc/self/fd")), len(live_resources())

    def at_rest(before):
        return all(now <= was for now, was in zip(state(), before))

    async def attempts(opening, listener):
        with suppress(TimeoutError):
            await opening(listener)  # what libfabric keeps from a first one is no leak
        before, refused = state(), 0
        for spare in range(40):
            taken = []
            with suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            for _ in range(spare):
                os.close(taken.pop())
            try:
                await opening(listener)
                return
            except TimeoutError:
                return
            except OSError:
                refused += 1
            finally:
                for descriptor in taken:
                    os.close(descriptor)
            with anyio.move_on_after(5):
                while not at_rest(before):
                    await anyio.lowlevel.checkpoint()
            assert at_rest(before), (opening.__name__, spare, state(), before)
        raise AssertionError(f"{opening.__name__} never succeeded")

    async def main():
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            await attempts(open_endpoint, None)
        except aiofabric.NoProviderError:
            pass
        await attempts(listen, None)
        async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
            await attempts(connect, listener)

    anyio.run(main)
    print("done")
"""


@pytest.mark.parametrize("provider", ["tcp", "shm", "udp", "tcp;ofi_rxm", "udp;ofi_rxd", "sockets"])
def test_opening_without_descriptors_leaks_none(provider: str) -> None:
    ended = run_in_child(PROGRAM, provider)
    assert (ended.status, ended.out) == (0, "done\n"), ended


def test_a_server_that_was_at_its_limit_accepts_again() -> None:
    ended = run_in_child("""
        import os, resource
        from contextlib import suppress
        import anyio, aiofabric

        MOST = 64

        def limit(descriptors):
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))

        async def main():
            async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener, anyio.create_task_group() as tasks:
                clients, refused = [], 0

                async def answer(request):
                    with suppress(aiofabric.FabricError):
                        async with await request.accept() as endpoint:
                            async for message in endpoint:
                                await endpoint.send(message)

                async def serve():
                    async for request in listener:
                        tasks.start_soon(answer, request)

                tasks.start_soon(serve)
                limit(MOST)
                while not refused:  # clients are of this process, and reach its limit with it
                    try:
                        with anyio.fail_after(1):
                            clients.append(await aiofabric.connect(listener.address, provider="tcp"))
                    except (TimeoutError, OSError):
                        refused += 1
                for client in clients:
                    await client.aclose()
                async with await aiofabric.connect(listener.address, provider="tcp") as client:
                    await client.send(b"still there?")
                    assert await client.recv() == b"still there?"
                tasks.cancel_scope.cancel()

        anyio.run(main)
        print("done")
    """)
    assert (ended.status, ended.out) == (0, "done\n"), ended


@pytest.mark.parametrize("provider", ["shm", "tcp;ofi_rxm"])
def test_a_virtual_listener_leaves_descriptors_to_the_provider(provider: str) -> None:
    """Without one, shm of 1.17 crashes when it opens a new peer's memory, and 2.5 says nothing and loses messages."""
    ended = run_in_child(
        """
        import os, resource, sys
        from contextlib import suppress
        import anyio, aiofabric

        provider = sys.argv[1]

        async def main():
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
            listening = aiofabric.listen("127.0.0.1", 0, provider=provider)
            async with listening as listener, anyio.create_task_group() as tasks:

                async def accept():
                    async for request in listener:
                        with suppress(aiofabric.FabricError):
                            tasks.start_soon(echo, await request.accept())

                async def echo(endpoint):
                    with suppress(aiofabric.FabricError):
                        async for message in endpoint:
                            await endpoint.send(message)

                tasks.start_soon(accept)
                clients = []
                taken = []
                with suppress(OSError):
                    while True:
                        taken.append(os.dup(0))
                for _ in range(6):
                    os.close(taken.pop())
                with anyio.move_on_after(1), suppress(OSError):
                    while True:
                        clients.append(await aiofabric.connect(listener.address, provider=provider))
                for client in clients:  # each connected client works
                    with anyio.fail_after(5):
                        await client.send(b"x")
                        assert await client.recv() == b"x"
                for descriptor in taken:
                    os.close(descriptor)
                with anyio.fail_after(5):
                    client = await aiofabric.connect(listener.address, provider=provider)
                    await client.send(b"room again")
                    assert await client.recv() == b"room again"
                for each in (client, *clients):
                    each.abort()
                tasks.cancel_scope.cancel()

        anyio.run(main)
        print("done")
        """,
        provider,
    )
    assert (ended.status, ended.out) == (0, "done\n"), ended
