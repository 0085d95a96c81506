"""A virtual connection is open at the client when a message has passed over the fabric, both ways."""

# Doubles: a fabric that loses pings, and a shorter time limit.
# Privates: the time limit of the check.

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import (
    Address,
    FabricConnectionAbortedError,
    FabricConnectionError,
    FabricError,
    FabricTimeoutError,
    UnreachableError,
)
from aiofabric.transport.virtual import endpoint as endpoint_module
from aiofabric.transport.virtual import route as route_module
from aiofabric.transport.virtual.protocol import ANSWERS_PINGS, KIND_PING, KIND_PONG, Hello
from aiofabric.transport.virtual.route import ConnectionRoute, check_path
from tests.cq.manual import Caller, ManualDriver
from tests.fixtures.providers import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.children import Child, Parent

PROVIDER = "tcp;ofi_rxm"
PEER = Address.from_ip("192.0.2.1", 7)


# -- the steps


class Connection:
    """A connection whose ping the test answers."""

    pong: Any = None
    gone: Any = None
    last: Any = None
    received = 0
    live = True

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.source: Any = SimpleNamespace(driver=self.driver, interest=0, touch=lambda: None, drain=lambda: 0)
        self.gone_waiters: tuple[Any, ...] = ()
        self.told: list[int] = []
        self.tx: Any = SimpleNamespace(tell=self.told.append)
        self.info: Any = SimpleNamespace(
            fabric_attr=SimpleNamespace(prov_name="efa"), domain_attr=SimpleNamespace(name="rdmap0s6-rdm")
        )
        self.peer: Any = SimpleNamespace(address="fi_addr_efa://1")

    def begin(self, *, required: bool = True) -> Caller:
        call: Any = check_path(self, PEER, required=required)  # type: ignore[arg-type]
        return Caller(self.driver, call)

    def end(self, caller: Caller) -> Any:
        self.driver.settle_down()
        assert caller.done
        assert (self.source.interest, self.pong, self.gone_waiters) == (0, None, ())
        return caller.outcome


def test_the_pong_ends_the_check() -> None:
    it = Connection()
    caller = it.begin()
    assert (it.told, it.source.interest, caller.done) == ([KIND_PING], 1, False)
    it.pong.set_result(0)
    assert it.end(caller) is None


def test_no_pong_within_the_limit_is_an_error_that_tells_tcp_from_the_fabric() -> None:
    it = Connection()
    caller = it.begin()
    assert it.driver.pass_time() == route_module._LIMIT
    error = it.end(caller)
    assert isinstance(error, FabricTimeoutError)
    assert str(error) == (
        "connect with fi_sockaddr_in://192.0.2.1:7: Connection timed out [FI_ETIMEDOUT]. TCP reaches the listener, but "
        "no message did within 10 seconds over the provider efa from the device rdmap0s6-rdm to fi_addr_efa://1. Check "
        "that both devices are in one network, with the same authorization key, and that no firewall blocks the "
        "provider. interface= chooses another device, provider= another provider"
    )


def test_a_peer_that_the_provider_cannot_reach_is_an_error_at_once() -> None:
    it = Connection()
    caller = it.begin()
    it.pong.set_result(errno.EHOSTUNREACH)
    error = it.end(caller)
    assert isinstance(error, UnreachableError)
    assert "TCP reaches the listener, but no message does over the provider efa" in str(error)


def test_a_ping_that_the_provider_refuses_is_an_error_at_once() -> None:
    it = Connection()

    def refuse(kind: int) -> None:
        raise FabricError(errno.EINVAL, "fi_tinject")

    it.tx.tell = refuse
    error = it.end(it.begin())
    assert isinstance(error, UnreachableError)
    assert isinstance(error.__cause__, FabricError)


@pytest.mark.parametrize(("last", "received"), [(None, 0), (0, 0), (3, 0), (None, 1)])
@pytest.mark.parametrize("before", [False, True])
def test_a_peer_that_has_sent_and_ended_is_connected(last: int | None, received: int, before: bool) -> None:
    """A listener's program may send, and close at once."""
    it = Connection()
    if before:
        it.gone, it.last, it.received, it.live = ConnectionResetError, last, received, False
        caller = it.begin()
        assert not it.told
    else:
        caller = it.begin()
        it.gone, it.last, it.received = ConnectionResetError, last, received
        it.gone_waiters[0].set_result(None)
    outcome = it.end(caller)
    assert isinstance(outcome, FabricConnectionAbortedError) if (last, received) == (None, 0) else outcome is None


def test_within_a_host_the_pong_is_only_waited_for() -> None:
    """The peer's program may compute, or close the connection at once."""
    late, ended = Connection(), Connection()
    caller = late.begin(required=False)
    assert late.driver.pass_time() == route_module._SHORT_LIMIT
    assert late.end(caller) is None
    caller = ended.begin(required=False)
    ended.gone = ConnectionResetError
    ended.gone_waiters[0].set_result(None)
    assert ended.end(caller) is None


def test_a_close_ends_the_check() -> None:
    it = Connection()
    caller = it.begin()
    it.gone_waiters[0].set_result(None)
    assert isinstance(it.end(caller), ClosedResourceError)


# -- over rxm


