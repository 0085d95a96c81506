"""Multi-receive: buffers that take many messages each."""

# Doubles: a post of the pool is refused.

from contextlib import AsyncExitStack
from itertools import groupby, pairwise
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aiofabric
from aiofabric import (
    Caps,
    Domain,
    EndpointSettings,
    EndpointType,
    EpAttr,
    FabricAttr,
    FabricError,
    Hints,
    Info,
    NoProviderError,
    NotSupportedError,
    SharedReceive,
    TruncatedMessageError,
)
from aiofabric._ffi import constants, lib
from aiofabric.features import Quirk
from aiofabric.info import SHARED_CONTEXT
from tests.fixtures.peers import peers, quirks_of, skip_without
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

CAPS = Caps.MSG | Caps.MULTI_RECV


def shared_info() -> Info:
    """Of connections over tcp that share multi-receive buffers."""
    attr = EpAttr(type=EndpointType.MSG, rx_ctx_cnt=SHARED_CONTEXT)
    hints = Hints(caps=CAPS, fabric_attr=FabricAttr(prov_name="tcp"), ep_attr=attr)
    try:
        return aiofabric.getinfo("127.0.0.1", hints=hints)[0]
    except NoProviderError as error:
        pytest.skip(str(error))


PROVIDERS = ["tcp;ofi_rxm", "tcp", "shm", "sm2", "udp;ofi_rxd", "sockets"]


def overruns(provider: str) -> bool:
    """Whether its buffers may be written past; a test skips where the provider is missing."""
    skip_without(provider, CAPS)
    return Quirk.MULTI_RECV_OVERRUNS in quirks_of(provider, CAPS)


