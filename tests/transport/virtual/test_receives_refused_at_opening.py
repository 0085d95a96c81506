"""Hazard: shm of 1.17 refuses the receives of a new connection; a message that comes before its receive is lost."""

# Doubles: the provider's queue of receives is full at a moment that the test chooses.

import logging
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import FabricAttr, FabricError, Hints
from aiofabric._ffi import constants, lib
from aiofabric.features import Quirk, quirks
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("provider", ["shm", "sm2"])
async def test_a_message_that_is_sent_at_once_arrives(
    provider: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    require(provider)
    caplog.set_level(logging.INFO, "aiofabric")
    receive, refusals = lib.fi_trecv, [-constants.FI_EAGAIN, -constants.FI_ENOMEM] * 3

    def refuse(*args: Any) -> int:
        return refusals.pop() if refusals else receive(*args)

    async with aiofabric.listen("127.0.0.1", 0, provider=provider, recv_count=4) as listener:
        got: list[bytes] = []

        async def accept() -> None:
            async with await (await listener.accept_request()).accept() as accepted:
                got.append(await accepted.recv())

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                monkeypatch.setattr(lib, "fi_trecv", refuse)
                tasks.start_soon(accept)
                async with await aiofabric.connect(listener.address, provider=provider, recv_count=4) as connected:
                    connected.send_nowait(b"at once")
    assert got == [b"at once"]
    assert refusals == []
    [info, *_] = aiofabric.getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name=provider)))
    strict = Quirk.IGNORE_FORGOTTEN in quirks(info)
    assert ("a new connection waits: the provider has no room for its receives" in caplog.text) is strict


@pytest.mark.parametrize("provider", ["shm", "tcp;ofi_rxm"])
async def test_a_refusal_for_another_reason_is_an_error(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require(provider)
    async with aiofabric.listen("127.0.0.1", 0, provider=provider, recv_count=4) as listener:
        with monkeypatch.context() as patch:
            patch.setattr(lib, "fi_trecv", lambda *_: -constants.FI_EINVAL)
            with anyio.fail_after(10), pytest.raises(FabricError, match="fi_trecv"):
                await aiofabric.connect(listener.address, provider=provider, recv_count=4)
