"""A link below the device loses and delays packets: each message arrives once, whole and in order, and so does what is
written to and read from a peer's memory.
"""

import random
import re
import subprocess
import time
import zlib

import anyio
import pytest

import aiofabric
from aiofabric import Access, MessageEndpoint, RemoteRegion
from tests.fixtures.children import Parent
from tests.fixtures.providers import CARRIERS
from tests.rdma.test_verbs import connect_to

pytestmark = [pytest.mark.anyio, pytest.mark.long]

COUNT = 150  # messages in each direction
SIZES = (10, 200, 1000, 5000)  # bytes: copied into the request, and read from registered memory
PLACE = 6000  # bytes of a peer's memory for each block
BLOCKS = 50  # written in each direction, and read back
LOSSY = ("loss", "1%", "delay", "1ms")


def numbered(number: int, chosen: random.Random) -> bytes:
    content = number.to_bytes(4, "big") + chosen.randbytes(chosen.choice(SIZES))
    return zlib.crc32(content).to_bytes(4, "big") + content


def number_of(data: bytes) -> int:
    assert zlib.crc32(data[4:]) == int.from_bytes(data[:4], "big")
    return int.from_bytes(data[4:8], "big")


async def send_numbered(endpoint: MessageEndpoint, remote: RemoteRegion) -> None:
    """Messages; after every third, a block of the peer's memory is written, and read back."""
    chosen = random.Random(COUNT)
    for number in range(COUNT):
        await endpoint.send(numbered(number, chosen))
        block, which = divmod(number, COUNT // BLOCKS)
        if which == 0:
            content = numbered(block, chosen)
            place = remote[block * PLACE :][: len(content)]
            await endpoint.write(content, place)
            assert await endpoint.read(place) == content


async def recv_numbered(endpoint: MessageEndpoint, numbers: list[int]) -> None:
    numbers.extend([number_of(bytes(await endpoint.recv())) for _ in range(COUNT)])


def queues(*change: str) -> str:
    """Change or show the queues of both ends; return what tc prints."""
    commands = [["tc", "-s", "qdisc", change[0], "dev", each, *change[1:]] for each in ("link1", "link2")]
    return "".join(subprocess.run(each, check=True, capture_output=True, text=True).stdout for each in commands)


async def crosses_a_lossy_link(parent: Parent, host: str, provider: str) -> tuple[list[list[int]], list[float], int]:
    """Exchange messages before, during and after the loss: the numbers that arrived, seconds, and lost packets."""
    arrived: list[list[int]] = []
    seconds: list[float] = []
    lost = 0
    both = Access.REMOTE_READ | Access.REMOTE_WRITE
    async with aiofabric.listen(host, 0, provider=provider) as listener:
        one, other = await connect_to(listener, provider=provider)
        assert one.info.domain_attr.name != other.info.domain_attr.name
        async with (
            one,
            other,
            one.domain.register(bytearray(BLOCKS * PLACE), access=both) as its,
            other.domain.register(bytearray(BLOCKS * PLACE), access=both) as the_others,
        ):
            ways = ((one, other, the_others.remote), (other, one, its.remote))
            for lossy in (False, True, False):
                if lossy:
                    queues("add", "root", "netem", *LOSSY)
                begin = time.monotonic()
                async with anyio.create_task_group() as tasks:
                    for sender, receiver, memory in ways:
                        arrived.append([])
                        tasks.start_soon(send_numbered, sender, memory)
                        tasks.start_soon(recv_numbered, receiver, arrived[-1])
                seconds.append(time.monotonic() - begin)
                if lossy:
                    lost = sum(map(int, re.findall(r"dropped (\d+)", queues("show"))))
                    queues("del", "root")
    return arrived, seconds, lost


@pytest.mark.parametrize("provider", CARRIERS)
async def test_packet_loss_loses_no_data_and_the_rate_comes_back(  # type: ignore[no-untyped-def]
    child, link: tuple[str, str], provider: str
) -> None:
    arrived, seconds, lost = await child(crosses_a_lossy_link, link[1], provider).aresult(120.0)
    assert lost > 0
    assert arrived == [[*range(COUNT)]] * 6
    before, during, after = seconds
    assert after < max(4 * before, during / 2), seconds
