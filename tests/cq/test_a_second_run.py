"""Hazard: an endpoint is used in a second ``asyncio.run()``, where no loop reads its queue any more."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import EndpointType, WrongLoopError
from tests.fixtures.children import run_in_child
from tests.fixtures.peers import where
from tests.fixtures.providers import CARRIERS, over

provider = over(CARRIERS)

CALLS: dict[str, Callable[[Any], Awaitable[Any] | Any]] = {
    "send": lambda ep: ep.send(b"small"),
    "send large": lambda ep: ep.send(bytes(100_000)),
    "send_nowait": lambda ep: ep.send_nowait(b"small"),
    "recv": lambda ep: ep.recv(),
    "recv_nowait": lambda ep: ep.recv_nowait(),
    "recv_into": lambda ep: ep.recv_into(bytearray(10)),
    "shutdown": lambda ep: ep.shutdown(),
    "anext": lambda ep: anext(ep),
}


def run(function: Callable[..., Awaitable[Any]], backend: tuple[str, dict[str, Any]]) -> Any:
    return anyio.run(function, backend=backend[0], backend_options=backend[1])


def connected(provider: str, anyio_backend: tuple[str, dict[str, Any]]) -> None:
    opened: list[Any] = []

    async def first() -> None:
        listening = aiofabric.listen("127.0.0.1", 0, provider=provider)
        listener = await listening.__aenter__()
        opened.append(listener)

        async def accept() -> None:
            opened.append(await (await listener.accept_request()).accept())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            opened.append(await aiofabric.connect(listener.address, provider=provider))
        opened.append(listening)
        await opened[1].send(b"received")
        await opened[2].recv()
        await opened[2].send(b"unread")

    async def second() -> None:
        with anyio.fail_after(10):
            for endpoint in opened[1:3]:
                for name, call in CALLS.items():
                    with pytest.raises(WrongLoopError, match=r"has ended \(it was opened at .*\.py:\d+"):  # noqa: PT012
                        answer = call(endpoint)
                        if isinstance(answer, Awaitable):
                            await answer
                        pytest.fail(name)
            with pytest.raises(ClosedResourceError if opened[0].closed else WrongLoopError):
                await opened[0].accept_request()
            for each in opened[:3]:
                await each.aclose()

    run(first, anyio_backend)
    run(second, anyio_backend)


def connectionless(provider: str, anyio_backend: tuple[str, dict[str, Any]]) -> None:
    opened: list[Any] = []

    async def first() -> None:
        name = "tcp;ofi_rxm" if provider == "tcp" else provider
        opening = aiofabric.open_endpoint(EndpointType.RDM, where(name), provider=name)
        endpoint = await opening.__aenter__()
        opened.extend((endpoint, await endpoint.add_peer(endpoint.local_address), opening))

    async def second() -> None:
        endpoint, peer, _ = opened
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: endpoint.send(b"", to=peer),
            lambda: endpoint.send_tagged(b"", 1, to=peer),
            lambda: endpoint.recv(),
            lambda: endpoint.recv_tagged(1),
            lambda: endpoint.add_peer(endpoint.local_address),
        ]
        for call in calls:
            if endpoint.closed:  # the first loop closed the block that was left open
                break
            with pytest.raises(WrongLoopError):
                await call()
        endpoint.close()

    run(first, anyio_backend)
    run(second, anyio_backend)


@pytest.mark.parametrize("which", [connected, connectionless])
def test_every_call_says_so(
    which: Callable[..., None], provider: str, anyio_backend: tuple[str, dict[str, Any]]
) -> None:
    ended = run_in_child(f"""
        import warnings
        from {__name__} import {which.__name__}

        warnings.simplefilter("ignore", ResourceWarning)
        {which.__name__}({provider!r}, {anyio_backend!r})
    """)
    assert ended.status == 0, ended.err
