"""The descriptor of 1.17's event queue stays readable after an event until fi_trywait is called.

A listener has no completion queue whose fi_trywait would cover its event queue; it once spent a core on that.
"""

from select import select

import anyio
import pytest

import aiofabric
from aiofabric.cm.passive import PassiveHandle
from tests.fixtures.internals import handle_of


@pytest.mark.anyio
async def test_listener_sleeps_again_after_a_connection(provider: str) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            request = await listener.accept_request()
            async with await request.accept() as passive:
                await passive.send(b"hello")
                with pytest.raises(aiofabric.FabricConnectionError):
                    await passive.recv()

        tasks.start_soon(accept)
        async with await aiofabric.connect(listener.address, provider=provider) as active:
            await active.recv()
            assert isinstance(handle_of(listener), PassiveHandle)
            descriptor = handle_of(listener).events.fileno()
            assert descriptor is not None
            with anyio.fail_after(5):
                while select([descriptor], [], [], 0)[0]:
                    await anyio.lowlevel.checkpoint()