@pytest.fixture
def provider() -> str:
    return require(PROVIDER)


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """``lose(KIND_PING)``: the fabric loses such messages."""
    tell = ConnectionRoute.tell

    def lose(lost: int) -> None:
        def maybe(route: ConnectionRoute, kind: int) -> None:
            if kind != lost:
                tell(route, kind)

        monkeypatch.setattr(ConnectionRoute, "tell", maybe)

    return lose


async def accept_and_see_the_end(listener: aiofabric.Listener, seen: list[BaseException]) -> None:
    async with await (await listener.accept_request()).accept() as server:
        try:
            await server.recv()
        except FabricConnectionError as error:
            seen.append(error)


@pytest.mark.anyio
@pytest.mark.parametrize("lost", [KIND_PING, KIND_PONG])
async def test_a_fabric_that_carries_nothing_is_no_connection(
    lost: int, lose: Callable[[int], None], provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_module, "_LIMIT", 0.3)
    lose(lost)
    seen: list[BaseException] = []
    with anyio.fail_after(20):
        async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept_and_see_the_end, listener, seen)
            with pytest.raises(FabricTimeoutError, match=r"TCP reaches the listener.*interface= chooses"):
                await aiofabric.connect(listener.address, provider=provider)
    assert len(seen) == 1  # the client's end


@pytest.mark.anyio
async def test_a_cancelled_check_closes_the_connection(lose: Callable[[int], None], provider: str) -> None:
    lose(KIND_PING)
    seen: list[BaseException] = []
    with anyio.fail_after(20):
        async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept_and_see_the_end, listener, seen)
            with anyio.move_on_after(0.3) as limit:
                await aiofabric.connect(listener.address, provider=provider)
            assert limit.cancelled_caught
    assert len(seen) == 1


@pytest.mark.anyio
async def test_an_accepted_endpoint_that_closes_during_the_check_is_an_error_or_an_end(
    lose: Callable[[int], None], provider: str
) -> None:
    """An orderly close is the end of a connection; an abort is none."""
    lose(KIND_PING)

    async def accept(abort: bool) -> None:
        server = await (await listener.accept_request()).accept()
        server.abort() if abort else server.close()

    with anyio.fail_after(20):
        async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept, True)
            with pytest.raises(FabricConnectionAbortedError, match="went away before it answered over the fabric"):
                await aiofabric.connect(listener.address, provider=provider)
            tasks.start_soon(accept, False)
            async with await aiofabric.connect(listener.address, provider=provider) as client:
                with pytest.raises(FabricConnectionError):
                    await client.recv()


@pytest.mark.anyio
async def test_messages_that_come_before_the_pong_are_kept(lose: Callable[[int], None], provider: str) -> None:
    async def accept() -> None:
        async with await (await listener.accept_request()).accept() as server:
            for number in range(3):
                await server.send(bytes([number]))

    with anyio.fail_after(20):
        async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            async with await aiofabric.connect(listener.address, provider=provider) as client:
                assert [message async for message in client] == [b"\0", b"\1", b"\2"]


@pytest.mark.anyio
@pytest.mark.parametrize("provider", ["shm", PROVIDER])
async def test_a_listener_of_an_earlier_build_is_sent_no_ping(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the ping for a message."""
    require(provider)
    monkeypatch.setattr(Hello, "unpack", classmethod(unpack_of_an_earlier_build))
    told: list[int] = []
    monkeypatch.setattr(ConnectionRoute, "tell", lambda route, kind: told.append(kind))
    monkeypatch.setattr(endpoint_module, "check_path", never)
    with anyio.fail_after(20):
        async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(echo, listener)
            client = await aiofabric.connect(listener.address, provider=provider)
            async with client:
                await client.send(b"x")
                assert await client.recv() == b"x"
    assert not told


def unpack_of_an_earlier_build(cls: type[Hello], body: bytes) -> Hello:
    """It knows no `ANSWERS_PINGS`, and has a mark of the host or 0."""
    hello: Hello = _unpack(body)
    return hello._replace(host=0) if hello.host == ANSWERS_PINGS else hello


_unpack: Any = Hello.unpack


async def never(*_: Any) -> None:
    raise AssertionError("an earlier build is not checked")


async def echo(listener: aiofabric.Listener) -> None:
    async with await (await listener.accept_request()).accept() as server:
        async for message in server:
            await server.send(message)


async def accept_without_pongs(parent: Parent) -> None:
    tell = ConnectionRoute.tell
    ConnectionRoute.tell = lambda route, kind: None if kind == KIND_PONG else tell(route, kind)  # type: ignore[assignment, method-assign]
    async with aiofabric.listen("127.0.0.1", 0, provider=PROVIDER) as listener:
        parent.tell(listener.address.port)
        endpoint = await (await listener.accept_request()).accept()
        parent.tell("accepted")
        await anyio.sleep_forever()
        endpoint.close()


@pytest.mark.anyio
async def test_a_listener_that_is_killed_during_the_check_ends_it(provider: str, child: Callable[..., Child]) -> None:
    server = child(accept_without_pongs)
    port = await server.areceive()

    async def kill() -> None:
        assert await server.areceive() == "accepted"
        server.kill()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            with pytest.raises((FabricConnectionError, FabricError)):
                await aiofabric.connect("127.0.0.1", port, provider=provider)
