"""The text of an object names its state and its place."""

import anyio
import pytest

import aiofabric
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.providers import over

pytestmark = pytest.mark.anyio
provider = over(["tcp"])


async def test_objects_of_a_connection_say_what_they_are(provider: str) -> None:
    texts: list[str] = []
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        assert repr(listener) == f"<Listener at {listener.address}>"

        async def accept() -> None:
            request = await listener.accept_request()
            texts.append(repr(request))
            async with await request.accept() as passive:
                texts.append(f"{request.address}")
                await passive.recv()

        tasks.start_soon(accept)
        active = await aiofabric.connect(listener.address, provider=provider, param=b"four")
        assert repr(active) == f"<MessageEndpoint connected with {listener.address}>"
        queue = source_of(active).queue
        assert repr(queue) == f"<CompletionQueue of {queue.domain!r} fd={queue.fileno()}>"
        events = handle_of(listener).events
        assert repr(events) == f"<EventQueue fd={events.fileno()}>"
        await active.send(b"")
        await active.aclose()
        assert repr(active) == f"<MessageEndpoint closed with {listener.address}>"
    assert texts == [f"<ConnectionRequest from {texts[1]} with 4 bytes of private data>", texts[1]]
    assert repr(listener) == "<Listener closed>"
    assert repr(events).endswith(" closed>")
