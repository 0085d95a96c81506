"""Connections of a channel: names, several addresses, states, servers that come, go, drain and come back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aiofabric import rpc
from aiofabric.cm.clients.backoff import Backoff
from aiofabric.rpc.channel.policies import RoundRobin
from aiofabric.rpc.channel.service_config import ServiceConfig
from tests.fixtures.children import Child
from tests.fixtures.ports import free_port
from tests.fixtures.providers import CONNECTED, OWN_HOST, over
from tests.fixtures.waiting import until
from tests.rpc.services import HANDLERS, serve, served, target

if TYPE_CHECKING:
    from aiofabric.rpc.channel.subchannel import Subchannel

pytestmark = pytest.mark.anyio

provider = over(CONNECTED)  # a channel does not know what its connections are made of

Start = Callable[..., Child]


def quick() -> Backoff:
    return Backoff(0.02, 1.6, 0.1)


def channel_to(*ports: int, provider: str, **options: Any) -> rpc.Channel:
    addresses = ",".join(f"{OWN_HOST}:{port}" for port in ports)
    return rpc.Channel(f"ipv4:{addresses}", backoff=quick, options={"provider": provider}, **options)


async def test_a_channel_connects_when_it_is_first_used(provider: str) -> None:
    async with served(provider) as (channel, server):
        assert channel.get_state() is rpc.Connectivity.IDLE
        assert not server.core.transports
        await channel.unary("/test/echo", b"")
        assert channel.get_state() is rpc.Connectivity.READY


async def test_a_channel_connects_when_it_is_asked_to(provider: str) -> None:
    async with served(provider) as (channel, _):
        assert channel.get_state(try_to_connect=True) is rpc.Connectivity.IDLE
        with anyio.fail_after(10):
            state = rpc.Connectivity.CONNECTING
            while state is not rpc.Connectivity.READY:
                await channel.wait_for_state_change(state)
                state = channel.get_state()


async def test_a_call_fails_at_once_if_no_server_is_there(provider: str) -> None:
    async with channel_to(free_port(), provider=provider) as channel:
        with pytest.raises(rpc.RpcError, match="UNAVAILABLE: No connection to") as caught:
            await channel.unary("/test/echo", b"", timeout=10)
        assert not caught.value.may_have_run
        assert channel.get_state() is rpc.Connectivity.TRANSIENT_FAILURE


async def test_a_call_that_waits_for_ready_outlives_failures(provider: str) -> None:
    port = free_port()
    replies = []

    async def one(channel: rpc.Channel) -> None:
        replies.append(await channel.unary("/test/echo", b"x", wait_for_ready=True, timeout=20))

    async with channel_to(port, provider=provider) as channel, anyio.create_task_group() as group:
        group.start_soon(one, channel)
        await until(lambda: channel.get_state() is rpc.Connectivity.TRANSIENT_FAILURE)
        assert len(channel.core.waiting) == 1
        async with rpc.Server(HANDLERS) as server:
            await server.listen(OWN_HOST, port, provider=provider)
            await until(lambda: replies)
    assert replies == [b"x"]


@pytest.fixture
async def named(provider: str) -> AsyncIterator[Named]:
    """A channel to ``some:name``. The test says what the resolver answers before it finds the server."""
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        named = Named((OWN_HOST, listener.address.port or 0))
        options = {"provider": provider}
        async with rpc.Channel("some:name", resolver=named.resolve, backoff=quick, options=options) as named.channel:
            yield named


class Named:
    """A name, the answers before its server is found, and the questions."""

    channel: rpc.Channel

    def __init__(self, server: tuple[str, int]) -> None:
        self.server = server
        self.before: Sequence[tuple[str, int] | OSError] = ()
        self.asked: list[str] = []

    async def resolve(self, name: str) -> list[tuple[str, int]]:
        self.asked.append(name)
        answers = [*self.before, self.server]
        answer = answers[min(len(self.asked), len(answers)) - 1]
        if isinstance(answer, OSError):
            raise answer
        return [answer]


async def test_a_target_that_does_not_resolve_is_a_failure_and_is_tried_again(named: Named) -> None:
    named.before = [OSError("no such name")] * 2
    with pytest.raises(rpc.RpcError, match="UNAVAILABLE: No connection to some:name: no such name"):
        await named.channel.unary("/test/echo", b"")
    assert await named.channel.unary("/test/echo", b"x", wait_for_ready=True, timeout=20) == b"x"
    assert named.asked == ["some:name"] * 3


async def test_a_call_that_waits_follows_a_server_whose_name_gets_another_address(named: Named) -> None:
    named.before = [(OWN_HOST, free_port())] * 2
    assert await named.channel.unary("/test/echo", b"x", wait_for_ready=True, timeout=20) == b"x"
    assert named.asked == ["some:name"] * 3


async def test_pick_first_takes_the_first_address_that_answers(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen(OWN_HOST, 0, provider=provider)
        async with channel_to(free_port(), listener.address.port or 0, provider=provider) as channel:
            assert await channel.unary("/test/echo", b"x") == b"x"


def noting(name: str, seen: list[str]) -> dict[str, rpc.Handler]:
    """Handlers that note which server was called."""

    async def note(request: bytes, context: rpc.ServerContext) -> bytes:
        seen.append(name)
        return b""

    return {f"/test/{method}": rpc.unary_unary(note) for method in ("note", "other")}


class ByMethod(RoundRobin):
    """A program's own policy: each method has its own server."""

    def pick(self, method: str) -> Subchannel | None:
        ready = [each for each in self._subchannels if each.state is rpc.Connectivity.READY]
        place = int(method == "/test/other")
        return ready[place] if len(ready) == 2 else None


