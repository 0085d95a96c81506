"""A send that the provider cannot do, or would do wrongly, is refused before it is posted."""

# Doubles: no provider refuses a small message on request.

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    Caps,
    EndpointType,
    FabricError,
    Hints,
    NotSupportedError,
    OpFlags,
    RemoteRegion,
    TxAttr,
)
from aiofabric._ffi import constants, lib
from aiofabric.features import Quirk, quirks
from tests.fixtures.peers import RDM, peers, skip_without
from tests.fixtures.through_python import inject_through_python

pytestmark = pytest.mark.anyio

CAPS = Caps.MSG | Caps.TAGGED
EMPTY = "An empty message with FI_DELIVERY_COMPLETE would never complete over this provider: send a byte"


async def arrives(other: Any, send: Callable[[], Any], expected: bytes) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        with anyio.fail_after(10):
            assert await other.recv() == expected


@pytest.mark.parametrize("default", [True, False])
async def test_an_empty_message_whose_delivery_would_never_complete_is_refused(default: bool) -> None:
    """shm of 1.17; other versions deliver it."""
    hints = Hints(tx_attr=TxAttr(op_flags=OpFlags.DELIVERY_COMPLETE)) if default else None
    flags: dict[str, Any] = {} if default else {"flags": OpFlags.DELIVERY_COMPLETE}
    async with peers("shm", CAPS, hints=hints) as (one, other, to, _):
        await arrives(other, lambda: one.send(b"first", to=to, **flags), b"first")  # this one finds the peer's memory
        for data in (b"", [b"", b""]):
            if Quirk.EMPTY_DELIVERY_HANGS in quirks(one.info):
                with anyio.fail_after(5), pytest.raises(NotSupportedError, match=EMPTY):
                    await one.send(data, to=to, **flags)
                assert one.statistics().sends == 0
            else:
                await arrives(other, lambda data=data: one.send(data, to=to, **flags), b"")  # type: ignore[misc]
        await arrives(other, lambda: one.send(b"x", to=to, **flags), b"x")


@pytest.mark.parametrize("provider", RDM)
async def test_flags_that_no_send_has_are_an_error(provider: str) -> None:
    async with peers(provider, CAPS) as (one, other, to, _):
        wrong = OpFlags.PEEK | OpFlags.CLAIM
        with pytest.raises(ValueError, match=f"cannot have the flags {int(wrong):#x}$"):
            await one.send(b"x", to=to, flags=wrong | OpFlags.COMPLETION)
        await arrives(other, lambda: one.send(b"y", to=to, flags=OpFlags.COMPLETION), b"y")


async def test_data_that_the_provider_does_not_carry_is_refused() -> None:
    skip_without("udp", Caps.MSG, EndpointType.DGRAM)
    opened: dict[str, Any] = {"provider": "udp"}
    async with aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", **opened) as one:
        me = await one.add_peer(one.local_address)
        assert one.info.domain_attr.cq_data_size == 0
        with pytest.raises(NotSupportedError, match="The provider carries no remote completion data"):
            await one.send(b"x", to=me, remote_data=1)
        await arrives(one, lambda: one.send(b"y", to=me), b"y")


@pytest.mark.parametrize("provider", RDM)
async def test_memory_is_out_of_reach_without_the_capability(provider: str) -> None:
    async with peers(provider, CAPS) as (one, _, to, __):
        if Caps.RMA in one.info.caps:
            pytest.skip(f"{provider} adds FI_RMA unasked")
        remote = RemoteRegion(0, 1, 1)
        with anyio.fail_after(5), pytest.raises(NotSupportedError, match="RMA"):
            await one.write(b"x", remote, to=to)
        with anyio.fail_after(5), pytest.raises(NotSupportedError, match="RMA"):
            await one.read(remote, to=to)


@pytest.mark.parametrize(("call", "tag"), [("fi_inject", None), ("fi_tinject", 7)])
@pytest.mark.parametrize("provider", RDM)
async def test_a_small_message_that_the_provider_refuses_is_an_error_of_the_call(
    provider: str, call: str, tag: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject_through_python(monkeypatch)
    async with peers(provider, CAPS) as (one, other, to, _):

        async def send(data: bytes) -> None:
            await (one.send(data, to=to) if tag is None else one.send_tagged(data, tag, to=to))

        async def recv() -> bytes:
            return bytes(await (other.recv() if tag is None else other.recv_tagged(tag)))

        async def exchange(data: bytes) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send, data)
                with anyio.fail_after(10):
                    assert await recv() == data

        await exchange(b"before")
        before = one.statistics().injected
        function = getattr(lib, call)
        for code in (constants.FI_EINVAL, constants.FI_EAGAIN):
            answers = [-code]
            with monkeypatch.context() as patched:
                patched.setattr(lib, call, lambda *args: answers.pop() if answers else function(*args))  # noqa: B023
                if code == constants.FI_EAGAIN:
                    await exchange(b"again")
                else:
                    with pytest.raises(FabricError) as caught:
                        await send(b"refused")
                    assert (caught.value.call, caught.value.errno) == (call, code)
                    assert one.statistics().injected == before
            assert answers == []
        if one.info.tx_attr.inject_size >= 5:
            for _ in range(3):
                await exchange(b"x")
            assert one.statistics().injected > before
