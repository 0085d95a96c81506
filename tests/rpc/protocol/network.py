"""A client's and a server's connection, and between them a network that a test controls."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aiofabric.rpc.protocol.client import ClientConnection
from aiofabric.rpc.protocol.client_call import ClientCall
from aiofabric.rpc.protocol.connection import Limits
from aiofabric.rpc.protocol.server import ServerConnection
from aiofabric.rpc.protocol.server_call import ServerCall

if TYPE_CHECKING:
    from aiofabric.rpc.protocol.flow import Budget
    from aiofabric.rpc.protocol.metadata import Metadata

__all__ = ["AcceptedCall", "MadeCall", "Network"]


class MadeCall(ClientCall):
    """A client's call that records its events."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.events: list[str] = []

    def headers_received(self) -> None:
        self.events.append("headers")

    def message_received(self, message: bytes) -> None:
        self.got.append(message)
        self.events.append("message")

    def writable(self) -> None:
        self.events.append("writable")

    def ended(self) -> None:
        self.events.append("ended")


class AcceptedCall(ServerCall):
    """A server's call that records its events."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.events: list[str] = []

    def started(self, message: bytes | None) -> None:
        self.events.append("started")
        if message is not None:
            self.got.append(message)
        self.came_along = message is not None

    def message_received(self, message: bytes) -> None:
        self.got.append(message)
        self.events.append("message")

    def end_received(self) -> None:
        self.events.append("end")

    def writable(self) -> None:
        self.events.append("writable")

    def cancelled(self) -> None:
        self.events.append("cancelled")


class Network:
    """Fabric messages under way in both directions: delayed as long as the test wants, in order, or cut off.

    ``budget`` is the server's, if several clients share it.
    """

    def __init__(
        self, client: Limits | None = None, server: Limits | None = None, budget: Budget | None = None
    ) -> None:
        self.served: dict[int, AcceptedCall] = {}
        self.client = ClientConnection(client or Limits())
        self.server = ServerConnection(server or Limits(), self._new_call, budget)
        self.to_server: deque[bytes] = deque()
        self.to_client: deque[bytes] = deque()
        self.recorded: list[tuple[str, bytes]] = []
        self.now = 1000.0
        self.broken = False

    def _new_call(self) -> AcceptedCall:
        call = AcceptedCall()
        self._fresh = call
        return call

    def call(
        self,
        method: str = "/s/m",
        metadata: Metadata = (),
        *,
        deadline: float | None = None,
        message: bytes | None = None,
        end: bool = False,
    ) -> MadeCall:
        """Begin a call."""
        made = MadeCall()
        made.start(self.client, method, metadata, deadline=deadline, message=message, end=end, now=self.now)
        return made

    def send(self) -> None:
        """Hand all output to the network, as fabric messages; a broken one loses it."""
        for who, connection, queue in (
            ("client", self.client, self.to_server),
            ("server", self.server, self.to_client),
        ):
            output = [bytes(each) for each in connection.take_output(self.now)]
            while (piece := connection.next_piece()) is not None:
                output += [b"".join(bytes(part) for part in piece)]
                connection.pieces_handed_over()
                output += [bytes(each) for each in connection.take_output(self.now)]
            if self.broken:
                continue
            queue.extend(output)
            self.recorded += [(who, each) for each in output]

    def deliver(self, queue: deque[bytes], count: int = 1) -> int:
        """Deliver up to ``count`` fabric messages; return how many there were."""
        delivered = 0
        connection = self.server if queue is self.to_server else self.client
        while delivered < count and queue:
            connection.receive(memoryview(queue.popleft()), self.now)
            delivered += 1
            for call in connection.calls.values():
                if isinstance(call, AcceptedCall):
                    self.served[call.id] = call
        return delivered

    def cut(self) -> None:
        """Break the connection: what is under way is lost, and both sides notice."""
        self.broken = True
        self.to_client.clear()
        self.to_server.clear()
        self.client.lost("cut")
        self.server.lost("cut")

    def settle(self) -> None:
        """Deliver everything, and what it causes."""
        while True:
            self.send()
            if not self.deliver(self.to_server, 1 << 30) + self.deliver(self.to_client, 1 << 30):
                return
