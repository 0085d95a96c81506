"""Random operations on one pair of endpoints have the results of a model. They run in a child, which may crash or hang.

AIOFABRIC_STATE_SECONDS makes each of them continue for that time, with new examples.
"""

import os
import subprocess
import sys

import pytest

from aiofabric import Caps
from tests.fixtures.peers import skip_without

SECONDS = os.environ.get("AIOFABRIC_STATE_SECONDS", "")
LIMIT = 120 + float(SECONDS or 0)

pytestmark = [pytest.mark.long, pytest.mark.timeout(LIMIT + 10)]


@pytest.mark.parametrize(
    ("kind", "provider"),
    [
        ("connected", "tcp"),
        ("direct", "tcp"),
        ("connected", "shm"),
        ("direct", "shm"),
        ("connectionless", "shm"),
        ("connectionless", "tcp;ofi_rxm"),
        ("connectionless", "tcp"),
    ],
)
def test_random_operations(kind: str, provider: str) -> None:
    if kind == "connectionless":
        skip_without(provider, Caps.MSG | Caps.TAGGED)
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.state", kind, provider, *filter(None, [SECONDS])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"{kind} over {provider}" in ended.stdout
