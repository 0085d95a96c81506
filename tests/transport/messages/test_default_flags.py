"""Default flags of an endpoint (``tx_attr.op_flags``) hold for every form of a call without flags of its own."""

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from aiofabric import Hints, MessageEndpoint, MessageTooLongError, OpFlags, TxAttr
from tests.fixtures.providers import over

pytestmark = pytest.mark.anyio

provider = over(["tcp"])
DELIVERED = Hints(tx_attr=TxAttr(op_flags=OpFlags.DELIVERY_COMPLETE))

FORMS: dict[str, Callable[[MessageEndpoint], Coroutine[Any, Any, None]]] = {
    "one buffer": lambda ep: ep.send(b"data"),
    "pieces": lambda ep: ep.send([b"da", b"ta"]),
    "remote data": lambda ep: ep.send(b"data", remote_data=7),
    "pieces and remote data": lambda ep: ep.send([b"da", b"ta"], remote_data=7),
    "batch": lambda ep: in_a_batch(ep, b"data"),
    "batch of pieces and remote data": lambda ep: in_a_batch(ep, [b"da", b"ta"], remote_data=7),
}


async def in_a_batch(endpoint: MessageEndpoint, data: Any, **more: Any) -> None:
    async with endpoint.batch() as batch:
        await batch.send(data, **more)


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("form", FORMS)
async def test_the_default_flags_hold_for(form: str, selective: bool, pair: Any) -> None:
    """A send with FI_DELIVERY_COMPLETE does not end before the peer has posted a receive."""
    async with pair(hints=DELIVERED, accepting={"recv_size": None}, selective=selective) as (active, passive):
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(FORMS[form], active)
                await anyio.wait_all_tasks_blocked()
                await passive.send(b"meanwhile")  # by then an earlier completion of the send would have been read
                assert await active.recv() == b"meanwhile"
                assert active.statistics().sends == 1
                assert await passive.recv(16) == b"data"
        assert active.statistics().sends == 0


@pytest.mark.parametrize("selective", [False, True])
async def test_explicit_flags_replace_the_default_ones(selective: bool, pair: Any) -> None:
    async with pair(hints=DELIVERED, accepting={"recv_size": None}, selective=selective) as (active, passive):
        with anyio.fail_after(10):
            for none in (OpFlags(0), OpFlags.INJECT_COMPLETE):
                await active.send(b"data", flags=none)  # returns, although no receive is posted
            for _ in range(2):
                assert await passive.recv(16) == b"data"


async def test_explicit_flags_lift_the_limit_of_a_default_one(pair: Any) -> None:
    hints = Hints(tx_attr=TxAttr(op_flags=OpFlags.INJECT))
    async with pair(hints=hints, accepting={}) as (active, passive):
        long = bytes(active.info.tx_attr.inject_size + 1)
        with pytest.raises(MessageTooLongError, match=r"FI_INJECT \(a default flag of the endpoint\) takes at most"):
            await active.send([long, b"x"], remote_data=7)
        await active.send(long, flags=OpFlags(0))
        assert await passive.recv() == long
