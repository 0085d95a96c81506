"""VirtualEndpoint: connections where the provider has none (shm, rxm, rxd, EFA, Slingshot).

The same endpoint as `MessageEndpoint`, on a connectionless one that all connections of a domain share (multiplexer.py,
connection.py). Peers find each other at a port of the kernel's TCP (oob_listener.py) and shake hands there. That socket
stays open beside the connection: its end shows that the peer has ended.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from anyio import ClosedResourceError

from ..._ffi import constants
from ...address import Address, split_uri
from ...cm.handshake import ELSEWHERE, LinkState, Stage, foreign, rejection
from ...cm.requests import ConnectionRequest, RequestQueue
from ...cq.reactor import Reactor
from ...errors import FabricConnectionAbortedError, FabricConnectionRefusedError, FabricError
from ...flags import Caps
from ..connected.endpoint import MessageEndpoint
from ..exclusions import exclude
from ..messages.receive import Message
from ..messages.truncation import Whole
from .connection import LinkHandle, LinkRoute
from .multiplexer import borrow_trunk, one_host
from .oob_listener import Rendezvous
from .oob_socket import Line, dial
from .protocol import FrameKind, Hello

if TYPE_CHECKING:
    from ...cq.drivers import Driver, Waiter
    from ...cq.operation import Operation
    from ...domain import Domain
    from ...info import Info
    from ..opening.connect_options import ConnectOptions
    from ..opening.options import EndpointOptions
    from .multiplexer import Trunk
    from .oob_socket import Frame

__all__ = ["VirtualEndpoint", "VirtualListenerHandle", "accept_virtual", "connect_virtual", "listen_virtual"]

_LOOPBACK = "127.0.0.1"


class LineHandshake(Stage):
    """The states of one virtual connection, and who waits for the first word of the other side."""

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver
        self._waiter: Waiter | None = None

    async def answer(self, line: Line) -> Frame:
        """The first frame from the other side.

        Raises:
            FabricConnectionAbortedError: there is none, the line has ended.
            ClosedResourceError: the endpoint was closed meanwhile.
        """
        self._waiter = self._driver.create_waiter()
        line.on_frame = lambda frame: self._wake(line, frame)
        line.on_end = lambda: self._wake(line, None)
        line.hand_out()
        if line.closed:
            self._wake(line, None)
        frame: Frame | None = await self._waiter
        if self.state is LinkState.CLOSED:
            raise ClosedResourceError("the endpoint was closed while it was connecting")
        if frame is None:
            if line.foreign:
                raise foreign(line.peer_address, "connect")
            error = _aborted(line.peer_address)
            error.cure = ELSEWHERE
            raise error
        return frame

    def _wake(self, line: Line | None, frame: Frame | None) -> None:
        if line is not None:
            line.on_frame = None  # what it says next is for the connection
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(frame)

    def end(self) -> None:
        super().end()
        if not self._driver.closed():
            self._wake(None, None)


class VirtualEndpoint(Whole, MessageEndpoint):
    """A connection over a connectionless endpoint; see `MessageEndpoint`.

    ``local_address`` and ``peer_address`` are the host and port where the two found each other.
    """

    __slots__ = ()
    _handle: LinkHandle
    _stage: LineHandshake

    def __init__(self, info: Info, domain: Domain | None, options: EndpointOptions) -> None:
        trunk, give_back = borrow_trunk(
            Reactor.current(), info, domain, options.waiting, options.busy_poll, alone=bool(options.remote_writes)
        )
        self.info = info
        self.domain = trunk.endpoint.domain
        self._stage = stage = LineHandshake(trunk.source.driver)
        try:
            handle = LinkHandle(trunk, options)
        except BaseException:
            give_back()
            raise

        self._receive_by(handle)
        exclude(self, messages=Caps.TAGGED)  # which all of a connection's messages are

        def released() -> None:
            stage.end()
            give_back()

        handle.on_release = released
        handle.on_gone = lambda: stage.move(LinkState.PEER_GONE)

    def _annotated(self, data: Any, transfer: Operation) -> Message:
        message = super()._annotated(data, transfer)
        # The tag is the connection's, none of the sender's.
        return Message(message, message.source, remote_data=message.remote_data)

    async def _connect_over(self, line: Line, param: bytes) -> None:
        handle = self._handle
        try:
            self._stage.move(LinkState.CONNECTING)
            if not line.send(FrameKind.CONNECT, _hello(handle, param).pack()):
                raise _aborted(line.peer_address)
            frame = await self._stage.answer(line)
            if frame.kind != FrameKind.ACCEPT:
                raise _refusal(frame, line.peer_address)
            self._established_over(line, Hello.unpack(frame.body))
        except BaseException as error:
            line.close()
            self.close()
            if isinstance(error, ValueError):
                raise _aborted(line.peer_address, f"It answered with {error}") from error
            raise

    def _accept_over(self, line: Line, hello: Hello, param: bytes) -> None:
        try:
            self._stage.move(LinkState.CONNECTING)
            line.look()
            if not line.send(FrameKind.ACCEPT, _hello(self._handle, param).pack()):
                raise _aborted(line.peer_address)
            self._established_over(line, hello._replace(param=b""))
        except BaseException as error:
            line.close()
            self.close()
            if isinstance(error, ValueError):  # an address that is none: the peer's fault, not the caller's
                raise _aborted(line.peer_address, f"It asked with {error}") from error
            raise

    def _established_over(self, line: Line, hello: Hello) -> None:
        handle = self._handle
        handle.peer = handle.trunk.meet(hello.address)
        self.param = hello.param
        trunk = handle.trunk
        self.local_address = line.local_address or trunk.endpoint.local_address
        self.peer_address = line.peer_address or handle.peer.address
        handle.tx = LinkRoute(handle, handle.peer.native, hello, self.peer_address)
        self._stage.move(LinkState.CONNECTED)
        handle.closes_in_order = True
        if hello.room:
            handle.limit_messages(hello.room)
        handle.open_for_use()
        handle.hold(line, hello.heartbeat / 1000)


def _hello(handle: LinkHandle, param: bytes) -> Hello:
    trunk, attr = handle.trunk, handle.info.ep_attr
    return Hello(
        protocol=attr.protocol,
        protocol_version=attr.protocol_version,
        host=trunk.host,
        connection=handle.id,
        pool=handle.pooled.number,
        room=0 if handle.pool is None else handle.pool.size,
        credits=handle.window,
        heartbeat=round(1000 * (handle.heartbeat or 0)),
        address=trunk.endpoint.local_address.raw,
        param=param,
    )


def _aborted(peer: object, detail: str = "The peer went away before the connection was established") -> FabricError:
    return FabricConnectionAbortedError(constants.FI_ECONNABORTED, "connect", peer=peer, detail=detail)


def _refusal(frame: Frame, peer: object) -> Exception:
    if frame.kind == FrameKind.REJECT:
        return rejection(frame.body, peer, "connect")
    error = FabricConnectionRefusedError(constants.FI_ECONNREFUSED, "connect", peer=peer)
    error.detail = frame.body.decode(errors="replace")
    error.cure = "Name that provider, or listen with this one"
    return error


async def connect_virtual(
    info: Info, node: str | Address | None, service: str | int | None, wanted: ConnectOptions
) -> VirtualEndpoint:
    """Connect over the provider of ``info``, to a host and port or to a raw address; see `connect`."""
    domain, options = wanted.domain, wanted.endpoint
    options.check_virtual(info.fabric_attr.prov_name)
    if domain is not None:
        domain._handle.check_open()
    with ExitStack() as borrowed:
        if wanted.raw:
            assert isinstance(node, Address)
            trunk, give_back = borrow_trunk(Reactor.current(), info, domain, options.waiting, options.busy_poll)
            borrowed.callback(give_back)
            node, service = await trunk.hails.ask(node)
        line = Line(await dial(*_place(node, service)), Reactor.current().driver)
        try:
            endpoint = VirtualEndpoint(info, domain, options)
        except BaseException:
            line.close()
            raise
        await endpoint._connect_over(line, wanted.param)
    return endpoint


async def accept_virtual(
    request: ConnectionRequest, domain: Domain | None, options: EndpointOptions, param: bytes
) -> VirtualEndpoint:
    """Accept; the connection is there at once."""
    assert isinstance(request, VirtualRequest)
    try:
        options.check_virtual(request.info.fabric_attr.prov_name)
        endpoint = VirtualEndpoint(request.info, domain, options)
        endpoint._accept_over(request.line, request.hello, param)
    except BaseException:
        request.withdraw()
        raise
    return endpoint


async def listen_virtual(
    info: Info,
    node: str | Address | None,
    service: str | int | None,
    domain: Domain | None,
    options: EndpointOptions,
    backlog: int,
) -> VirtualListenerHandle:
    """Listen at a host and port for connections that the loop's multiplexer carries."""
    options.check_virtual(info.fabric_attr.prov_name)
    with ExitStack() as borrowed:
        trunk, give_back = borrow_trunk(Reactor.current(), info, domain, options.waiting, options.busy_poll)
        borrowed.callback(give_back)
        handle = VirtualListenerHandle(trunk, backlog)
        borrowed.callback(handle.close)
        await handle.open(node, service)
        borrowed.pop_all()
    handle.on_release = give_back
    return handle


