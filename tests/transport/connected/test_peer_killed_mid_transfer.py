"""A peer is killed in the middle of 256 MiB, in each direction: every pending operation ends with an error within a
second.
"""

import time

import anyio
import pytest

import aiofabric
from tests.fixtures.children import Parent
from tests.fixtures.providers import CARRIERS, LONGEST, OWN_HOST, over

pytestmark = [pytest.mark.anyio, pytest.mark.alone, pytest.mark.timeout(60)]

provider = over(CARRIERS)

SIZE = min(256 << 20, LONGEST)
PIECE = 1 << 20


async def doomed(parent: Parent, provider: str, sends: bool) -> None:
    async with aiofabric.listen(OWN_HOST, 0, provider=provider) as listener:
        parent.tell(listener.address.port)
        endpoint = await (await listener.accept_request()).accept(recv_size=None)
        memory = bytearray(PIECE if sends else SIZE)
        if not sends:
            await endpoint.recv_into(memory)
            parent.tell("under way")
            await endpoint.recv_into(memory)  # dies in here, or in what follows
            await anyio.sleep_forever()
        for number in range(SIZE // PIECE):
            await endpoint.send(memory)
            if number == 2:
                parent.tell("under way")


@pytest.mark.parametrize("sends", [False, True], ids=["we send", "we receive"])
async def test_peer_killed(child, provider: str, sends: bool) -> None:  # type: ignore[no-untyped-def]
    peer = child(doomed, provider, sends)
    port = await peer.areceive()
    ended: list[float] = []

    async def expect_the_end(call) -> None:  # type: ignore[no-untyped-def]
        with pytest.raises(ConnectionError):  # noqa: PT012 (whichever call it is that meets the end)
            while True:
                await call()
        ended.append(time.monotonic())

    async with await aiofabric.connect(OWN_HOST, port, provider=provider, recv_size=None) as endpoint:
        piece = bytearray(PIECE)
        async with anyio.create_task_group() as tasks:
            if sends:
                for _ in range(3):
                    await endpoint.recv_into(piece)
                for _ in range(3):
                    tasks.start_soon(expect_the_end, lambda: endpoint.recv_into(bytearray(PIECE)))
            else:
                await endpoint.send(piece)
                whole = bytes(SIZE)
                tasks.start_soon(expect_the_end, lambda: endpoint.send(whole))
                tasks.start_soon(expect_the_end, lambda: endpoint.recv_into(bytearray(64)))
            assert await peer.areceive() == "under way"
            killed = time.monotonic()
            peer.kill()
        assert max(ended) - killed < 1.0
        assert endpoint.state == "peer gone"
        with pytest.raises(ConnectionError):
            await endpoint.send(b"anybody?")
