"""The values that Prometheus reads while connections open, transfer data and close."""

import anyio
import anyio.lowlevel
import prometheus_client
import pytest

from aiofabric.integrations.prometheus import FabricCollector
from tests.fixtures.providers import Pair


def value(registry: prometheus_client.CollectorRegistry, name: str, **labels: str) -> float:
    found = registry.get_sample_value(f"aiofabric_{name}", labels)
    return 0.0 if found is None else float(found)


@pytest.mark.anyio
async def test_totals_survive_the_connection_and_gauges_do_not(pair: Pair) -> None:
    registry = prometheus_client.CollectorRegistry()
    registry.register(FabricCollector())
    before = {name: value(registry, f"{name}_total", provider="tcp") for name in ("messages", "bytes")}
    accepted = value(registry, "accepted_total")
    async with pair() as (active, passive):
        assert value(registry, "endpoints", provider="tcp") == 2
        await active.send(b"x" * 100)
        await passive.recv()
        await active.send(b"waits")
        with anyio.fail_after(5):
            while value(registry, "waiting_messages", provider="tcp") < 1:
                await anyio.lowlevel.checkpoint()
    assert value(registry, "endpoints", provider="tcp") == 0
    assert value(registry, "messages_total", provider="tcp") == before["messages"] + 2
    assert value(registry, "bytes_total", provider="tcp") == before["bytes"] + 105
    assert value(registry, "accepted_total") == accepted + 1
    assert value(registry, "completions_total", waiting="adaptive") > 0


def test_the_text_is_what_prometheus_expects() -> None:
    registry = prometheus_client.CollectorRegistry()
    registry.register(FabricCollector())
    text = prometheus_client.generate_latest(registry).decode()
    assert "# TYPE aiofabric_endpoints gauge" in text
    assert "# TYPE aiofabric_messages_total counter" in text
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(FabricCollector())
