"""The tests on every libfabric of this machine, as one run of pytest: ``python -m tests [pytest's arguments]``.

All of it, or ``--combinations=pairs`` as `make test` has it, or ``--combinations=triples`` as `make test-long` has it.

xdist starts the processes, two per libfabric, side by side, and fixtures/shares.py gives them their files. If one of
these processes crashes, its test is reported as failed, and the run ends. So code that may crash must run in a child
process of the test.
"""

import os
import signal
import sys

import pytest

from tests.fixtures.libraries import CHOICE, libraries

PROCESSES = 2  # processes for each libfabric: most tests wait more than they compute


def main() -> int:
    # A shell has what it starts in the background ignore Ctrl-C, and so do the children: theirs is to be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hundreds of tests start a Python, which would else compile what it imports each time: a third of its start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if "--combinations=triples" in sys.argv:
        # glibc overwrites freed memory, so a provider that reads it crashes at once, and not once in a thousand runs.
        # All tests take a fifth longer with it, so `make test` does without.
        os.environ.setdefault("MALLOC_PERTURB_", "165")
    processes = [
        f"--tx=popen//id={name}-{number + 1}" + (f"//env:{CHOICE}={path}" if path else "")
        for name, path in libraries().items()
        for number in range(PROCESSES)
    ]
    return pytest.main(
        ["-p", "tests.fixtures.shares", "--dist=each", "--max-worker-restart=0", *processes, *sys.argv[1:]]
    )


if __name__ == "__main__":
    sys.exit(main())
