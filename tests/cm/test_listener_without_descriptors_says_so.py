"""Hazard: a listener's process has no descriptor left, and clients wait while neither side reports an error."""

from tests.fixtures.children import run_in_child


def test_listener_without_descriptors_says_so() -> None:
    ended = run_in_child("""
        import logging, os, resource
        from contextlib import suppress
        import anyio, aiofabric

        async def main():
            logging.basicConfig()
            async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener, anyio.create_task_group() as tasks:
                ends = []
                async def accept():
                    async for request in listener:
                        with suppress(aiofabric.FabricError):
                            ends.append(await request.accept())
                tasks.start_soon(accept)
                ends.append(await aiofabric.connect(listener.address, provider="tcp"))
                while len(ends) < 2:
                    await anyio.lowlevel.checkpoint()
                for spare in range(4):  # where one is left, the client takes it, and the listener has none
                    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
                    used = len(os.listdir("/proc/self/fd")) - 1
                    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, 1024))
                    with anyio.move_on_after(0.5), suppress(aiofabric.FabricError):
                        ends.append(await aiofabric.connect(listener.address, provider="tcp"))
                resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
                tasks.cancel_scope.cancel()
            for end in ends:
                end.abort()

        anyio.run(main)
    """)
    assert ended.status == 0, ended
    assert ended.err.count("no file descriptor is left") == 1, ended
