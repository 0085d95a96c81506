"""Promise: a debug build of the native core ends the process if an invariant does not hold (tools/instrumented.sh)."""

import signal
import subprocess
import sys

import pytest

from aiofabric._core import ASSERTIONS

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not ASSERTIONS, reason="the native core is built without assertions"),
]

BROKEN = {
    "a slot that was never lent is given back": """
from aiofabric._core import Slot, SlotsCore
SlotsCore().release(Slot(None, 0))
""",
    "a slot is given back twice": """
from aiofabric._core import Slot, SlotsCore
slots = SlotsCore()
for number in range(20):
    slots._free.append(Slot(None, number))
slot = slots.acquire()
slots.release(slot), slots.release(slot)
""",
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_invariant_ends_the_process(source: str) -> None:
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, "Assertion" in ended.stderr) == (-signal.SIGABRT, True), ended.stderr
