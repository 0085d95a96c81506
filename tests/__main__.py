"""The whole suite on every libfabric at hand, as one pytest run: ``python -m tests [pytest's arguments]``.

xdist's ``--dist each`` runs every test in every environment it is given: here two processes per libfabric, side by
side, which share the files (fixtures/shares.py). A crash in one of them is a failed test that is named, and ends the
run: what may crash belongs in a child process of the test.
"""

import signal
import sys

import pytest

from tests.fixtures.libraries import SHARE, SHARES, libraries


def main() -> int:
    # A shell has what it starts in the background ignore Ctrl-C, and so do the children: theirs is to be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    environments = [
        f"--tx=popen//id={name}-{share}//env:{SHARE}={share}" + (f"//env:AIOFABRIC_LIBFABRIC={path}" if path else "")
        for name, path in libraries().items()
        for share in SHARES
    ]
    return pytest.main(["--dist=each", "--max-worker-restart=0", *environments, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
