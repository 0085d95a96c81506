"""Multi-receive: buffers that take many messages each."""

from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    Caps,
    Domain,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
    NoProviderError,
    NotSupportedError,
    SharedReceive,
)
from aiofabric._ffi import constants, lib
from aiofabric.info import SHARED_CONTEXT
from tests.fixtures.peers import peers
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

CAPS = Caps.MSG | Caps.MULTI_RECV


@pytest.fixture(params=["tcp;ofi_rxm", "tcp", "shm", "sm2", "udp;ofi_rxd", "sockets"])
def multi(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_many_messages_share_a_buffer(multi: str) -> None:
    async with peers(multi, CAPS, multi_recv=65536, recv_size=1000, recv_count=2) as (one, other, peer, _):
        pool = other._handle.pool
        assert pool is not None
        for number in range(20):
            await one.send(number.to_bytes(2, "big") * 400, to=peer)
        got = [await other.recv() for _ in range(20)]
        assert got == [number.to_bytes(2, "big") * 400 for number in range(20)]
        assert pool.statistics().posted == 2


async def test_buffers_come_back(multi: str) -> None:
    """Far more than the buffers hold: each is posted anew once the provider and the reader are done with it."""
    async with peers(multi, CAPS, multi_recv=8192, recv_size=1000, recv_count=2) as (one, other, peer, _):

        async def send() -> None:
            for number in range(200):
                await one.send(number.to_bytes(2, "big") * 300, to=peer)

        async with anyio.create_task_group() as tg:
            tg.start_soon(send)
            for number in range(200):
                assert await other.recv() == number.to_bytes(2, "big") * 300


async def test_a_lent_message_keeps_its_buffer(multi: str) -> None:
    async with peers(multi, CAPS, multi_recv=8192, recv_size=1000, recv_count=4) as (one, other, peer, _):
        await one.send(b"keep me", to=peer)
        async with other.recv_view() as view:
            for number in range(12):  # more than the rest of one buffer holds
                await one.send(number.to_bytes(2, "big") * 400, to=peer)
            for number in range(12):
                assert await other.recv() == number.to_bytes(2, "big") * 400
            assert bytes(view) == b"keep me"


async def test_cancelling_a_receive_loses_nothing(multi: str) -> None:
    async with peers(multi, CAPS, multi_recv=8192, recv_size=1000, recv_count=2) as (one, other, peer, _):
        with anyio.move_on_after(0.01):
            await other.recv()
        await one.send(b"late", to=peer)
        assert await other.recv() == b"late"


async def test_a_shared_receive_context_takes_many_messages_per_buffer() -> None:
    attr = EpAttr(type=EndpointType.MSG, rx_ctx_cnt=SHARED_CONTEXT)
    hints = Hints(caps=CAPS, fabric_attr=FabricAttr(prov_name="tcp"), ep_attr=attr)
    try:
        info = aiofabric.getinfo("127.0.0.1", hints=hints)[0]
    except NoProviderError as error:
        pytest.skip(str(error))

    async def accept(listener: aiofabric.Listener, shared: SharedReceive) -> None:
        async with await (await listener.accept_request()).accept() as ep:
            assert ep.recv_size == 4096
            got = [await shared.recv() for _ in range(100)]
            assert got == [number.to_bytes(2, "big") * 1000 for number in range(100)]

    with Domain(info) as domain, SharedReceive(domain, recv_size=4096, recv_count=2, multi_recv=65536) as shared:
        async with (
            aiofabric.listen("127.0.0.1", provider="tcp", shared_receive=shared) as listener,
            anyio.create_task_group() as tg,
        ):
            tg.start_soon(accept, listener, shared)
            async with await aiofabric.connect(listener.address) as sender:
                for number in range(100):
                    await sender.send(number.to_bytes(2, "big") * 1000)
                with pytest.raises(aiofabric.FabricConnectionResetError):
                    await sender.recv()


async def test_a_provider_without_it_says_so(pair: Pair) -> None:
    with pytest.raises(BaseException) as caught:
        async with pair(multi_recv=1 << 20):
            pass
    assert caught.group_contains(NotSupportedError) or isinstance(caught.value, NotSupportedError)


async def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="needs recv_size"):
        aiofabric.EndpointOptions(multi_recv=65536, recv_size=None)
    with pytest.raises(ValueError, match="a multi-receive buffer of 1024 bytes is too small"):
        async with aiofabric.open_endpoint(EndpointType.RDM, multi_recv=1024, recv_size=1000, provider="shm"):
            pass


async def test_what_closing_flushes_is_not_posted_to_what_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """tcp of 2.x flushes a shared context's buffers; posting one again then writes to freed memory."""
    attr = EpAttr(type=EndpointType.MSG, rx_ctx_cnt=SHARED_CONTEXT)
    hints = Hints(caps=CAPS, fabric_attr=FabricAttr(prov_name="tcp"), ep_attr=attr)
    try:
        info = aiofabric.getinfo("127.0.0.1", hints=hints)[0]
    except NoProviderError as error:
        pytest.skip(str(error))
    posted = []

    def post(*call: object) -> Any:
        posted.append(call)
        return -constants.FI_EAGAIN

    with Domain(info) as domain, SharedReceive(domain, recv_size=4096, recv_count=2, multi_recv=65536):
        monkeypatch.setattr(lib, "fi_recvmsg", post)
    assert posted == []
