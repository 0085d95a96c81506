"""Hazard: Ctrl-C between two steps of one operation: a message is lost, or a buffer is released too early."""

# Doubles: no other way makes a step of the pool fail, or shows what is posted.

import asyncio
from typing import Any

import anyio
import numpy as np
import pytest

from aiofabric import Access, AtomicOp, Caps, OpFlags
from aiofabric._ffi import lib
from aiofabric.cq.submission import SubmissionQueue
from aiofabric.transport.messages.pool import Pool
from tests.fixtures.loops import LOOPS
from tests.fixtures.peers import peers

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS[:1])]

REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE


async def test_each_form_is_posted_by_libfabrics_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function in Python could raise KeyboardInterrupt after the provider accepted the operation."""
    posted: dict[str, Any] = {}
    submit = SubmissionQueue.submit

    def record(self: SubmissionQueue, what: str, function: Any, *args: Any, **how: Any) -> Any:
        posted[what] = function
        return submit(self, what, function, *args, **how)

    monkeypatch.setattr(SubmissionQueue, "submit", record)
    caps = Caps.MSG | Caps.TAGGED | Caps.RMA | Caps.ATOMIC
    async with peers("tcp;ofi_rxm", caps=caps, remote_writes=8) as (one, other, to, _):
        with anyio.fail_after(20), other.domain.register(bytearray(64), access=REMOTE, endpoint=other) as region:
            await one.send(b"x", to=to, flags=OpFlags.DELIVERY_COMPLETE)
            await one.send_tagged(b"x", 7, to=to, flags=OpFlags.DELIVERY_COMPLETE)
            assert await other.recv() == b"x"
            while await other.peek_tagged(7) is None:
                await anyio.lowlevel.checkpoint()
            assert await other.recv_tagged(7, max_bytes=8) == b"x"
            await one.write(b"x", region.remote[:1], to=to, flags=OpFlags.DELIVERY_COMPLETE)
            await one.read(region.remote[:1], to=to, flags=OpFlags.COMPLETION)
            await one.atomic(AtomicOp.SUM, np.ones(1, np.int64), region.remote[8:16], to=to)
            await one.fetch_atomic(AtomicOp.SUM, np.ones(1, np.int64), region.remote[8:16], to=to)
    assert posted.keys() >= {"fi_sendmsg", "fi_tsendmsg", "fi_trecvmsg", "fi_writemsg", "fi_readmsg", "fi_atomicmsg"}
    for what, function in posted.items():
        assert function is getattr(lib, what)


async def test_a_message_arrives_although_the_pool_could_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []

    def exhausted(_: Pool) -> None:
        raise LookupError("exhausted")

    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
    async with peers("tcp;ofi_rxm", recv_size=64, recv_count=64) as (one, other, to, _):
        monkeypatch.setattr(Pool, "exhausted", exhausted)
        sent = [b"%d" % number for number in range(12)]
        with anyio.fail_after(20):
            for each in sent:
                one.send_nowait(each, to=to)
            assert [await other.recv() for _ in sent] == sent
    loop.set_exception_handler(before)
    assert reported
    assert {repr(each) for each in reported} == {"LookupError('exhausted')"}
