"""Hazard: the host of a peer vanishes and sends nothing more. With ``heartbeat=``, both sides notice it.

Two network namespaces stand for two hosts. A wrong link-layer address on both ends interrupts the network between them.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.fixtures.providers import require

pytestmark = [pytest.mark.alone, pytest.mark.long, pytest.mark.timeout(60)]

HEARTBEAT = 3.0
HOSTS = {"client": "192.0.2.1", "server": "192.0.2.2"}  # of the range for documentation
PROGRAM = """
import sys, time
import anyio, aiofabric

role, provider, heartbeat = sys.argv[1:]
options = {"heartbeat": float(heartbeat)} if role == "client" else {}  # the server adopts the client's

async def main():
    ends = []
    if role == "server":
        async with aiofabric.listen("192.0.2.2", 7471, provider=provider) as listener:
            print("listening", flush=True)
            while len(ends) < 2:
                ends.append(await (await listener.accept_request()).accept(**options))
    else:
        while len(ends) < 2:
            ends.append(await aiofabric.connect("192.0.2.2", 7471, provider=provider, **options))
    for end in ends:
        await end.send(b"hello")
        await end.recv()
    print("connected", flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)
    start = time.monotonic()

    async def lose(end):
        try:
            await end.recv()
        except aiofabric.FabricConnectionResetError:
            print("lost", time.monotonic() - start, flush=True)

    await ends[1].send(b"nobody acknowledges this")
    async with anyio.create_task_group() as tasks:
        for end in ends:
            tasks.start_soon(lose, end)
    for end in ends:
        end.abort()

anyio.run(main)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Names of two network namespaces with a link between them."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` (Debian's iproute2)")
    names = {role: f"aiofabric-{role}-{os.getpid()}" for role in HOSTS}
    with ExitStack() as stack:
        for name in names.values():
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"this user may not make network namespaces: {error.stderr.strip()}")
            stack.callback(ip, "netns", "delete", name)
        ip("link", "add", "link0", "netns", names["client"], "type", "veth", "peer", "link0", "netns", names["server"])
        for role, name in names.items():
            ip("-n", name, "address", "add", f"{HOSTS[role]}/24", "dev", "link0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "link0", "up")
        yield names


@pytest.mark.parametrize("provider", ["tcp", "tcp;ofi_rxm"])
def test_both_sides_notice_a_vanished_host(hosts: dict[str, str], provider: str) -> None:
    require(provider)
    with ExitStack() as stack:
        sides = {}
        for role in ("server", "client"):
            command = ["ip", "netns", "exec", hosts[role], sys.executable, "-c", textwrap.dedent(PROGRAM)]
            sides[role] = stack.enter_context(
                subprocess.Popen(
                    [*command, role, provider, str(HEARTBEAT)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(sides[role].kill)
            if role == "server":
                assert line_of(sides[role]) == ["listening"]
        for side in sides.values():
            assert line_of(side) == ["connected"]
        for role, other in (("client", "server"), ("server", "client")):
            nowhere = ["neigh", "replace", HOSTS[other], "lladdr", "02:00:00:00:00:09", "nud", "permanent"]
            ip("-n", hosts[role], *nowhere, "dev", "link0")
        for side in sides.values():
            assert side.stdin is not None
            side.stdin.write("\n")
            side.stdin.flush()
        for side in sides.values():
            for _ in range(2):
                word, seconds = line_of(side)
                assert word == "lost"
                assert 0.5 * HEARTBEAT < float(seconds) <= 1.5 * HEARTBEAT


def line_of(side: "subprocess.Popen[str]") -> list[str]:
    assert side.stdout is not None
    return side.stdout.readline().split()
