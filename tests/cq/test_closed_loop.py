"""A loop is closed while tasks wait. The objects can be closed afterwards, and wake no task: a closed loop refuses
`call_soon`.
"""

import asyncio
import gc
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import anyio
import pytest

import aiofabric
from aiofabric import EndpointType, Listener, MessageEndpoint, RdmEndpoint
from tests.fixtures.children import run_in_child
from tests.fixtures.loops import pytest_asyncio_loop_factories

FACTORIES = pytest_asyncio_loop_factories()


class Waiting(NamedTuple):
    """Connected endpoints, and the listener of the passive one."""

    active: MessageEndpoint
    passive: MessageEndpoint
    listener: Listener
    provider: str


async def send_without_end(on: Waiting) -> None:
    while True:
        await on.active.send(bytes(60_000))


CALLS: dict[str, Callable[[Waiting], Awaitable[Any]]] = {
    "accept_request": lambda on: on.listener.accept_request(),
    "connect": lambda on: aiofabric.connect(on.listener.address, provider=on.provider),
    "connect_raw": lambda on: aiofabric.connect(on.listener.fabric_address, provider=on.provider, raw=True),
    "recv": lambda on: on.active.recv(),
    "send": send_without_end,
    "remote_write": lambda on: on.active.remote_write(),
}


def report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """asyncio itself reports each task that was pending."""
    if context["message"] != "Task was destroyed but it is pending!":
        print(context, file=sys.stderr)


def close_the_loop(provider: str, call: str, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Runs in a child: what a closed loop leaves behind, such as its readers, ends with the process."""
    tasks: list[Any] = []

    async def main() -> Waiting:
        options: Any = {"recv_count": 4} | ({"remote_writes": 4} if call == "remote_write" else {})
        listening = aiofabric.listen("127.0.0.1", 0, provider=provider, **options)
        listener = await listening.__aenter__()
        connecting = asyncio.ensure_future(aiofabric.connect(listener.address, provider=provider, **options))
        passive = await (await listener.accept_request()).accept()
        on = Waiting(await connecting, passive, listener, provider)
        tasks.extend([listening, *(asyncio.ensure_future(CALLS[call](on)) for _ in range(2))])
        done, _ = await asyncio.wait(tasks[1:], timeout=0.2)
        assert not done
        return on

    loop = factory()
    loop.set_exception_handler(report)
    on = loop.run_until_complete(main())
    loop.close()
    for each in (on.active, on.listener, on.passive):
        each.close()
        assert each.closed
    tasks.clear()
    gc.collect()
    print(call)


def remove_a_peer(name: str) -> None:
    """Runs in a child. A task of the closed loop waits for a message of the peer."""
    left: list[Any] = []

    async def main() -> RdmEndpoint:
        opening = aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider="tcp;ofi_rxm")
        endpoint: RdmEndpoint = await opening.__aenter__()
        peer = await endpoint.add_peer(endpoint.local_address)
        left.extend([opening, peer, asyncio.ensure_future(endpoint.recv_tagged(1, source=peer, max_bytes=10))])
        done, _ = await asyncio.wait(left[2:], timeout=0.1)
        assert not done
        return endpoint

    loop = FACTORIES[name]()
    loop.set_exception_handler(report)
    endpoint = loop.run_until_complete(main())
    loop.close()
    endpoint.vector.remove(left[1])
    assert not len(endpoint.vector)
    endpoint.close()
    print("removed")


@pytest.mark.parametrize("name", FACTORIES)
def test_a_peer_is_removed_while_a_task_of_a_closed_loop_waits_for_its_message(name: str) -> None:
    code = "import sys; from tests.cq.test_closed_loop import *; remove_a_peer(sys.argv[1])"
    ended = run_in_child(code, name)
    assert (ended.status, ended.out, ended.err) == (0, "removed\n", "")


def end_the_run(provider: str, name: str) -> None:
    """Runs in a child. A client that says nothing and a heartbeat have timers."""
    left: list[Any] = []

    async def main() -> None:
        listening = aiofabric.listen("127.0.0.1", 0, provider=provider)
        listener = await listening.__aenter__()
        silent = socket.create_connection((str(listener.address.host), listener.address.port))
        async with anyio.create_task_group() as tasks:

            async def accept() -> None:
                left.append(await (await listener.accept_request()).accept(heartbeat=5))

            tasks.start_soon(accept)
            left.append(await aiofabric.connect(listener.address, provider=provider, heartbeat=5))
        left.extend([listener, listening, silent])

    backend = "trio" if name == "trio" else "asyncio"
    anyio.run(main, backend=backend, backend_options={"use_uvloop": True} if name == "uvloop" else {})
    for each in left[:3]:
        each.close()
        assert each.closed
    left[-1].close()
    print("closed")


@pytest.mark.parametrize("name", [*FACTORIES, "trio"])
@pytest.mark.parametrize("provider", ["tcp", "shm"])
def test_objects_that_outlive_their_run_are_closed_without_an_error(provider: str, name: str) -> None:
    code = "import sys; from tests.cq.test_closed_loop import *; end_the_run(*sys.argv[1:])"
    ended = run_in_child(code, provider, name)
    assert (ended.status, ended.out, ended.err) == (0, "closed\n", "")


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("provider", ["tcp", "shm"])
def test_objects_of_a_closed_loop_are_closed_without_an_error(provider: str, name: str) -> None:
    code = """
        import sys
        from tests.cq.test_closed_loop import *
        for call in CALLS:
            close_the_loop(sys.argv[1], call, FACTORIES[sys.argv[2]])
    """
    ended = run_in_child(code, provider, name)
    assert (ended.status, ended.out.split(), ended.err) == (0, list(CALLS), "")