async def test_a_policy_of_the_program_chooses_the_connection_of_each_call(provider: str) -> None:
    seen: list[str] = []
    async with rpc.Server(noting("a", seen)) as a, rpc.Server(noting("b", seen)) as b:
        ports = [(await each.listen(OWN_HOST, 0, provider=provider)).address.port or 0 for each in (a, b)]
        async with channel_to(*ports, provider=provider, policy=ByMethod) as channel:
            with anyio.fail_after(20):  # the first call waits until both servers are connected
                for method in ("note", "other", "other", "note"):
                    await channel.unary(f"/test/{method}", b"", wait_for_ready=True)
    assert seen == ["a", "b", "b", "a"]


async def test_round_robin_uses_all_addresses(provider: str) -> None:
    seen: list[str] = []
    async with rpc.Server(noting("a", seen)) as a, rpc.Server(noting("b", seen)) as b:
        ports = [(await each.listen(OWN_HOST, 0, provider=provider)).address.port or 0 for each in (a, b)]
        async with channel_to(*ports, provider=provider, policy="round_robin") as channel:
            channel.get_state(try_to_connect=True)
            await until(lambda: sum(len(each.core.transports) for each in (a, b)) == 2)
            await until(lambda: channel.get_state() is rpc.Connectivity.READY)
            for _ in range(10):
                await channel.unary("/test/note", b"", wait_for_ready=True)
    assert {seen.count("a"), seen.count("b")} <= {4, 5, 6}


async def test_a_server_that_is_killed_ends_its_calls_and_the_channel_connects_again(
    provider: str, child: Start
) -> None:
    caught: list[rpc.RpcError] = []

    async def one(channel: rpc.Channel) -> None:
        try:
            await channel.unary("/test/slow", b"60000")
        except rpc.RpcError as error:
            caught.append(error)

    server = child(serve, provider)
    port = await server.areceive()
    async with channel_to(port, provider=provider) as channel:
        async with anyio.create_task_group() as group:
            for _ in range(64):
                group.start_soon(one, channel)
            await until(lambda: len(channel.core.calls) == 64)
            assert await channel.unary("/test/echo", b"x") == b"x"  # all calls before it have arrived
            await anyio.to_thread.run_sync(server.kill)
        assert [error.code for error in caught] == [rpc.StatusCode.UNAVAILABLE] * 64
        assert all(error.may_have_run for error in caught)
        again = child(serve, provider, port)
        assert await again.areceive() == port
        assert await channel.unary("/test/echo", b"x", wait_for_ready=True, timeout=20) == b"x"
        assert not channel.core.calls
        assert channel.core.budget.used == 0


