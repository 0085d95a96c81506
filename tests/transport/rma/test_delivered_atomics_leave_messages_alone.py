"""Hazard: after an atomic with FI_DELIVERY_COMPLETE, 1.17's shm gives two messages the same memory."""

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from aiofabric import Access, AtomicOp, Caps, Datatype, NotSupportedError, OpFlags
from tests.fixtures.children import Child, Parent
from tests.fixtures.peers import peers, skip_without

pytestmark = pytest.mark.anyio

CAPS = Caps.MSG | Caps.ATOMIC
REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE
OF_NUMBERS: dict[str, Any] = {"datatype": Datatype.UINT64, "flags": OpFlags.DELIVERY_COMPLETE}


async def counts(parent: Parent, provider: str) -> None:
    async with peers(provider, CAPS) as (one, other, there, _):
        target = bytearray(8)
        with anyio.fail_after(15), other.domain.register(target, access=REMOTE) as region:
            for _ in range(3):
                with suppress(NotSupportedError):
                    await one.atomic(AtomicOp.SUM, 1, region.remote, to=there, **OF_NUMBERS)
                with suppress(NotSupportedError):
                    await one.fetch_atomic(AtomicOp.SUM, 1, region.remote, to=there, **OF_NUMBERS)
            for _ in range(20):
                messages = [secrets.token_bytes(4000) for _ in range(10)]
                for message in messages:
                    await one.send(message, to=there)
                assert [bytes(await other.recv()) for _ in messages] == messages


@pytest.mark.parametrize("provider", ["shm", "sm2", "tcp;ofi_rxm", "udp;ofi_rxd", "sockets"])
async def test_messages_arrive_as_they_were_sent(child: Callable[..., Child], provider: str) -> None:
    skip_without(provider, CAPS)
    await child(counts, provider).aresult()