@pytest.fixture(params=PROVIDERS)
def multi(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if overruns(name):
        pytest.skip("refused, see test_no_buffer_is_written_past")
    return name


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_buffer_is_written_past(provider: str) -> None:
    """fi_msg(3), FI_MULTI_RECV: "placed ... if the message fits"; a longer one must not move the rest of the buffer.

    Where the provider does that, which a peer can bring about at any time, it has no multi-receive buffers.
    """
    options: dict[str, Any] = {"multi_recv": 65536, "recv_size": 1000, "recv_count": 4}
    if overruns(provider):
        with pytest.raises(NotSupportedError, match=r"write past a buffer .* leave multi_recv= out"):
            async with peers(provider, CAPS, **options):
                pass
        return
    async with peers(provider, CAPS, **options) as (one, other, peer, _), anyio.create_task_group() as tg:

        async def send() -> None:
            await one.send(bytes(300_000), to=peer)
            for number in range(100):
                await one.send(bytes([number]) * 900, to=peer)

        tg.start_soon(send)
        with pytest.raises(TruncatedMessageError):
            await other.recv()
        for number in range(100):
            assert await other.recv() == bytes([number]) * 900


@pytest.mark.parametrize(("room", "size"), [(1 << 20, 65536), (1 << 20, 30000), (70000, 30000)])
async def test_every_message_up_to_recv_size_fits(multi: str, room: int, size: int) -> None:
    """fi_endpoint(3), FI_OPT_MIN_MULTI_RECV: a buffer is given back when it has less than this left.

    The pool set it after fi_enable, where rxm and shm of 2.5 ignore it, and took 16384 for the longest message.
    """
    lengths = [size, 20000, size, 1, size - 1, 17000, 300, size] * 4
    async with peers(multi, CAPS, multi_recv=room, recv_size=size, recv_count=4) as (one, other, peer, _):
        assert other.recv_size == size <= other.settings.min_multi_recv

        async def send() -> None:
            for number, length in enumerate(lengths):
                await one.send(bytes([number]) * length, to=peer)

        async with anyio.create_task_group() as tg:
            tg.start_soon(send)
            for number, length in enumerate(lengths):
                assert await other.recv() == bytes([number]) * length


async def test_option_that_the_program_made_smaller(multi: str) -> None:
    """It is read back: what `prepare` has set must leave room for a message."""

    def prepare(settings: EndpointSettings) -> None:
        settings.min_multi_recv = 500

    with pytest.raises(NotSupportedError, match=r"less than 500 bytes left.*recv_size is at most 500 here"):
        async with peers(multi, CAPS, multi_recv=65536, recv_size=1000, prepare=prepare):
            pass


async def test_many_messages_share_a_buffer(multi: str) -> None:
    async with AsyncExitStack() as stack:
        one, other, peer, _ = await stack.enter_async_context(
            peers(multi, CAPS, multi_recv=65536, recv_size=1000, recv_count=2)
        )
        for number in range(20):
            await one.send(number.to_bytes(2, "big") * 400, to=peer)
        views = [await stack.enter_async_context(other.recv_view()) for _ in range(20)]
        assert views == [number.to_bytes(2, "big") * 400 for number in range(20)]
        places = sorted(np.frombuffer(view, np.uint8).ctypes.data for view in views)
        apart = [after - before for before, after in pairwise(places)]
        assert all(distance >= 800 for distance in apart)
        assert sum(distance < 1600 for distance in apart) >= 18  # the messages of a buffer follow each other


async def test_buffers_come_back(multi: str) -> None:
    """Far more than the buffers hold: each is posted again once the provider and the reader have released it.

    The provider fills a buffer until less than recv_size is left.
    """
    places: list[int] = []
    async with peers(multi, CAPS, multi_recv=8192, recv_size=1000, recv_count=2) as (one, other, peer, _):

        async def send() -> None:
            for number in range(200):
                await one.send(number.to_bytes(2, "big") * 300, to=peer)

        async with anyio.create_task_group() as tg:
            tg.start_soon(send)
            for number in range(200):
                async with other.recv_view() as view:
                    assert view == number.to_bytes(2, "big") * 300
                    places.append(np.frombuffer(view, np.uint8).ctypes.data)
    fills = [list(run) for _, run in groupby(places, lambda place: (place - min(places)) // 8192)]
    assert len(fills) > 10
    for fill in fills[:-1]:
        last = (fill[-1] - min(places)) % 8192
        assert last <= 8192 - 1000 < last + 600


async def test_a_lent_message_keeps_its_buffer(multi: str) -> None:
    async with peers(multi, CAPS, multi_recv=8192, recv_size=1000, recv_count=4) as (one, other, peer, _):
        await one.send(b"keep me", to=peer)
        async with other.recv_view() as view:
            for number in range(12):  # more than the rest of one buffer holds
                await one.send(number.to_bytes(2, "big") * 400, to=peer)
            for number in range(12):
                assert await other.recv() == number.to_bytes(2, "big") * 400
            assert bytes(view) == b"keep me"


async def test_as_many_lent_messages_as_buffers_are_no_reason_for_a_warning(multi: str) -> None:
    """Messages share buffers, so the next one may arrive."""
    async with peers(multi, CAPS, multi_recv=8192, recv_size=1000, recv_count=2) as (one, other, peer, _):
        for number in range(2):
            await one.send(b"%d" % number, to=peer)
        async with other.recv_view() as first, other.recv_view() as second, anyio.create_task_group() as tasks:
            got: list[bytes] = []

            async def receive() -> None:
                got.append(await other.recv())

            tasks.start_soon(receive)  # a warning is an error here
            await anyio.wait_all_tasks_blocked()
            await one.send(b"2", to=peer)
            while not got:
                await anyio.lowlevel.checkpoint()
            assert [bytes(first), bytes(second), *got] == [b"0", b"1", b"2"]
        pool = other.statistics().pool
        assert pool is not None
        assert pool.exhausted == 0


async def test_cancelling_a_receive_loses_nothing(multi: str) -> None:
    async with peers(multi, CAPS, multi_recv=8192, recv_size=1000, recv_count=2) as (one, other, peer, _):
        with anyio.move_on_after(0.01):
            await other.recv()
        await one.send(b"late", to=peer)
        assert await other.recv() == b"late"


async def test_a_shared_receive_context_takes_many_messages_per_buffer() -> None:
    info = shared_info()

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


async def test_shared_receive_context_without_the_option() -> None:
    """2.x's tcp gives a shared context's buffer back with 16 KiB left, and has no option to change that."""
    with Domain(shared_info()) as domain:
        with pytest.raises(NotSupportedError, match="recv_size is at most 16384 here"):
            SharedReceive(domain, recv_size=16385, multi_recv=65536)
        SharedReceive(domain, recv_size=16384, multi_recv=65536).close()


async def test_a_provider_without_it_says_so(pair: Pair) -> None:
    with pytest.raises(BaseException) as caught:
        async with pair(multi_recv=1 << 20):
            pass
    assert caught.group_contains(NotSupportedError) or isinstance(caught.value, NotSupportedError)


async def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="needs recv_size"):
        aiofabric.EndpointOptions(multi_recv=65536, recv_size=None)
    with pytest.raises(ValueError, match="a multi-receive buffer of 1024 bytes is too small"):
        async with aiofabric.open_endpoint(EndpointType.RDM, multi_recv=1024, recv_size=1000, provider="sockets"):
            pass


async def test_what_closing_flushes_is_not_posted_to_what_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """tcp of 2.x flushes a shared context's buffers; posting one again then writes to freed memory."""
    info = shared_info()
    posted = []

    def post(*call: object) -> Any:
        posted.append(call)
        return -constants.FI_EAGAIN

    with Domain(info) as domain, SharedReceive(domain, recv_size=4096, recv_count=2, multi_recv=65536):
        monkeypatch.setattr(lib, "fi_recvmsg", post)
    assert posted == []


async def test_a_buffer_that_the_provider_refuses_is_posted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    post, refused = lib.fi_recvmsg, [-constants.FI_EAGAIN] * 4  # both buffers of both ends
    monkeypatch.setattr(lib, "fi_recvmsg", lambda *call: refused.pop() if refused else post(*call))
    async with peers("sockets", CAPS, multi_recv=4096, recv_size=100, recv_count=2) as (one, other, peer, _):
        with anyio.fail_after(10):
            for number in range(100):  # far more than all buffers hold together
                await one.send(b"%100d" % number, to=peer)
                assert await other.recv() == b"%100d" % number
    assert refused == []


async def test_a_buffer_that_cannot_be_posted_is_an_error_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib, "fi_recvmsg", lambda *_: -constants.FI_EINVAL)
    with pytest.raises(FabricError, match="fi_recvmsg"):
        async with peers("sockets", CAPS, multi_recv=4096, recv_size=100, recv_count=2):
            pass


async def test_a_provider_that_does_not_tell_its_least_room_takes_what_tcp_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2.x's tcp uses 16384 bytes, and reports nothing."""
    monkeypatch.setattr(lib, "fi_getopt", lambda *_: -constants.FI_ENOPROTOOPT)
    with pytest.raises(NotSupportedError, match=r"less than 16384 bytes left.*recv_size is at most 16384 here"):
        async with peers("sockets", CAPS, multi_recv=1 << 20, recv_size=16385, recv_count=2):
            pass
    async with peers("sockets", CAPS, multi_recv=1 << 20, recv_size=16384, recv_count=2) as (one, other, peer, _):
        await one.send(bytes(16384), to=peer)
        assert await other.recv() == bytes(16384)


async def test_a_receive_that_waits_ends_with_the_endpoint(multi: str) -> None:
    async with peers(multi, CAPS, multi_recv=65536, recv_size=1000, recv_count=2) as (_one, other, _there, _back):
        ended: list[bool] = []

        async def receive() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await other.recv()
            ended.append(True)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                tasks.start_soon(receive)
                await anyio.wait_all_tasks_blocked()
                other.close()
        assert ended == [True] * 2
