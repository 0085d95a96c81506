"""fi_getinfo(3), mem_tag_format: tags with bits that a provider ignores are refused, and do no harm when sent."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Caps, EndpointType, EpAttr, FabricAttr, Hints, NotSupportedError, library_version
from aiofabric.transport.tags import TagFormat
from tests.fixtures.children import Child, ChildFailed, Parent
from tests.fixtures.internals import handle_of
from tests.fixtures.peers import peers, skip_without, where

pytestmark = pytest.mark.anyio

TAGGED = Caps.MSG | Caps.TAGGED
COLLECTIVE = TAGGED | Caps.COLLECTIVE
TOP = 1 << 63
RXM = "tcp;ofi_rxm"


def tag_format(pattern: int) -> TagFormat:
    info: Any = SimpleNamespace(ep_attr=SimpleNamespace(mem_tag_format=pattern))
    return TagFormat.of(info)


@pytest.mark.once
def test_bits_are_counted_from_the_highest_one_down() -> None:
    """ "Optionally begins with a series of bits set to 0, to signify bits which are ignored by the provider"."""
    formats = {0: 64, 0xAAAAAAAAAAAAAAAA: 64, 0x5555555555555555: 63, 0x30FF: 14, 0xFFFF: 16, 1: 40, 2: 40}
    assert {pattern: tag_format(pattern).bits for pattern in formats} == formats
    for pattern, bits in formats.items():
        tag_format(pattern).check((1 << bits) - 1, (1 << bits) - 1)
        for wrong in (1 << bits, -1, (1 << bits) + 5):
            for tag, ignore in ((wrong, 0), (0, wrong)):
                with pytest.raises(ValueError, match=f"a tag has {bits} bits, and must not be negative") as caught:
                    tag_format(pattern).check(tag, ignore)
                assert str(caught.value).endswith(f"ignore={(1 << bits) - 1:#x} takes any tag")


@pytest.mark.once
def test_masks_have_whole_fields() -> None:
    """ "Valid masks ... would be a bitwise OR'ing of zero or more of ... 0x3000, 0x0F00, and 0x00FF"."""
    fields = (0x3000, 0x0F00, 0x00FF)
    valid = {sum(field for at, field in enumerate(fields) if chosen >> at & 1) for chosen in range(8)}
    for ignore in range(0x4000):
        with nullcontext() if ignore in valid else pytest.raises(ValueError, match="part of a field"):
            tag_format(0x30FF).check(0, ignore)
    tag_format(0).check(0, 0x123456789ABCDEF)
    tag_format(0xAAAAAAAAAAAAAAAA).check(0, 0x123456789ABCDEF)


async def test_masks_have_whole_fields_of_the_format_that_was_asked_for() -> None:
    """rxm takes any format, and passes the tags on."""
    hints = Hints(ep_attr=EpAttr(mem_tag_format=0x30FF))
    async with peers(RXM, TAGGED, hints=hints) as (one, other, there, _):
        assert other.info.ep_attr.mem_tag_format == 0x30FF
        await one.send_tagged(b"fields", 0x1A05, to=there)
        for part in (0x0001, 0x1000, 0x00FE):
            with pytest.raises(ValueError, match="part of a field"):
                await other.recv_tagged(0x1A00, ignore=part)
        message = await other.recv_tagged(0x1A00, ignore=0x00FF)
        assert (message, message.tag) == (b"fields", 0x1A05)


async def send_and_receive(parent: Parent, provider: str, caps: Caps, pattern: int, bits: int) -> str:
    """In a process of its own: each way in which a tag, or a mask, comes to the provider."""
    hints = Hints(ep_attr=EpAttr(mem_tag_format=pattern))
    async with peers(provider, caps, hints=hints) as (one, other, there, _):
        assert one.info.ep_attr.mem_tag_format.bit_length() == bits
        too_much, most = 1 << bits, (1 << bits) - 1
        buffer = bytearray(100)
        for wrong in (too_much, too_much | 7, 1 << 64, -1):
            for call in (
                lambda tag: one.send_tagged(b"x", tag, to=there),
                lambda tag: one.send_tagged(bytes(100_000), tag, to=there),
                lambda tag: one.send_tagged(b"x", tag, to=there, remote_data=1),
                other.recv_tagged,
                lambda tag: other.recv_tagged(0, ignore=tag),
                lambda tag: other.recv_tagged_into(buffer, tag),
                lambda tag: other.recv_tagged_into(buffer, 0, ignore=tag),
                other.peek_tagged,
                lambda tag: other.claim_tagged(0, ignore=tag),
                other.discard_tagged,
            ):
                with (
                    anyio.fail_after(5),
                    pytest.raises(ValueError, match=f"a tag has {bits} bits, and must not be negative"),
                ):
                    await call(wrong)
            async with one.batch(to=there) as batch:
                with pytest.raises(ValueError, match="bits, and must not be negative"):
                    await batch.send(b"x", tag=wrong)
        for tag in (most, 5):
            async with anyio.create_task_group() as tg, one.batch(to=there) as batch:
                for size in (8, 50_000):
                    tg.start_soon(partial(one.send_tagged, bytes(size), tag, to=there))
                    assert len(await other.recv_tagged(tag)) == size
                await batch.send(b"of a batch", tag=tag)
                assert (await other.recv_tagged_into(buffer, tag)).length == 10
        await one.send_tagged(b"any", 9, to=there)
        if provider != "shm" or library_version() >= (1, 18):
            assert await other.recv_tagged(0, ignore=most) == b"any"
        await one.send(b"plain", to=there)
        assert await other.recv() == b"plain"
    return "done"


@pytest.mark.parametrize(
    ("provider", "caps", "pattern", "bits"),
    [
        (RXM, COLLECTIVE, 0, 63),
        ("net", TAGGED, 0, 63),
        (RXM, TAGGED, 0xAAAAAAAAAAAA, 48),
        *((name, TAGGED, 0, 64) for name in (RXM, "tcp", "shm", "sm2", "sockets", "udp;ofi_rxd")),
    ],
)
async def test_tags_that_the_provider_would_not_understand(
    child: Any, provider: str, caps: Caps, pattern: int, bits: int
) -> None:
    """ "Applications must check the number of upper bits which are 0 and set them to 0 on all tag and ignore bits"."""
    skip_without(provider, caps)
    running: Child = child(send_and_receive, provider, caps, pattern, bits)
    assert await running.aresult() == "done"


async def collective_receiver(parent: Parent) -> bytes:
    """Takes any tag that may come."""
    async with aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider=RXM, caps=COLLECTIVE) as ep:
        assert ep.info.ep_attr.mem_tag_format.bit_length() == 63
        parent.tell(ep.local_address.raw)
        return bytes(await ep.recv_tagged(0, ignore=TOP - 1))


async def collective_sender(parent: Parent, address: bytes) -> None:
    """Sends what aiofabric refuses, with the bit of rxm's collectives. The completion of that ends the process."""
    async with aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider=RXM, caps=COLLECTIVE) as ep:
        handle_of(ep).tags, handle_of(ep).tag_bits = tag_format(0), 64
        await ep.send_tagged(b"harm", TOP | 5, to=await ep.add_peer(address))
        await anyio.sleep_forever()


