"""A request that is for no stream of this kind is refused, also where the reason does not fit into private data."""

from typing import Any

import pytest

from aiofabric import FabricConnectionAbortedError
from aiofabric.channel.connect import accept_channel

pytestmark = pytest.mark.anyio


class Request:
    """A request of a client that is no stream, over a provider with so many bytes of private data."""

    param = b"no hello"

    def __init__(self, room: int) -> None:
        self.room = room
        self.rejections: list[bytes] = []

    def reject(self, *, param: bytes = b"") -> None:
        if len(param) > self.room:
            raise ValueError("private data is too long")
        self.rejections.append(param)


@pytest.mark.once
@pytest.mark.parametrize("room", [256, 55], ids=["tcp", "verbs"])
async def test_the_client_is_rejected_with_the_reason_if_there_is_room(room: int) -> None:
    request: Any = Request(room)
    with pytest.raises(FabricConnectionAbortedError) as caught:
        await accept_channel(request)
    reason = caught.value.detail.encode()
    assert len(reason) > 55
    assert request.rejections == [reason if len(reason) <= room else b""]
