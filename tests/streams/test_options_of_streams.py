"""Promise: streams and transports take the options of connections, except those of their own receives."""

from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import streams
from aiofabric.settings import EndpointSettings

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"
WAYS: list[tuple[Any, Any]] = [
    (streams.listen_stream, streams.connect_stream),
    (streams.listen_messages, streams.connect_messages),
]


@pytest.mark.parametrize(("listen", "connect"), WAYS, ids=["bytes", "messages"])
async def test_options_reach_both_endpoints(listen: Any, connect: Any) -> None:
    seen: list[str] = []

    def prepare(side: str) -> Any:
        def note(_: EndpointSettings) -> None:
            seen.append(side)

        return note

    options: dict[str, Any] = {"provider": "tcp", "interface": "lo", "heartbeat": 5.0, "close_timeout": 3.0}
    async with (
        listen(HERE, 0, **options, prepare=prepare("listen")) as listener,
        anyio.create_task_group() as tasks,
    ):

        async def accept() -> None:
            async with await listener.accept():
                pass

        tasks.start_soon(accept)
        async with await connect(HERE, listener.address.port, **options, prepare=prepare("connect")):
            pass
    assert sorted(seen) == ["connect", "listen"]


@pytest.mark.parametrize(("listen", "connect"), WAYS, ids=["bytes", "messages"])
async def test_what_a_stream_chooses_itself_is_refused(listen: Any, connect: Any) -> None:
    for options, words in (
        ({"recv_size": 100}, r"\(\) chooses recv_size itself; its options are cancel_grace, .*heartbeat"),
        ({"heartbeet": 1.0}, "Did you mean heartbeat?"),
        ({"heartbeat": "often"}, "heartbeat"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"{connect.__name__}.*{words}"):
            await connect(HERE, 1, **options)
        with pytest.raises((TypeError, ValueError), match=f"{listen.__name__}.*{words}"):
            await listen(HERE, 0, **options).__aenter__()
    with pytest.raises(aiofabric.NoProviderError, match="nowhere"):
        await connect(HERE, 1, provider="tcp", interface="nowhere")