async def test_what_a_peer_sends_with_them_does_no_harm(child: Any) -> None:
    """rxm_handle_coll_eager gives a receive that such a message matches to the collectives, which it is none of."""
    skip_without(RXM, COLLECTIVE)
    receiver: Child = child(collective_receiver)
    address = await receiver.areceive()
    sender: Child = child(collective_sender, address)
    with pytest.raises(ChildFailed, match="ended: signal SIGSEGV"):
        await sender.aresult()
    async with aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider=RXM, caps=COLLECTIVE) as ep:
        await ep.send_tagged(b"well", 5, to=await ep.add_peer(address))
        assert await receiver.aresult() == b"well"


async def test_connections_over_tags_that_are_too_short() -> None:
    """Virtual connections use 47 bits, and ignore some of them."""
    skip_without(RXM, TAGGED)
    for pattern, words in ((0xAAAA, "has 16 bits"), (0xFFFFFFFFFFFF, "part of a field")):
        hints = Hints(
            ep_attr=EpAttr(type=EndpointType.RDM, mem_tag_format=pattern), fabric_attr=FabricAttr(prov_name=RXM)
        )
        with pytest.raises(NotSupportedError, match=f"need tags of 47 bits.*{words}"):
            async with aiofabric.listen(where(RXM), hints=hints):
                pass
