"""A device loses its link and gets it back, or is removed: all that is under way ends, and a later connection works.

Soft RoCE itself does not recover everything: a device that had to send while its link was down makes no new connections
(Linux 6.1), and its removal waits for the processes that had it open. So the test adds a new one when they
have ended.

Below verbs;ofi_rxm, a TCP socket ends virtual connections, and it outlives the device. So there a program learns of the
loss when it sends, reads or writes, and its peer when the program then closes. A wait for a message, or for a request,
does not end.
"""

import subprocess
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

import anyio
import pytest

import aiofabric
from aiofabric import Access, FabricConnectionResetError, FabricError, MessageEndpoint, RemoteRegion
from tests.fixtures.children import Parent
from tests.fixtures.providers import CARRIERS
from tests.rdma.test_verbs import HEARTBEAT, connect_to

pytestmark = [pytest.mark.anyio, pytest.mark.long]

SIZE = 1 << 20  # bytes of a read and of a write
ENOUGH = 60.0  # seconds for an end: for any machine, not the promise


class Device(NamedTuple):
    """A device that the test may break."""

    address: str
    interface: str
    name: str

    def set_link(self, state: str) -> None:
        subprocess.run(["ip", "link", "set", self.interface, state], check=True, timeout=30)

    def remove(self) -> subprocess.Popen[bytes]:
        """Begin to remove it: the removal waits for the processes that have it open."""
        return subprocess.Popen(["rdma", "link", "delete", self.name])

    def add(self) -> None:
        subprocess.run(
            ["rdma", "link", "add", self.name, "type", "rxe", "netdev", self.interface], check=True, timeout=30
        )


async def _recv(endpoint: MessageEndpoint, _: RemoteRegion) -> None:
    await endpoint.recv()


async def _send(endpoint: MessageEndpoint, _: RemoteRegion) -> None:
    await endpoint.send(bytes(1000))


async def _read(endpoint: MessageEndpoint, remote: RemoteRegion) -> None:
    await endpoint.read(remote)


async def _write(endpoint: MessageEndpoint, remote: RemoteRegion) -> None:
    await endpoint.write(bytes(SIZE), remote)


WORKS = {"recv": _recv, "send": _send, "read": _read, "write": _write}
CONNECTED = {*WORKS, *(f"peer of {name}" for name in WORKS)}
IDLE = {"recv", "peer of recv", "accept_request"}


async def exchange(listener: aiofabric.Listener, provider: str) -> None:
    """A new connection carries a message."""
    with anyio.fail_after(ENOUGH):
        one, other = await connect_to(listener, provider=provider)
        async with one, other:
            await one.send(b"works")
            assert await other.recv() == b"works"


async def stays(parent: Parent, provider: str, *place: str) -> bytes:
    """A connection that sends nothing meanwhile, and the listener, outlive the loss of the link."""
    device = Device(*place)
    async with aiofabric.listen(device.address, 0, provider=provider) as listener:
        one, other = await connect_to(listener, provider=provider)
        async with one, other:
            device.set_link("down")
            if provider == "verbs":  # with rxm, the two connections would share one of the device, which must not send
                with pytest.raises(FabricError):
                    await aiofabric.connect(listener.address, provider=provider)
            device.set_link("up")
            await one.send(b"still there")
            message = bytes(await other.recv())
            await exchange(listener, provider)
    return message


@pytest.mark.parametrize("provider", CARRIERS)
async def test_a_link_that_comes_back_ends_no_idle_connection(  # type: ignore[no-untyped-def]
    child, second_device: tuple[str, str, str], provider: str
) -> None:
    assert await child(stays, provider, *second_device).aresult(ENOUGH) == b"still there"


def expected_ends(provider: str, how: str) -> set[str]:
    if provider != "verbs":
        return CONNECTED - IDLE
    return {*CONNECTED, "accept_request"} if how == "removed" else CONNECTED  # a listener need not know of the link


async def loses(parent: Parent, provider: str, how: str, *place: str) -> dict[str, tuple[type, str]]:
    """Connections at work, and a listener that waits. Returns how each call ended."""
    device = Device(*place)
    ends: dict[str, tuple[type, str]] = {}
    expected = expected_ends(provider, how)
    going: set[str] = set()
    under_way, all_ended = anyio.Event(), anyio.Event()

    async def until_it_ends(
        name: str, call: Callable[[], Awaitable[Any]], endpoint: MessageEndpoint | None = None
    ) -> None:
        with anyio.fail_after(ENOUGH):
            try:
                while True:
                    await call()
                    going.add(name)
                    if going >= {"send", "read", "write"}:
                        under_way.set()
            except OSError as error:
                ends[name] = type(error), str(error)
                if endpoint is not None and provider != "verbs":
                    endpoint.abort()
        if ends.keys() >= expected:
            all_ended.set()

    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(aiofabric.listen(device.address, 0, provider=provider))
        memory = bytearray(SIZE)
        async with anyio.create_task_group() as tasks:
            for name, work in WORKS.items():
                one, other = await connect_to(listener, provider=provider, heartbeat=HEARTBEAT)
                stack.callback(one.abort)
                stack.callback(other.abort)
                region = other.domain.register(memory, access=Access.REMOTE_READ | Access.REMOTE_WRITE)
                stack.callback(region.close)
                tasks.start_soon(until_it_ends, name, partial(work, one, region.remote), one)
                tasks.start_soon(until_it_ends, f"peer of {name}", other.recv, other)
            tasks.start_soon(until_it_ends, "accept_request", listener.accept_request)
            with anyio.fail_after(ENOUGH):
                await under_way.wait()
            parent.tell("under way")
            with anyio.fail_after(ENOUGH):
                await all_ended.wait()
            tasks.cancel_scope.cancel()
    return ends


async def works(parent: Parent, provider: str, host: str) -> None:
    """A new listener and a new connection work."""
    async with aiofabric.listen(host, 0, provider=provider) as listener:
        await exchange(listener, provider)


@pytest.mark.parametrize("how", ["down", "removed"])
@pytest.mark.parametrize("provider", CARRIERS)
async def test_all_that_is_under_way_ends_with_the_device(  # type: ignore[no-untyped-def]
    child, second_device: tuple[str, str, str], provider: str, how: str
) -> None:
    device = Device(*second_device)
    loser = child(loses, provider, how, *device)
    assert await loser.areceive() == "under way"
    removal = None
    if how == "down":
        device.set_link("down")
    else:
        removal = device.remove()
    ends = await loser.aresult(2 * ENOUGH)
    loser.close()
    if removal is None:
        device.set_link("up")
        removal = device.remove()
    assert removal.wait(ENOUGH) == 0
    device.add()
    await child(works, provider, device.address).aresult()
    if provider != "verbs":
        assert {name: end for name, end in ends.items() if not issubclass(end[0], FabricError)} == {}
        assert all(ends[f"peer of {name}"][0] is FabricConnectionResetError for name in ("send", "read", "write"))
        return
    assert {name: ends[name] for name in CONNECTED if ends[name][0] is not FabricConnectionResetError} == {}
    if how == "removed":  # the end that learns it first closes, and its peer may learn that first
        said = {name for name, (_, text) in ends.items() if "The device was removed" in text}
        assert "accept_request" in said
        assert [name for name in WORKS if not said & {name, f"peer of {name}"}] == []