def _place(node: str | Address | None, service: str | int | None) -> tuple[str | None, str | int | None]:
    """Host and port, however they were written."""
    if isinstance(node, Address):
        return node.host, node.port
    if node is not None and (parts := split_uri(node)) is not None:
        return parts[0] or None, parts[1]
    return node, service


class VirtualRequest(ConnectionRequest):
    """A request that came over a line."""

    def __init__(self, listener: VirtualListenerHandle, info: Info, line: Line, hello: Hello) -> None:
        super().__init__(listener, info, hello.param, line.peer_address)
        self.line = line
        self.hello = hello


class VirtualListenerHandle(RequestQueue):
    """A rendezvous, and the trunk that its connections will run on."""

    __slots__ = ("rendezvous", "trunk")

    def __init__(self, trunk: Trunk, backlog: int) -> None:
        super().__init__(None, trunk.handle, trunk.source, backlog)
        self.trunk = trunk
        self.rendezvous: Rendezvous | None = None

    async def open(self, node: str | Address | None, service: str | int | None) -> None:
        """Listen at a host and port; by default on all interfaces if the provider reaches other hosts."""
        node, service = _place(node, service)
        if node is None and one_host(self.trunk.info):
            node = _LOOPBACK
        self.rendezvous = await Rendezvous.open(node, service, self.source.driver, self._request, self.cut_off)

    def address(self) -> Address:
        assert self.rendezvous is not None
        return self.rendezvous.address

    def fabric_address(self) -> Address:
        self.trunk.hails.answer_for(self)
        return self.trunk.endpoint.local_address

    def _request(self, line: Line, frame: Frame) -> None:
        hello = Hello.unpack(frame.body)
        trunk = self.trunk
        attr = trunk.info.ep_attr
        elsewhere = hello.host and trunk.host and hello.host != trunk.host
        ours = (FrameKind.CONNECT, attr.protocol, attr.protocol_version)
        if elsewhere or (frame.kind, hello.protocol, hello.protocol_version) != ours:
            where = " of this host" if elsewhere else ""
            text = f"the listener takes {trunk.info.fabric_attr.prov_name} connections{where} only"
            line.send(FrameKind.MISMATCH, text.encode())
            line.close()
            return
        self.arrived(VirtualRequest(self, trunk.info, line, hello))

    def refuse(self, request: ConnectionRequest, data: bytes) -> None:
        assert isinstance(request, VirtualRequest)
        request.line.send(FrameKind.REJECT, data)
        request.line.close()

    def release_native(self) -> None:
        if self.trunk.busy:
            self.trunk.hails.retire(self)
        if self.rendezvous is not None:
            self.rendezvous.close()
