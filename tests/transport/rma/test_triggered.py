"""Triggered operations, which start when a counter reaches a threshold."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import (
    Access,
    Caps,
    Counter,
    Datatype,
    Domain,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
    HmemIface,
    NotSupportedError,
    OpFlags,
    RdmEndpoint,
    Trigger,
    XpuTrigger,
)
from aiofabric._ffi import constants, ffi
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import handle_of
from tests.fixtures.peers import peers
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

CAPS = Caps.MSG | Caps.TAGGED | Caps.RMA | Caps.TRIGGER


@asynccontextmanager
async def triggered() -> AsyncIterator[tuple[RdmEndpoint, RdmEndpoint, aiofabric.Peer, Counter]]:
    """Two endpoints of the one provider that has triggers, and a counter of the first one's domain."""
    hints = Hints(caps=CAPS, fabric_attr=FabricAttr(prov_name="sockets"), ep_attr=EpAttr(type=EndpointType.RDM))
    with Domain(aiofabric.getinfo("127.0.0.1", hints=hints)[0]) as domain, Counter(domain) as counter:
        async with peers("sockets", CAPS, domain=domain) as (one, other, peer, _):
            yield one, other, peer, counter


async def test_a_message_leaves_when_the_counter_gets_there() -> None:
    async with triggered() as (one, other, peer, counter), anyio.create_task_group() as tg:
        tg.start_soon(lambda: one.send_when(Trigger(counter, 2), b"at two", to=peer))
        await anyio.wait_all_tasks_blocked()
        counter.add(1)
        await one.send(b"before", to=peer)
        assert await other.recv() == b"before"
        counter.add(1)
        assert await other.recv() == b"at two"


async def test_a_tagged_message_when_the_counter_is_there_already() -> None:
    async with triggered() as (one, other, peer, counter):
        counter.set(5)
        await one.send_when(Trigger(counter, 5), b"tagged", to=peer, tag=7)
        assert await other.recv_tagged(7) == b"tagged"


async def test_reads_and_writes() -> None:
    memory = bytearray(b"................")
    async with triggered() as (one, other, peer, counter):
        access = Access.REMOTE_READ | Access.REMOTE_WRITE
        with other.domain.register(memory, access=access) as region:
            room = bytearray(16)
            async with anyio.create_task_group() as tg:
                tg.start_soon(lambda: one.write_when(Trigger(counter, 1), b"written!", region.remote, to=peer))
                tg.start_soon(lambda: one.read_into_when(Trigger(counter, 2), room, region.remote, to=peer))
                await anyio.wait_all_tasks_blocked()
                assert memory[:8] == b"........"
                counter.add(1)
                while memory[:8] != b"written!":
                    await anyio.lowlevel.checkpoint()
                counter.add(1)
            assert room == b"written!........"
            with pytest.raises(IndexError):
                await one.write_when(Trigger(counter, 1), bytes(17), region.remote, to=peer)


async def test_closing_the_endpoint_ends_what_did_not_start() -> None:
    async def wait(one: RdmEndpoint, peer: aiofabric.Peer, counter: Counter) -> None:
        with pytest.raises(ClosedResourceError):
            await one.send_when(Trigger(counter, 1), b"never", to=peer)

    async with triggered() as (one, _, peer, counter), anyio.create_task_group() as tg:
        tg.start_soon(wait, one, peer, counter)
        await anyio.wait_all_tasks_blocked()
        counter.close()  # closes the endpoint first: the provider would follow the operation to a freed counter
        assert one.closed


async def test_a_counter_cannot_start_what_its_endpoint_took_along() -> None:
    """The provider follows the operation to the endpoint, which is gone."""
    async with triggered() as (one, _, peer, counter):
        async with anyio.create_task_group() as tg:
            tg.start_soon(lambda: one.send_when(Trigger(counter, 1), b"never", to=peer))
            await anyio.wait_all_tasks_blocked()
            tg.cancel_scope.cancel()
        one.close()
        assert counter.closed
        with pytest.raises(ClosedResourceError):
            counter.add(1)


async def close_after_an_alias_has_posted(parent: Parent, first: str) -> None:
    async def wait(alias: RdmEndpoint, peer: aiofabric.Peer, counter: Counter) -> None:
        with pytest.raises(ClosedResourceError):
            await alias.send_when(Trigger(counter, 1), b"never", to=peer)

    async with triggered() as (one, _, peer, counter):
        alias = one.alias(OpFlags.DELIVERY_COMPLETE)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tg:
                tg.start_soon(wait, alias, peer, counter)
                await anyio.wait_all_tasks_blocked()
                {"counter": counter, "alias": alias, "endpoint": one}[first].close()
                assert counter.closed == (first != "alias")
                one.close()
        assert counter.closed
        with pytest.raises(ClosedResourceError):
            counter.add(1)


@pytest.mark.parametrize("first", ["counter", "alias", "endpoint"])
async def test_an_operation_of_an_alias_ends_with_the_endpoint(child: Callable[..., Child], first: str) -> None:
    """It was forgotten with the alias: its task hung, and the counter started it on a freed endpoint."""
    await child(close_after_an_alias_has_posted, first).aresult()


async def test_a_triggered_operation_goes_on_when_its_alias_is_closed() -> None:
    async with triggered() as (one, other, peer, counter), anyio.create_task_group() as tg:
        alias = one.alias(OpFlags.DELIVERY_COMPLETE)
        tg.start_soon(lambda: alias.send_when(Trigger(counter, 1), b"of the alias", to=peer))
        await anyio.wait_all_tasks_blocked()
        alias.close()
        one.remove_peer(peer)
        assert peer.native in handle_of(one).numbers_in_use()  # no other peer gets its number meanwhile
        counter.add(1)
        assert await other.recv() == b"of the alias"
    assert not handle_of(one).numbers_in_use()


async def test_tcp_has_no_triggers(pair: Pair) -> None:
    async with pair() as (active, _):
        with Counter(active.domain) as counter, pytest.raises(NotSupportedError, match=r"FI_TRIGGER.*sockets"):
            await active.send_when(Trigger(counter, 1), b"never")


async def test_what_a_device_triggers() -> None:
    """No provider here has it; what it would be told is all there."""
    slot = ffi.new("struct fi_context2 *")
    condition = XpuTrigger(HmemIface.CUDA, 1, [(Datatype.UINT64, 0x1000, 7), (Datatype.UINT64, 0x1008, 8)])
    async with peers("sockets", Caps.MSG) as (one, _, peer, _):
        condition.fill(slot, handle_of(one))
        context = ffi.cast("struct fi_triggered_context *", slot)
        xpu = context.trigger.xpu
        assert context.event_type == constants.FI_TRIGGER_XPU
        assert (xpu.count, xpu.iface, xpu.device.cuda) == (2, HmemIface.CUDA, 1)
        assert [(v.datatype, v.value.val64) for v in xpu.var[0:2]] == [(Datatype.UINT64, 7), (Datatype.UINT64, 8)]
        with pytest.raises(NotSupportedError, match="FI_XPU"):
            await one.send_when(condition, b"never", to=peer)
