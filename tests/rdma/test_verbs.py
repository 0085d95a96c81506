"""Promises that only a device can break: the choice of the device, private data, memory, queues, fork, a lost link."""

import errno
import os
import subprocess
import time
from pathlib import Path

import anyio
import numpy as np
import pytest

import aiofabric
from aiofabric import Access, FabricConnectionEndedError, FabricConnectionResetError, MessageEndpoint, OpFlags
from tests.fixtures.children import Parent
from tests.fixtures.providers import HOST, connected_pair

pytestmark = pytest.mark.anyio

PROVIDER = "verbs"
HEARTBEAT = 3.0


async def connect_to(listener: aiofabric.Listener, **options: object) -> tuple[MessageEndpoint, MessageEndpoint]:
    accepted: list[MessageEndpoint] = []

    async def accept() -> None:
        accepted.append(await (await listener.accept_request()).accept())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(accept)
        active = await aiofabric.connect(listener.address, **options)  # type: ignore[arg-type]
    return active, accepted[0]


async def test_verbs_is_chosen_for_the_address_of_a_device() -> None:
    async with aiofabric.listen(HOST, 0) as listener:
        active, passive = await connect_to(listener)
        async with active, passive:
            assert active.info.fabric_attr.prov_name == passive.info.fabric_attr.prov_name == "verbs"


@pytest.mark.parametrize("named", [PROVIDER, None])
async def test_a_port_that_a_listener_of_the_device_uses_is_refused(named: str | None) -> None:
    async with aiofabric.listen(HOST, 0, provider=PROVIDER) as listener:
        address = listener.address
        for place in ((address,), (HOST, address.port), (str(address),), (HOST, str(address.port))):
            with pytest.raises(OSError, match="Address already in use") as caught:
                async with aiofabric.listen(*place, provider=named):
                    pass
            assert caught.value.errno == errno.EADDRINUSE
    async with aiofabric.listen(address, provider=named) as again:
        assert again.address == address
        assert again.info.fabric_attr.prov_name == "verbs"


async def test_a_reserved_port_of_the_device_is_refused_to_others_and_can_be_listened_at() -> None:
    async with aiofabric.reserve(HOST, 0, provider=PROVIDER) as reservation:
        address = reservation.address
        with pytest.raises(OSError, match="Address already in use"):
            async with aiofabric.listen(address):
                pass
        async with aiofabric.listen(reservation=reservation) as listener:
            assert listener.address == address
            active, passive = await connect_to(listener)
            async with active, passive:
                assert active.info.fabric_attr.prov_name == "verbs"


@pytest.mark.parametrize("size", [0, 1, 27, 28, 41])
async def test_private_data_leaves_room_for_an_orderly_end(size: int) -> None:
    param = os.urandom(size)
    async with aiofabric.listen(HOST, 0, provider=PROVIDER) as listener:
        answers: list[MessageEndpoint] = []

        async def accept() -> None:
            request = await listener.accept_request()
            assert request.param == param
            answers.append(await request.accept(param=param))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            active = await aiofabric.connect(listener.address, provider=PROVIDER, param=param)
        async with answers[0] as passive:
            assert active.param == param
            await active.aclose()
            with pytest.raises(FabricConnectionEndedError):
                await passive.recv()


@pytest.mark.parametrize("size", [42, 55])
async def test_the_longest_private_data_arrives(size: int) -> None:
    async with aiofabric.listen(HOST, 0, provider=PROVIDER) as listener:

        async def accept() -> None:
            request = await listener.accept_request()
            assert request.param == bytes(size)
            async with await request.accept(param=bytes(size)) as passive:
                await passive.send(b"accepted")
                await passive.recv()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            async with await aiofabric.connect(listener.address, provider=PROVIDER, param=bytes(size)) as active:
                assert active.param == bytes(size)
                assert await active.recv() == b"accepted"
                await active.send(b"bye")


async def test_private_data_that_is_too_long_is_refused_with_the_limit() -> None:
    async with aiofabric.listen(HOST, 0, provider=PROVIDER) as listener:
        with pytest.raises(ValueError, match="56 bytes; this provider carries at most 55"):
            await aiofabric.connect(listener.address, provider=PROVIDER, param=bytes(56))


@pytest.mark.parametrize("size", [100, 5000, 1 << 20])
async def test_memory_that_may_only_be_read_is_sent(tmp_path: Path, size: int) -> None:
    (tmp_path / "data").write_bytes(os.urandom(size))
    data = np.memmap(tmp_path / "data", mode="r")
    content = data.tobytes()
    async with connected_pair(PROVIDER, recv_size=2 * size) as (one, other):
        for flags in (OpFlags(0), OpFlags.TRANSMIT_COMPLETE):
            await one.send(data, flags=flags)
            assert await other.recv() == content
            await one.send([b"head", data], flags=flags)
            assert await other.recv() == b"head" + content
            target = bytearray(size)
            with other.domain.register(target, access=Access.REMOTE_WRITE) as region:
                await one.write(data, region.remote, flags=flags)
                await one.send(b"written")
                await other.recv()
            assert target == content


async def test_a_process_that_forks_goes_on(child) -> None:  # type: ignore[no-untyped-def]
    assert await child(forks).aresult(60.0) == 20


async def forks(parent: Parent) -> int:
    """Each message is followed by a fork: the child process must not take the memory that the device reads."""
    arrived = 0
    async with connected_pair(PROVIDER, recv_size=8192) as (one, other):
        for number in range(20):
            data = bytes([number]) * 8000
            with anyio.fail_after(10):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(one.send, data)
                    if (pid := os.fork()) == 0:
                        os._exit(0)
                    assert await other.recv() == data
            os.waitpid(pid, 0)  # noqa: ASYNC222  it ends at once
            arrived += 1
    return arrived


async def loses_its_link(parent: Parent, host: str, interface: str, _: str) -> list[tuple[str, float]]:
    """Both ends of a connection, and one over another device. Returns how each end of the first one ended, and when."""
    ends: list[tuple[str, float]] = []
    async with aiofabric.listen(host, 0, provider=PROVIDER) as listener, connected_pair(PROVIDER) as (one, other):
        active, passive = await connect_to(listener, provider=PROVIDER, heartbeat=HEARTBEAT)
        async with active, passive:
            assert active.info.domain_attr.name != one.info.domain_attr.name
            with anyio.move_on_after(3 * HEARTBEAT):
                await passive.recv()
                pytest.fail("a message that no peer has sent")
            await active.send(b"still there")
            assert await passive.recv() == b"still there"
            subprocess.run(["ip", "link", "set", interface, "down"], check=True)  # noqa: ASYNC221
            begin = time.monotonic()

            async def wait(endpoint: MessageEndpoint) -> None:
                try:
                    await endpoint.recv()
                except FabricConnectionResetError as error:
                    ends.append((type(error).__name__, time.monotonic() - begin))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, active)
                tasks.start_soon(wait, passive)
            await one.send(b"alive")
            assert await other.recv() == b"alive"
    return ends


async def test_a_heartbeat_notices_a_device_without_a_link(child, second_device: tuple[str, str, str]) -> None:  # type: ignore[no-untyped-def]
    ends = await child(loses_its_link, *second_device).aresult(90.0)
    assert [name for name, _ in ends] == ["FabricConnectionResetError"] * 2
    assert all(seconds < 1.5 * HEARTBEAT + 2.0 for _, seconds in ends), ends
