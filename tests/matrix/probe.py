"""One cell of the matrix: ``python -m tests.matrix.probe PROVIDER TYPE LOOP CHECK`` answers in one line of JSON."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial

import anyio

from tests.fixtures.libraries import CHOICE
from tests.fixtures.providers import RDMA_HOST
from tests.matrix.loops import LOOPS

BROKEN = "the probe failed"  # never caused by a provider: such a cell stops the page
NO_ANSWER, HANGS = "no answer", "hangs"
LIMIT = 80.0 if RDMA_HOST else 20.0  # seconds for a child, import and all
_PLACES = re.compile(r"\bfi_(sockaddr\w*|shm|addr_\w+|sm2)://\S*|\d+\.\d+\.\d+\.\d+(:\d+)?")


def ask(library: str | None, provider: str, kind: str, loop: str, check: str) -> str:
    """The cell's text; a crash and a hang are answers too."""
    environment = os.environ | ({CHOICE: library} if library else {})
    command = [sys.executable, "-m", "tests.matrix.probe", provider, kind, loop, check]
    try:
        ended = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return HANGS
    if ended.returncode < 0:
        return f"ends the process ({signal.Signals(-ended.returncode).name})"
    try:
        answer: str = json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return f"{BROKEN}: {ended.stderr[-600:]}"
    return answer


def words(error: BaseException) -> str:
    """The text of an error, without the parts that differ from run to run."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    from aiofabric import FabricError, NoProviderError, NotSupportedError
    from aiofabric.errors import error_name
    from tests.matrix.checks import TookItsPlace

    if isinstance(error, TookItsPlace):
        return f"not offered: {error} takes its place"
    if isinstance(error, NoProviderError):
        return f"not offered: {error.call}: {error.strerror} [{error_name(error.errno or 0)}]"
    if isinstance(error, NotSupportedError) and error.detail:
        return f"refused: {_PLACES.sub('…', error.detail)}"
    if isinstance(error, FabricError):
        return f"refused: {error.call}: {error.strerror} [{error_name(error.errno or 0)}]"
    if isinstance(error, TimeoutError):
        return NO_ANSWER
    return f"{type(error).__name__}: {_PLACES.sub('…', str(error))}".rstrip(": ")


def _answer(provider: str, kind: str, loop: str, check: str) -> str:
    from aiofabric import EndpointType
    from tests.matrix.checks import CHECKS, Offer

    backend, options = LOOPS[loop]
    offer = Offer(provider, EndpointType[kind], (backend, options))
    try:
        return anyio.run(partial(CHECKS[check][0], offer), backend=backend, backend_options=options)
    except Exception as error:
        return words(error)


if __name__ == "__main__":
    print(json.dumps(_answer(*sys.argv[1:])), flush=True)
