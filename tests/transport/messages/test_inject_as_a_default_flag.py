"""Hazard: FI_INJECT is a default flag of sends, and a message exceeds its limit. Over rxd, it never completed."""

from functools import partial
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    Access,
    Caps,
    EndpointType,
    GetInfoFlags,
    Hints,
    MessageTooLongError,
    OpFlags,
    RemoteRegion,
    TxAttr,
    getinfo,
)
from tests.fixtures.children import run_in_child
from tests.fixtures.peers import RARE, RDM, peers, skip_without
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio

INJECTING = Hints(tx_attr=TxAttr(op_flags=OpFlags.INJECT))
REFUSED = r"FI_INJECT \(a default flag of the endpoint\) takes at most"


@pytest.mark.parametrize("provider", ["udp;ofi_rxd", "sockets", "tcp", "net"])
async def test_what_does_not_fit_is_refused(provider: str) -> None:
    async with peers(provider, Caps.MSG | Caps.TAGGED | Caps.RMA, hints=INJECTING) as (one, other, there, _):
        most = one.info.tx_attr.inject_size
        with anyio.fail_after(10):
            for long in (bytes(most + 1), [b"x", bytes(most)], bytes(30_000)):
                with pytest.raises(MessageTooLongError, match=REFUSED) as caught:
                    await one.send(long, to=there)
                assert caught.value.limit == most
                with pytest.raises(MessageTooLongError, match=REFUSED):
                    await one.send_tagged(long, 1, to=there)
                with pytest.raises(MessageTooLongError, match=REFUSED):
                    one.send_nowait(long, to=there)
            await one.send(bytes(most), to=there)
            assert len(await other.recv()) == most
            for number in range(200):  # some of them with a completion
                await one.send(b"%d" % number, to=there)
                assert await other.recv() == b"%d" % number
            await one.send(bytes(most + 1), to=there, flags=OpFlags.TRANSMIT_COMPLETE)  # a call's own flags
            assert len(await other.recv()) == most + 1
            target = bytearray(most + 1)
            with other.domain.register(target, access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
                remote = RemoteRegion.unpack(region.remote.pack())
                with pytest.raises(MessageTooLongError, match=REFUSED):
                    await one.write(b"y" * (most + 1), remote, to=there)
                await one.write(b"z" * most, remote, to=there)
                await one.write(b"y" * (most + 1), remote, to=there, flags=OpFlags.DELIVERY_COMPLETE)
                assert await one.read(remote, to=there) == b"y" * (most + 1)


@pytest.mark.parametrize("provider", RDM + RARE)
async def test_it_completes_as_a_flag_of_one_message(provider: str) -> None:
    async with peers(provider, Caps.MSG | Caps.TAGGED) as (one, other, there, _):
        with anyio.fail_after(10):
            for data in ([b""], [b"a"], [b"a", b"bc"]):
                await one.send(data, to=there, flags=OpFlags.INJECT)
                assert await other.recv() == b"".join(data)
                await one.send_tagged(data, 5, to=there, flags=OpFlags.INJECT)
                assert await other.recv_tagged(5) == b"".join(data)


async def test_a_read_of_more_goes_on() -> None:
    """In a child: rxd took the flag of the default for reads as well, and crashed."""
    skip_without("udp;ofi_rxd", Caps.RMA)
    ended = run_in_child(READS)
    assert (ended.status, ended.out, ended.err) == (0, "read\n", ""), ended


READS = """
    import anyio, aiofabric
    from aiofabric import Access, Caps, EndpointType, Hints, OpFlags, TxAttr

    async def main():
        hints = Hints(caps=Caps.MSG | Caps.RMA, tx_attr=TxAttr(op_flags=OpFlags.INJECT))
        options = {"provider": "udp;ofi_rxd", "hints": hints}
        opened = [aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", **options) for _ in range(2)]
        async with opened[0] as one, opened[1] as other:
            to, data = await one.add_peer(other.local_address), bytearray(b"z" * 100_000)
            with anyio.fail_after(10), other.domain.register(data, access=Access.REMOTE_READ) as region:
                if await one.read(region.remote, to=to) == data:
                    print("read")

    anyio.run(main)
"""


@pytest.mark.parametrize("provider", ["tcp", "udp;ofi_rxd", "sockets"])
async def test_what_does_not_fit_a_connection_is_refused(provider: str) -> None:
    require(provider)

    async def serve(listener: aiofabric.Listener) -> None:
        async with await (await listener.accept_request()).accept() as ep:
            got.extend([len(message) async for message in ep])

    got: list[int] = []
    options: dict[str, Any] = {"provider": provider, "hints": INJECTING}
    with anyio.fail_after(20):
        async with (
            aiofabric.listen("127.0.0.1", **options) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(serve, listener)
            async with await aiofabric.connect(listener.address, **options) as ep:
                most = ep.info.tx_attr.inject_size
                with pytest.raises(MessageTooLongError, match=REFUSED):
                    await ep.send(bytes(most + 1))
                await ep.send(bytes(most))
    assert got == [most]


async def test_a_later_default_is_held_to_as_well() -> None:
    async with peers("sockets") as (one, other, there, _):
        most = one.info.tx_attr.inject_size
        await one.send(bytes(most + 1), to=there)
        one.settings.tx_flags = OpFlags.INJECT
        with pytest.raises(MessageTooLongError, match=REFUSED):
            await one.send(bytes(most + 1), to=there)
        one.settings.tx_flags = OpFlags(0)
        with one.alias(OpFlags.INJECT) as alias, pytest.raises(MessageTooLongError, match=REFUSED):
            await alias.send(bytes(most + 1), to=there)
        await one.send(b"last", to=there)
        assert [len(await other.recv()) for _ in range(2)] == [most + 1, 4]


@pytest.mark.parametrize("provider", ["udp;ofi_rxd", "sockets", "tcp", "net"])
async def test_a_list_of_what_the_provider_can_do_is_no_default(provider: str) -> None:
    """Without hints providers name all flags of sends that they know."""
    skip_without(provider, Caps.MSG)
    infos = getinfo("127.0.0.1", 0, flags=GetInfoFlags.SOURCE)
    infos = [i for i in infos if (i.fabric_attr.prov_name, i.ep_attr.type) == (provider, EndpointType.RDM)]
    assert OpFlags.INJECT in infos[0].tx_attr.op_flags
    opened = [aiofabric.open_endpoint(EndpointType.RDM, info=infos[0]) for _ in range(2)]
    with anyio.fail_after(10):
        async with opened[0] as one, opened[1] as other:
            to = await one.add_peer(other.local_address)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(one.send, bytes(30_000), to=to))
                assert len(await other.recv()) == 30_000