async def test_a_drain_under_load_loses_no_call(provider: str, child: Start) -> None:
    first, second = child(serve, provider), child(serve, provider)
    ports = [await first.areceive(), await second.areceive()]
    answered = 0
    running = True

    async def caller(channel: rpc.Channel) -> None:
        nonlocal answered
        while running:
            await channel.unary("/test/slow", b"2", timeout=20)
            answered += 1

    async with channel_to(*ports, provider=provider) as channel, anyio.create_task_group() as group:
        for _ in range(32):
            group.start_soon(caller, channel)
        await until(lambda: answered > 200)
        first.tell(10)
        begun = await first.aresult()
        before = answered
        await until(lambda: answered > before + 200)
        running = False
    assert begun >= 200


async def test_a_call_is_retried_as_the_service_config_says(provider: str) -> None:
    attempts: list[dict[str, Any]] = []

    async def flaky(request: bytes, context: rpc.ServerContext) -> bytes:
        attempts.append(dict(context.metadata))
        if len(attempts) < 3:
            raise rpc.RpcError(rpc.StatusCode.UNAVAILABLE, "try again")
        return request

    retry = {
        "maxAttempts": 4,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.02s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = ServiceConfig.parse(json.dumps({"methodConfig": [{"name": [{"service": "test"}], "retryPolicy": retry}]}))
    async with rpc.Server({"/test/flaky": rpc.unary_unary(flaky)}) as server:
        port = (await server.listen(OWN_HOST, 0, provider=provider)).address.port or 0
        async with channel_to(port, provider=provider, service_config=config) as channel:
            assert await channel.unary("/test/flaky", b"x", timeout=20) == b"x"
            assert attempts == [{}, {"grpc-previous-rpc-attempts": "1"}, {"grpc-previous-rpc-attempts": "2"}]
            attempts.clear()
            async with channel.call("/test/flaky", timeout=20) as call:
                await call.send(b"y")
                call.half_close()
                assert await call.recv() == b"y"
            assert not channel.core.calls


async def test_negative_pushback_and_initial_metadata_end_retries(provider: str) -> None:
    attempts = 0

    async def pushed_back(request: bytes, context: rpc.ServerContext) -> bytes:
        nonlocal attempts
        attempts += 1
        raise rpc.RpcError(rpc.StatusCode.UNAVAILABLE, "", (("grpc-retry-pushback-ms", "-1"),))

    async def committed(request: bytes, context: rpc.ServerContext) -> bytes:
        nonlocal attempts
        attempts += 1
        context.send_headers(())
        raise rpc.RpcError(rpc.StatusCode.UNAVAILABLE)

    retry = {
        "maxAttempts": 5,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.02s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = ServiceConfig.parse({"methodConfig": [{"name": [{}], "retryPolicy": retry}]})
    handlers = {"/test/pushed": rpc.unary_unary(pushed_back), "/test/committed": rpc.unary_unary(committed)}
    async with rpc.Server(handlers) as server:
        port = (await server.listen(OWN_HOST, 0, provider=provider)).address.port or 0
        async with channel_to(port, provider=provider, service_config=config) as channel:
            for method in handlers:
                attempts = 0
                with pytest.raises(rpc.RpcError, match="UNAVAILABLE"):
                    await channel.unary(method, b"x", timeout=20)
                assert attempts == 1


async def test_a_target_of_localhost_resolves(provider: str) -> None:
    async with rpc.Server(HANDLERS) as server:
        listener = await server.listen("localhost", 0, provider=provider)
        name = f"localhost:{listener.address.port}"
        async with rpc.Channel(name, backoff=quick, options={"provider": provider}) as channel:
            assert await channel.unary("/test/echo", b"x", wait_for_ready=True, timeout=20) == b"x"
        assert target(listener.address)
