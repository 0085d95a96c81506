"""A listener or a reservation that cannot be opened leaves nothing behind, and its address is free."""

# Doubles: the provider refuses a call.

from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import FabricError
from aiofabric._ffi import constants, lib
from aiofabric.resource import live_handles
from tests.fixtures.providers import CARRIERS, over

pytestmark = pytest.mark.anyio
provider = over(["tcp"])

HERE = "127.0.0.1"


def refuse(*_: object) -> int:
    return -constants.FI_ENOMEM


@pytest.mark.parametrize("call", ["fi_pep_bind", "fi_listen"])
async def test_a_refused_listener_is_closed(provider: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fabric stays open, because another listener uses it, and closes none of its objects."""
    async with aiofabric.listen(HERE, 0, provider=provider):
        async with aiofabric.listen(HERE, 0, provider=provider) as listener:
            address = listener.address
        before = live_handles()
        with monkeypatch.context() as patched:
            patched.setattr(lib, call, refuse)
            with pytest.raises(FabricError, match=call):
                async with aiofabric.listen(address, provider=provider):
                    pass
        assert live_handles() == before
        async with aiofabric.listen(address, provider=provider) as listener:
            assert listener.address == address


@pytest.mark.parametrize("ways", ["listen", "reserve"])
async def test_an_address_in_use_leaves_no_object(provider: str, ways: str) -> None:
    way: Any = getattr(aiofabric, ways)
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        address = listener.address
        before = live_handles()
        with pytest.raises(OSError, match="use"):
            async with way(address, provider=provider):
                pass
        assert live_handles() == before
    assert live_handles() == []


@pytest.mark.parametrize("provider", CARRIERS)
@pytest.mark.parametrize("backlog", [0, -1])
async def test_a_backlog_without_a_place_is_refused(provider: str, backlog: int) -> None:
    with pytest.raises(ValueError, match=f"backlog must be at least 1, not {backlog}"):
        async with aiofabric.listen(HERE, 0, provider=provider, backlog=backlog):
            pass


async def test_a_backlog_has_at_least_one_place(provider: str) -> None:
    async with (
        aiofabric.listen(HERE, 0, provider=provider, backlog=1) as listener,
        anyio.create_task_group() as tasks,
    ):

        async def connect() -> None:
            async with await aiofabric.connect(listener.address, provider=provider) as active:
                await active.send(b"hello")

        tasks.start_soon(connect)
        async with await (await listener.accept_request()).accept() as passive:
            assert await passive.recv() == b"hello"
