"""These tests need an RDMA device: `make test-rdma` runs them in a machine that has one."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.fixtures.providers import RDMA_HOST

collect_ignore_glob = [] if RDMA_HOST else ["test_*.py"]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=30)


@pytest.fixture
def second_device() -> Iterator[tuple[str, str]]:
    """The address and the network interface of a second device, which a test may break."""
    interface, device, address = "roce2", f"rxe{os.getpid()}", "10.78.0.1"
    _run("ip", "link", "add", interface, "type", "dummy")
    _run("ip", "addr", "add", f"{address}/24", "dev", interface)
    _run("ip", "link", "set", interface, "up")
    _run("rdma", "link", "add", device, "type", "rxe", "netdev", interface)
    yield address, interface
    _run("rdma", "link", "delete", device)  # waits for the processes that have it open
    _run("ip", "link", "delete", interface)
