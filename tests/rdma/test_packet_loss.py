"""A link below the device loses and delays packets: each message arrives once, whole and in order."""

import random
import re
import subprocess
import time
import zlib

import anyio
import pytest

import aiofabric
from aiofabric import MessageEndpoint
from tests.fixtures.children import Parent
from tests.rdma.test_verbs import PROVIDER, connect_to

pytestmark = [pytest.mark.anyio, pytest.mark.long]

COUNT = 150  # messages in each direction
SIZES = (10, 200, 1000, 5000)  # bytes: copied into the request, and read from registered memory
LOSSY = ("loss", "1%", "delay", "1ms")


async def send_numbered(endpoint: MessageEndpoint) -> None:
    chosen = random.Random(COUNT)
    for number in range(COUNT):
        content = number.to_bytes(4, "big") + chosen.randbytes(chosen.choice(SIZES))
        await endpoint.send(zlib.crc32(content).to_bytes(4, "big") + content)


async def recv_numbered(endpoint: MessageEndpoint, numbers: list[int]) -> None:
    for _ in range(COUNT):
        message = bytes(await endpoint.recv())
        assert zlib.crc32(message[4:]) == int.from_bytes(message[:4], "big")
        numbers.append(int.from_bytes(message[4:8], "big"))


def queues(*change: str) -> str:
    """Change or show the queues of both ends; return what tc prints."""
    commands = [["tc", "-s", "qdisc", change[0], "dev", each, *change[1:]] for each in ("link1", "link2")]
    return "".join(subprocess.run(each, check=True, capture_output=True, text=True).stdout for each in commands)


async def crosses_a_lossy_link(parent: Parent, host: str) -> tuple[list[list[int]], list[float], int]:
    """Exchange messages before, during and after the loss: the numbers that arrived, seconds, and lost packets."""
    arrived: list[list[int]] = []
    seconds: list[float] = []
    lost = 0
    async with aiofabric.listen(host, 0, provider=PROVIDER) as listener:
        one, other = await connect_to(listener, provider=PROVIDER)
        assert one.info.domain_attr.name != other.info.domain_attr.name
        async with one, other:
            for lossy in (False, True, False):
                if lossy:
                    queues("add", "root", "netem", *LOSSY)
                begin = time.monotonic()
                async with anyio.create_task_group() as tasks:
                    for sender, receiver in ((one, other), (other, one)):
                        arrived.append([])
                        tasks.start_soon(send_numbered, sender)
                        tasks.start_soon(recv_numbered, receiver, arrived[-1])
                seconds.append(time.monotonic() - begin)
                if lossy:
                    lost = sum(map(int, re.findall(r"dropped (\d+)", queues("show"))))
                    queues("del", "root")
    return arrived, seconds, lost


async def test_packet_loss_loses_no_message_and_the_rate_comes_back(child, link: tuple[str, str]) -> None:  # type: ignore[no-untyped-def]
    arrived, seconds, lost = await child(crosses_a_lossy_link, link[1]).aresult(120.0)
    assert lost > 0
    assert arrived == [[*range(COUNT)]] * 6
    before, during, after = seconds
    assert after < max(4 * before, during / 2), seconds
