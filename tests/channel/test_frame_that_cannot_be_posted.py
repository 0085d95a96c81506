"""Hazard: the provider refuses a frame in the middle of a large send, and the sender waits for ever."""

# Doubles: no provider refuses a chosen frame on request.

from contextlib import suppress
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric._ffi import constants
from aiofabric.channel.connect import HELLO
from aiofabric.errors import from_errno
from aiofabric.transport.route import Route
from tests.fixtures.providers import over
from tests.streams.pairs import over_fabric

pytestmark = pytest.mark.anyio
provider = over(["tcp"])


@pytest.mark.parametrize("frames", [0, 1, 3])
async def test_the_send_ends_with_the_error(provider: str, frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the first frame is refused, a later one, or the last."""
    post, count = Route.post, 0

    def refuse(route: Route, *args: Any) -> Any:
        nonlocal count
        count += 1
        if count > frames:
            raise from_errno(constants.FI_EINVAL, "fi_sendv")  # the provider's answer is raised there in the same way
        return post(route, *args)

    results: list[BaseException | None] = []
    one, other = await over_fabric(provider)
    monkeypatch.setattr(Route, "post", refuse)
    try:
        with suppress(aiofabric.FabricError):  # the first frame is posted here
            one.post(memoryview(bytearray(4 * HELLO.payload - 1)), results.append)
        with anyio.fail_after(10):
            while not results:
                await anyio.lowlevel.checkpoint()
        assert isinstance(results[0], aiofabric.FabricError)
    finally:
        one.abort()
        other.abort()


@pytest.mark.parametrize("size", [10_000, 60_000], ids=["copied", "sent from where it is"])
async def test_a_send_that_would_return_at_once_raises_the_error(
    provider: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise from_errno(constants.FI_EINVAL, "fi_sendv")

    one, other = await over_fabric(provider)
    monkeypatch.setattr(Route, "post", refuse)
    try:
        for _ in range(2):
            with pytest.raises(OSError, match="fi_sendv"):
                one.try_send(bytes(size))
        with pytest.raises(OSError, match="fi_sendv"):
            one.try_recv(1)
    finally:
        one.abort()
        other.abort()
