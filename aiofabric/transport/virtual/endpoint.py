"""VirtualEndpoint: connections over providers without connected endpoints (shm, rxm, rxd, EFA, Slingshot).

It behaves like `MessageEndpoint`, and uses a connectionless endpoint that all connections of a domain share
(multiplexer.py, connection.py). Peers find each other at a TCP port (oob_listener.py) and shake hands there. That
socket stays open beside the connection: its end shows that the peer has ended.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from anyio import ClosedResourceError

from ..._ffi import constants
from ...address import Address, split_uri
from ...cm.handshake import CHECK_BOTH_SIDES, ConnectionState, Stage, foreign, rejection
from ...cm.requests import ConnectionRequest, RequestQueue
from ...cq.reactor import Reactor
from ...errors import FabricConnectionAbortedError, FabricConnectionRefusedError, FabricError
from ...features import Quirk
from ...flags import Caps
from ..connected.endpoint import MessageEndpoint
from ..connectionless.shm_same_process import reads_ours
from ..exclusions import exclude
from ..messages.receive import Message
from ..messages.truncation import DetectsTruncation
from .connection import ConnectionHandle
from .multiplexer import acquire_multiplexer, one_host
from .oob_listener import OobListener
from .oob_socket import OobSocket, dial
from .protocol import ANSWERS_PINGS, FrameKind, Hello
from .route import ConnectionRoute, check_path

if TYPE_CHECKING:
    from ...cq.loops.drivers import Driver, Waiter
    from ...cq.operation import Operation
    from ...domain import Domain
    from ...info import Info
    from ..opening.connect_options import ConnectOptions
    from ..opening.options import EndpointOptions
    from .multiplexer import Multiplexer
    from .oob_socket import Frame

__all__ = ["VirtualEndpoint", "VirtualListenerHandle", "accept_virtual", "connect_virtual", "listen_virtual"]

_LOOPBACK = "127.0.0.1"


class OobHandshake(Stage):
    """The states of one virtual connection, and the task that waits for the first frame of the other side."""

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver
        self._waiter: Waiter | None = None

    async def answer(self, oob_socket: OobSocket) -> Frame:
        """The first frame from the other side.

        Raises:
            FabricConnectionAbortedError: the OOB socket ended without a frame.
            ClosedResourceError: the endpoint was closed meanwhile.
        """
        self._waiter = self._driver.create_waiter()
        oob_socket.on_frame = lambda frame: self._wake(oob_socket, frame)
        oob_socket.on_end = lambda: self._wake(oob_socket, None)
        oob_socket.hand_out()
        if oob_socket.closed:
            self._wake(oob_socket, None)
        frame: Frame | None = await self._waiter
        if self.state is ConnectionState.CLOSED:
            raise ClosedResourceError("the endpoint was closed while it was connecting")
        if frame is None:
            if oob_socket.foreign:
                raise foreign(oob_socket.peer_address, "connect")
            error = _aborted(oob_socket.peer_address)
            error.cure = CHECK_BOTH_SIDES
            raise error
        return frame

    def _wake(self, oob_socket: OobSocket | None, frame: Frame | None) -> None:
        if oob_socket is not None:
            oob_socket.on_frame = None  # later frames are for the connection
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(frame)

    def end(self) -> None:
        super().end()
        if not self._driver.closed():
            self._wake(None, None)


class VirtualEndpoint(DetectsTruncation, MessageEndpoint):
    """A connection over a connectionless endpoint; see `MessageEndpoint`.

    ``local_address`` and ``peer_address`` are the host and port of the OOB socket.
    """

    __slots__ = ()
    _handle: ConnectionHandle
    _stage: OobHandshake

    def __init__(self, info: Info, domain: Domain | None, options: EndpointOptions, *, accepted: bool) -> None:
        multiplexer, release = acquire_multiplexer(
            Reactor.current(),
            info,
            domain,
            options.waiting,
            options.busy_poll,
            listens=accepted,
            alone=bool(options.remote_writes),
        )
        self.info = info
        self.domain = multiplexer.endpoint.domain
        self._stage = stage = OobHandshake(multiplexer.source.driver)
        try:
            handle = ConnectionHandle(multiplexer, options)
        except BaseException:
            release()
            raise

        self._receive_by(handle)
        exclude(self, messages=Caps.TAGGED)  # all messages of a connection are tagged

        def released() -> None:
            stage.end()
            release()

        handle.on_release = released
        handle.on_gone = lambda: stage.move(ConnectionState.PEER_GONE)

    def _annotated(self, data: Any, transfer: Operation) -> Message:
        message = super()._annotated(data, transfer)
        # The tag is the connection's, not the sender's.
        return Message(message, message.source, remote_data=message.remote_data)

    async def _connect_over(self, oob_socket: OobSocket, param: bytes) -> None:
        handle = self._handle
        try:
            self._stage.move(ConnectionState.CONNECTING)
            await handle.pooled.none_refused()
            if not oob_socket.send(FrameKind.CONNECT, _hello(handle, param).pack()):
                raise _aborted(oob_socket.peer_address)
            frame = await self._stage.answer(oob_socket)
            if frame.kind != FrameKind.ACCEPT:
                raise _refusal(frame, oob_socket.peer_address)
            hello = Hello.unpack(frame.body)
            self._established_over(oob_socket, hello)
            if hello.host == ANSWERS_PINGS:
                await check_path(handle, oob_socket.peer_address, required=not handle.multiplexer.host)
        except BaseException as error:
            oob_socket.close()
            self.close()
            if isinstance(error, ValueError):
                raise _aborted(oob_socket.peer_address, f"It answered with {error}") from error
            raise

    async def _accept_over(self, oob_socket: OobSocket, hello: Hello, param: bytes) -> None:
        try:
            self._stage.move(ConnectionState.CONNECTING)
            await self._handle.pooled.none_refused()
            oob_socket.poll()
            answer = _hello(self._handle, param)
            if _answers_pings(self._handle, hello, answer):
                answer = answer._replace(host=ANSWERS_PINGS)
            if not oob_socket.send(FrameKind.ACCEPT, answer.pack()):
                raise _aborted(oob_socket.peer_address)
            self._established_over(oob_socket, hello._replace(param=b""))
        except BaseException as error:
            oob_socket.close()
            self.close()
            if isinstance(error, ValueError):  # an invalid address: the peer's error, not the caller's
                raise _aborted(oob_socket.peer_address, f"It asked with {error}") from error
            raise

    def _established_over(self, oob_socket: OobSocket, hello: Hello) -> None:
        handle = self._handle
        handle.peer = handle.multiplexer.acquire_peer(hello.address)
        self.param = hello.param
        multiplexer = handle.multiplexer
        self.local_address = oob_socket.local_address or multiplexer.endpoint.local_address
        self.peer_address = oob_socket.peer_address or handle.peer.address
        near = reads_ours(multiplexer.handle, handle.peer.address)
        handle.tx = ConnectionRoute(handle, handle.peer.native, hello, self.peer_address, near=near)
        self._stage.move(ConnectionState.CONNECTED)
        handle.closes_in_order = True
        if hello.room:
            handle.limit_messages(hello.room)
        handle.open_for_use()
        handle.hold(oob_socket, hello.heartbeat / 1000)


def _answers_pings(handle: ConnectionHandle, hello: Hello, answer: Hello) -> bool:
    """Whether a client's ping is answered. It checks the path. Over shm, no other message leaves before the first one.

    Receives into the caller's memory have no ping over shm: with 1.17, a message that comes before its receive is
    matched with the mask of an earlier receive, such as the ping's (smr_ep.c, smr_match_tagged).
    """
    if handle.multiplexer.host:
        return bool(hello.room and answer.room)
    return Quirk.WAITS_IN_LINE not in handle.known


def _hello(handle: ConnectionHandle, param: bytes) -> Hello:
    multiplexer, attr = handle.multiplexer, handle.info.ep_attr
    return Hello(
        protocol=attr.protocol,
        protocol_version=attr.protocol_version,
        host=multiplexer.host,
        connection=handle.id,
        pool=handle.pooled.number,
        room=0 if handle.pool is None else handle.pool.size,
        credits=handle.window,
        heartbeat=round(1000 * (handle.heartbeat or 0)),
        address=multiplexer.endpoint.local_address.raw,
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
    with ExitStack() as acquired:
        if wanted.raw:
            assert isinstance(node, Address)
            multiplexer, release = acquire_multiplexer(
                Reactor.current(), info, domain, options.waiting, options.busy_poll
            )
            acquired.callback(release)
            node, service = await multiplexer.address_queries.ask(node)
        oob_socket = OobSocket(await dial(*_place(node, service)), Reactor.current().driver)
        try:
            endpoint = VirtualEndpoint(info, domain, options, accepted=False)
        except BaseException:
            oob_socket.close()
            raise
        await endpoint._connect_over(oob_socket, wanted.param)
    return endpoint


async def accept_virtual(
    request: ConnectionRequest, domain: Domain | None, options: EndpointOptions, param: bytes
) -> VirtualEndpoint:
    """Accept; the connection is established as soon as its receives are posted."""
    assert isinstance(request, VirtualRequest)
    try:
        options.check_virtual(request.info.fabric_attr.prov_name)
        endpoint = VirtualEndpoint(request.info, domain, options, accepted=True)
        await endpoint._accept_over(request.oob_socket, request.hello, param)
    except BaseException:
        request._listener.withdraw(request)
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
    with ExitStack() as acquired:
        multiplexer, release = acquire_multiplexer(
            Reactor.current(), info, domain, options.waiting, options.busy_poll, listens=True
        )
        acquired.callback(release)
        handle = VirtualListenerHandle(multiplexer, backlog)
        acquired.callback(handle.close)
        await handle.open(node, service)
        acquired.pop_all()
    handle.on_release = release
    return handle


def _place(node: str | Address | None, service: str | int | None) -> tuple[str | None, str | int | None]:
    """Host and port, from any form of address."""
    if isinstance(node, Address):
        return node.host, node.port
    if node is not None and (parts := split_uri(node)) is not None:
        return parts[0] or None, parts[1]
    return node, service


class VirtualRequest(ConnectionRequest):
    """A request that came over an OOB socket."""

    def __init__(self, listener: VirtualListenerHandle, info: Info, oob_socket: OobSocket, hello: Hello) -> None:
        super().__init__(listener, info, hello.param, oob_socket.peer_address)
        self.oob_socket = oob_socket
        self.hello = hello


class VirtualListenerHandle(RequestQueue):
    """An OOB listener, and the multiplexer that carries its connections."""

    __slots__ = ("multiplexer", "oob_listener")

    def __init__(self, multiplexer: Multiplexer, backlog: int) -> None:
        super().__init__(None, multiplexer.handle, multiplexer.source, backlog)
        self.multiplexer = multiplexer
        self.oob_listener: OobListener | None = None

    async def open(self, node: str | Address | None, service: str | int | None) -> None:
        """Listen at a host and port; by default on all interfaces if the provider reaches other hosts."""
        node, service = _place(node, service)
        if node is None and one_host(self.multiplexer.info):
            node = _LOOPBACK
        self.oob_listener = await OobListener.open(node, service, self.source.driver, self._request, self.cut_off)

    def address(self) -> Address:
        assert self.oob_listener is not None
        return self.oob_listener.address

    def fabric_address(self) -> Address:
        self.multiplexer.address_queries.answer_for(self)
        return self.multiplexer.endpoint.local_address

    def _request(self, oob_socket: OobSocket, frame: Frame) -> None:
        hello = Hello.unpack(frame.body)
        multiplexer = self.multiplexer
        attr = multiplexer.info.ep_attr
        other_host = hello.host and multiplexer.host and hello.host != multiplexer.host
        ours = (FrameKind.CONNECT, attr.protocol, attr.protocol_version)
        if other_host or (frame.kind, hello.protocol, hello.protocol_version) != ours:
            where = " of this host" if other_host else ""
            text = f"the listener takes {multiplexer.info.fabric_attr.prov_name} connections{where} only"
            oob_socket.send(FrameKind.MISMATCH, text.encode())
            oob_socket.close()
            return
        self.arrived(VirtualRequest(self, multiplexer.info, oob_socket, hello))

    def refuse(self, request: ConnectionRequest, data: bytes) -> None:
        assert isinstance(request, VirtualRequest)
        request.oob_socket.send(FrameKind.REJECT, data)
        request.oob_socket.close()

    def release_native(self) -> None:
        if self.multiplexer.busy:
            self.multiplexer.address_queries.retire(self)
        if self.oob_listener is not None:
            self.oob_listener.close()
