"""Channel arguments, fairness, peers: the parts that reach into the runtime."""

# Doubles: the clock of a burst is set by the test.

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aiofabric.address import Address
from aiofabric.cq.loops import bursts
from aiofabric.cq.loops.bursts import MOST_ITEMS, Burst
from aiofabric.rpc import grpc as aio
from aiofabric.rpc.grpc.names import peer_name
from aiofabric.rpc.grpc.options import channel_arguments, checked, endpoint_arguments
from tests.fixtures.providers import CARRIERS, over
from tests.rpc.grpc.generated import pb2, pb2_grpc
from tests.rpc.grpc.service import Interop, connected, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

provider = over(CARRIERS)

RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": "aiofabric.interop.Interop"}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.01s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


@pytest.mark.parametrize(("enabled", "attempts"), [(1, 3), (0, 1)])
async def test_a_service_config_repeats_calls(enabled: int, attempts: int) -> None:
    class Fails(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            seen.append(dict(context.invocation_metadata()).get("grpc-previous-rpc-attempts"))
            await context.abort(grpc.StatusCode.UNAVAILABLE, "never")

    seen: list[Any] = []
    options = [("grpc.service_config", json.dumps(RETRIES)), ("grpc.enable_retries", enabled)]
    async with started(aio, Fails()) as (_, target), aio.insecure_channel(target, options=options) as channel:
        with pytest.raises(aio.AioRpcError, match="never"):
            await pb2_grpc.InteropStub(channel).Unary(pb2.Request())
    assert seen == [None, "1", "2"][:attempts]


async def test_calls_go_to_several_servers_in_turn() -> None:
    class Named(Interop):
        def __init__(self, name: bytes) -> None:
            self.name = name

        async def Unary(self, request: Any, context: Any) -> Any:
            return pb2.Response(body=self.name)

    options = [("grpc.lb_policy_name", "round_robin")]
    seen: set[bytes] = set()
    async with (
        started(aio, Named(b"1")) as (_, one),
        started(aio, Named(b"2")) as (_, two),
        aio.insecure_channel(f"ipv4:{one},{two}", options=options) as channel,
        asyncio.timeout(10),
    ):
        stub = pb2_grpc.InteropStub(channel)
        while len(seen) < 2:
            seen.add((await stub.Unary(pb2.Request())).body)


def test_keepalive_is_the_heartbeat() -> None:
    def heartbeat(*options: tuple[str, int]) -> float | None:
        found: float | None = endpoint_arguments(checked(options)).get("heartbeat")
        return found

    assert heartbeat() is None
    assert heartbeat(("grpc.keepalive_time_ms", (1 << 31) - 1)) is None
    assert heartbeat(("grpc.keepalive_time_ms", 10_000)) == 20.0
    assert heartbeat(("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 100)) == 3.0


async def test_a_channel_with_keepalive_connects() -> None:
    options = [("grpc.keepalive_time_ms", 10_000)]
    async with started(aio, options=options) as (_, target), aio.insecure_channel(target, options=options) as channel:
        await pb2_grpc.InteropStub(channel).Nothing(pb2.Empty())


def test_the_delays_between_attempts_to_connect_are_those_of_grpc() -> None:
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 150)]
    backoff = channel_arguments(checked(options))["backoff"]()
    assert (backoff.first, backoff.multiplier, backoff.longest, backoff.jitter) == (0.1, 1.6, 0.15, 0.2)
    backoff = channel_arguments({})["backoff"]()
    assert (backoff.first, backoff.longest) == (1.0, 120.0)


async def test_the_provider_can_be_chosen(provider: str) -> None:
    class Tells(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            return pb2.Response(body=context.peer().encode())

    options = [("aiofabric.provider", provider)]
    async with (
        started(aio, Tells(), options=options) as (server, target),
        aio.insecure_channel(target, options=options) as channel,
    ):
        peer = (await pb2_grpc.InteropStub(channel).Unary(pb2.Request())).body.decode()
        assert {transport.endpoint.info.fabric_attr.prov_name for transport in server._core.transports} == {provider}
    assert peer.startswith("ipv4:127.0.0.1:"), peer


def test_peers_have_the_names_of_grpc() -> None:
    assert peer_name(Address.from_ip("10.0.0.1", 5000)) == "ipv4:10.0.0.1:5000"
    assert peer_name(Address.from_ip("::1", 5000)) == "ipv6:[::1]:5000"
    assert peer_name(None) == "unknown"


def test_a_burst_ends_after_64_items_or_100_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(bursts, "monotonic", lambda: now)
    burst = Burst()
    assert [burst.ended() for _ in range(2 * MOST_ITEMS)] == 2 * [*[False] * (MOST_ITEMS - 1), True]
    assert not burst.ended()
    now = 101e-6
    assert burst.ended()
    assert not burst.ended()
    burst.waited()
    now = 1.0
    assert not burst.ended()


async def test_a_generator_of_responses_that_never_waits_lets_other_tasks_run() -> None:
    class Hasty(Interop):
        async def Output(self, request: Any, context: Any) -> AsyncIterator[Any]:
            async def all_ticks() -> None:
                while not ended:
                    await asyncio.sleep(0)
                    ticks.append(1)

            ticker = asyncio.create_task(all_ticks())
            for _ in range(1000):
                yield pb2.Response()
            ended.append(1)
            await ticker

    ticks: list[int] = []
    ended: list[int] = []
    async with connected(aio, Hasty()) as stub:
        assert len([each async for each in stub.Output(pb2.Request())]) == 1000
    assert len(ticks) >= 1000 // MOST_ITEMS


async def test_a_generator_of_requests_that_never_waits_lets_other_tasks_run() -> None:
    async def generate() -> AsyncIterator[Any]:
        for _ in range(1000):
            yield pb2.Request()
        ended.append(len(ticks))

    async def tick() -> None:
        while not ended:
            await asyncio.sleep(0)
            ticks.append(1)

    ticks: list[int] = []
    ended: list[int] = []
    async with connected(aio) as stub:
        await stub.Nothing(pb2.Empty())
        ticker = asyncio.create_task(tick())
        await stub.Input(generate())
        await ticker
    assert ended[0] >= 1000 // MOST_ITEMS
