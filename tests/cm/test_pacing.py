"""Promise: a connection that stays within the machine is not paced, whatever the system's congestion control is."""

# Doubles: the congestion control of the machine cannot be chosen, and there is no other machine.

import socket
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

import aiofabric
from aiofabric.cm.workarounds import pacing
from aiofabric.cm.workarounds.provider_sockets import open_descriptors, tcp_socket
from tests.fixtures.providers import over

pytestmark = pytest.mark.anyio
provider = over(["tcp"])

DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_bytes().strip()


def congestion_control(port: int | None) -> list[bytes]:
    """The congestion control of the connected sockets with this local port."""
    found = []
    for descriptor in open_descriptors():
        sock = tcp_socket(descriptor)
        with suppress(OSError):
            if sock is not None and sock.getsockname()[1] == port and sock.getpeername():  # else it listens
                found.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0"))
    return found


async def both_ends(host: str, provider: str) -> list[list[bytes]]:
    found = []
    async with aiofabric.listen(host, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            async with await (await listener.accept_request()).accept() as passive:
                await passive.send(await passive.recv())
                await passive.recv()

        tasks.start_soon(accept)
        port = listener.address.port
        async with await aiofabric.connect("127.0.0.1", port, provider=provider) as active:
            await active.send(b"all the same")
            assert await active.recv() == b"all the same"
            assert active.local_address is not None
            found += [congestion_control(port), congestion_control(active.local_address.port)]
            await active.send(b"done")
    return found


@pytest.mark.skipif(DEFAULT == b"reno", reason="this kernel's default is what would be chosen instead of it")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_neither_end_is_paced(host: str, provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "PACING", (DEFAULT,))
    assert await both_ends(host, provider) == [[b"reno"], [b"reno"]]


async def test_what_does_not_pace_is_left_alone(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "PACING", (b"of another kernel",))
    assert await both_ends("127.0.0.1", provider) == [[DEFAULT], [DEFAULT]]


@pytest.mark.skipif(DEFAULT == b"reno", reason="this kernel's default is what would be chosen instead of it")
async def test_a_connection_that_leaves_the_machine_is_left_alone(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "PACING", (DEFAULT,))
    monkeypatch.setattr(pacing, "stays_paced", lambda *_: False)
    assert await both_ends("127.0.0.1", provider) == [[DEFAULT], [DEFAULT]]


@pytest.mark.parametrize(
    ("ours", "theirs", "stays"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.8.9.10", True),
        ("::1", "::1", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("fe80::1%eth0", "fe80::1%eth0", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
    ],
)
def test_what_stays_within_the_machine(ours: str, theirs: str, stays: bool) -> None:
    assert pacing.stays_paced(ours, theirs) is stays
