"""Hazard: a request is rejected after its endpoint could not be opened; the sockets provider has freed it already."""

import pytest

from tests.fixtures.children import run_in_child
from tests.fixtures.providers import require

PROGRAM = """
    import sys
    import anyio, aiofabric
    from aiofabric.cm import passive as module

    provider = sys.argv[1]
    libfabric, rejected = module.lib, []

    class Watched:
        def __getattr__(self, name):
            if name == "fi_reject":
                rejected.append(name)
            return getattr(libfabric, name)

    module.lib = Watched()

    def unprepared(settings):
        raise RuntimeError("the program's own")

    async def connect(listener):
        try:
            await aiofabric.connect(listener.address, provider=provider)
        except aiofabric.FabricConnectionError as error:
            print(type(error).__name__)

    async def main():
        for _ in range(20):
            with anyio.fail_after(10):
                async with (
                    aiofabric.listen("127.0.0.1", provider=provider) as listener,
                    anyio.create_task_group() as tasks,
                ):
                    tasks.start_soon(connect, listener)
                    request = await listener.accept_request()
                    try:
                        await request.accept(prepare=unprepared)
                    except RuntimeError as error:
                        print(error)

    anyio.run(main)
    print(len(rejected))
"""


@pytest.mark.parametrize("provider", ["tcp", "sockets", "net"])
def test_the_client_gets_an_error_and_the_process_goes_on(provider: str) -> None:
    require(provider)
    ended = run_in_child(PROGRAM, provider)
    assert (ended.status, ended.err) == (0, ""), ended
    *words, rejected = ended.out.splitlines()
    assert words.count("the program's own") == 20
    assert len([word for word in words if word.startswith("FabricConnection")]) == 20
    assert int(rejected) == (0 if provider == "sockets" else 20)
