"""A forked child gets a clear error, and its parent's connection continues."""

from tests.fixtures.children import run_in_child


def test_forked_child_is_refused_and_harms_nobody() -> None:
    ended = run_in_child(
        """
        import os, anyio, aiofabric

        async def main():
            async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
                accepted = []
                async def accept():
                    accepted.append(await (await listener.accept_request()).accept())
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(accept)
                    ep = await aiofabric.connect("127.0.0.1", listener.address.port, provider="tcp")
                child = os.fork()
                if child == 0:
                    refused = 0
                    for call in (lambda: ep.send(b"x").send(None), lambda: ep.recv().send(None),
                                 lambda: listener.accept_request().send(None),
                                 lambda: ep.domain.register(bytearray(10))):
                        try:
                            call()
                        except aiofabric.ForkedError as error:
                            assert "fork" in str(error)
                            refused += 1
                    ep.close(), accepted[0].close(), listener.close()  # quiet, and without effect
                    os._exit(refused)
                _, status = os.waitpid(child, 0)
                assert os.waitstatus_to_exitcode(status) == 4, status
                await ep.send(b"still here")
                assert await accepted[0].recv() == b"still here"
                await accepted[0].aclose()
                await ep.aclose()
            print("parent goes on")

        anyio.run(main)
        """
    )
    assert ended.status == 0, ended
    assert ended.out == "parent goes on\n", ended
