"""These tests need an RDMA device: `make test-rdma` runs them in a machine that has one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fixtures.providers import RDMA_HOST

collect_ignore_glob = [] if RDMA_HOST else ["test_*.py"]


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, timeout=30)


@pytest.fixture
def second_device() -> Iterator[tuple[str, str, str]]:
    """The address of a second device, its network interface and its name: a test may break it."""
    interface, device, address = "roce2", f"rxe{os.getpid()}", "10.78.0.1"
    _run(f"ip link add {interface} type dummy")
    _run(f"ip addr add {address}/24 dev {interface}")
    _run(f"ip link set {interface} up")
    _run(f"rdma link add {device} type rxe netdev {interface}")
    yield address, interface, device
    # It waits for the processes that have it open. A test that failed may have removed it.
    subprocess.run(["rdma", "link", "delete", device], check=False, timeout=30)
    _run(f"ip link delete {interface}")


class _End(NamedTuple):
    """One end of a link between two devices of this host."""

    interface: str
    address: str
    hardware: str
    table: int
    """Of routes to the other end."""


@pytest.fixture
def link() -> Iterator[tuple[str, str]]:
    """The addresses of two devices, which are the ends of the link between the interfaces link1 and link2.

    A device delivers packets to itself without its interface, so each end has a device. Linux delivers packets to any
    address of this host at once, so rules lead those between the ends over the link, before the table of own addresses.
    """
    one, other = [_End(f"link{n}", f"10.79.0.{n}", f"02:00:00:00:79:0{n}", 100 + n) for n in (1, 2)]
    with ExitStack() as undo:
        try:
            _run(f"ip link add {one.interface} type veth peer name {other.interface}")
            undo.callback(_run, f"ip link delete {one.interface}")
            _run(f"tc qdisc add dev {one.interface} root netem delay 1ms")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"a link that loses packets needs the modules veth and sch_netem: {error}")
        _run(f"tc qdisc delete dev {one.interface} root")

        def rule(text: str) -> None:
            _run(f"ip rule add {text}")
            undo.callback(_run, f"ip rule delete {text}")

        for end, far in ((one, other), (other, one)):
            Path(f"/proc/sys/net/ipv4/conf/{end.interface}/accept_local").write_text("1")
            _run(f"ip link set {end.interface} address {end.hardware} up")
            _run(f"ip addr add {end.address}/32 dev {end.interface}")
            _run(f"ip neigh add {far.address} lladdr {far.hardware} dev {end.interface} nud permanent")
            _run(f"ip route add {far.address} dev {end.interface} src {end.address} table {end.table}")
            rule(f"pref 1 iif {end.interface} lookup local")
            rule(f"pref 2 to {far.address} lookup {end.table}")
            _run(f"rdma link add rxe_{end.interface} type rxe netdev {end.interface}")
            undo.callback(_run, f"rdma link delete rxe_{end.interface}")
        rule("pref 100 lookup local")
        _run("ip rule delete pref 0")
        undo.callback(_run, "ip rule add pref 0 lookup local")
        yield one.address, other.address
