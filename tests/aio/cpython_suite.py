"""Run CPython's own asyncio tests with our transports, over a channel of kernel sockets, in place of the loop's.

``python cpython_suite.py stock|ours MODULE`` prints one JSON object: how many of our transports were made and
what became of each test. It has a process of its own: the suite changes loop policies and starts threads.
"""

# Privates: CPython's own tests are run with other transports; only asyncio's private classes can be replaced.

from __future__ import annotations

import asyncio.selector_events
import asyncio.trsock
import faulthandler
import importlib
import json
import sys
import unittest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket


HANGS = 150  # seconds after which a run is ended and prints its position; the longest takes 10
made = 0


class AttachableServer:
    """CPython's Server as our transport sees a server; before 3.13 its methods take no transport."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._arguments = sys.version_info >= (3, 13)

    def _attach(self, transport: object) -> None:
        self._server._attach(*[transport] * self._arguments)

    def _detach(self, transport: object) -> None:
        self._server._detach(*[transport] * self._arguments)


def make_transport(
    loop: Any,
    sock: socket.socket,
    protocol: Any,
    waiter: Any = None,
    extra: Any = None,
    server: Any = None,
    **_: Any,
) -> Any:
    """The signature of asyncio's own socket transport."""
    from aiofabric.aio.transport import FabricTransport
    from tests.socket_channel import SocketChannel

    global made
    made += 1
    channel = SocketChannel(loop, sock)
    about = {
        "socket": asyncio.trsock.TransportSocket(sock),
        "sockname": channel.local_address,
        "peername": channel.peer_address,
        **(extra or {}),
    }
    attachable: Any = None if server is None else AttachableServer(server)
    return FabricTransport(loop, channel, protocol, waiter, extra=about, server=attachable)


class Outcomes(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.outcomes[test.id()] = "passed"

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.outcomes[test.id()] = f"skipped: {reason}"

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.outcomes[test.id()] = self._exc_info_to_string(err, test)  # type: ignore[attr-defined]

    addFailure = addError

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.addError(test, err)


def main(transports: str, module: str) -> None:
    faulthandler.dump_traceback_later(HANGS, exit=True)
    if transports == "ours":
        asyncio.selector_events._SelectorSocketTransport = make_transport  # type: ignore[attr-defined]
    result = Outcomes()
    suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
    suite.run(result)
    print(json.dumps({"transports": made, "outcomes": result.outcomes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
