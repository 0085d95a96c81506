"""The process that runs one contender.

    python -m benchmarks.worker MODULE LOOP OPTIONS server
    python -m benchmarks.worker MODULE LOOP OPTIONS client ADDRESS SERVER-PID

The server prints its address; the client reads lines "workload size width seconds" and answers each
with one line of JSON. The C programs of the roster speak the same way.
"""

import importlib
import json
import resource
import sys
from functools import partial
from types import ModuleType
from typing import Any

import anyio

from .connection import Connection
from .workloads import WORKLOADS


async def server(contender: ModuleType, options: dict[str, Any]) -> None:
    async with contender.listen(Connection.serve, **options) as address:
        print(json.dumps(address), flush=True)
        await anyio.sleep_forever()


async def client(contender: ModuleType, options: dict[str, Any], address: str, server_pid: str) -> None:
    connect = partial(contender.connect, json.loads(address), **options)
    for line in sys.stdin:  # blocks the loop: nothing is open between two workloads
        name, size, width, seconds = line.split()
        sample = await WORKLOADS[name](connect, int(server_pid), int(size), int(width), float(seconds))
        print(json.dumps(sample), flush=True)


def main(module: str, loop: str, options: str, side: str, *rest: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    contender = importlib.import_module(f".contenders.{module}", __package__)
    backend = "trio" if loop == "trio" else "asyncio"
    role = server if side == "server" else client
    run = partial(role, contender, json.loads(options), *rest)
    anyio.run(run, backend=backend, backend_options={"use_uvloop": True} if loop == "uvloop" else {})


if __name__ == "__main__":
    main(*sys.argv[1:])
