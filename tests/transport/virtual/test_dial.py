"""A dial that is cancelled closes its socket at once. Hosts and services are resolved as getaddrinfo does."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from aiofabric.transport.virtual.oob_socket import dial, resolve
from tests.fixtures.waiting import until

pytestmark = pytest.mark.anyio

_SYN_SENT = "02"  # net/tcp_states.h


@pytest.fixture
def port() -> Iterator[int]:
    """A port of loopback where a connection is neither accepted nor refused: the queue of the listener is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        number: int = listener.getsockname()[1]
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", number))
        yield number


def pending(port: int) -> int:
    """Connections to the port that the listener has not answered."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == _SYN_SENT for row in rows)


async def test_a_cancelled_dial_closes_its_socket_without_a_warning(port: int) -> None:
    before = pending(port)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dial, "127.0.0.1", port)
            await until(lambda: pending(port) > before)
            tasks.cancel_scope.cancel()
    assert pending(port) == before


@pytest.mark.parametrize(("passive", "host"), [(False, "127.0.0.1"), (True, "0.0.0.0")])
async def test_without_a_host_it_is_this_machine_or_each_of_its_addresses(passive: bool, host: str) -> None:
    found = await (resolve(None, 80, passive=True) if passive else resolve(None, 80))
    assert (socket.AF_INET, (host, 80)) in found


async def test_without_a_service_the_port_is_free() -> None:
    assert await resolve("127.0.0.1", None) == [(socket.AF_INET, ("127.0.0.1", 0))]
