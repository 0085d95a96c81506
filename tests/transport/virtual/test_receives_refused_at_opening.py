"""Hazard: shm of 1.17 refuses the receives of a new connection; a message that comes before its receive is lost."""

# Doubles: the provider's queue of receives is full at a moment that the test chooses.

from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric._ffi import constants, lib
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("provider", ["shm", "sm2"])
async def test_a_message_that_is_sent_at_once_arrives(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require(provider)
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
