"""Checks of remote memory: reads, writes, and atomics. The other side offers memory and tells what is in it."""

from __future__ import annotations

import asyncio
import zlib
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import aiofabric
from aiofabric.cli.doctor.selftest.endpoint import PeerEndpoint, open_link
from aiofabric.cli.doctor.selftest.messages import DATA, SMALLEST
from aiofabric.cli.doctor.selftest.sample import ROUNDS, median_of
from aiofabric.cli.pingpong.pattern import Pattern
from aiofabric.flags import Access, AtomicForm, AtomicOp, Caps, Datatype

if TYPE_CHECKING:
    from aiofabric.cli.doctor.selftest.control import Control
    from aiofabric.cli.doctor.selftest.options import CheckOptions

__all__ = [
    "follow_atomics",
    "follow_memory",
    "follow_write_data",
    "lead_atomics",
    "lead_read",
    "lead_write",
    "lead_write_data",
]

_ATOMICS = Caps.MSG | Caps.ATOMIC  # some providers have atomics only if they are asked for
_TIMEOUT = 2.0  # seconds until the bytes of a write have arrived


async def lead_read(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    async with open_link(control, options) as link:
        remote = await _remote(control)
        for size in options.sizes:
            room = bytearray(size)
            read = partial(link.endpoint.read_into, room, remote[:size], **link.to)
            figures[str(size)] = await median_of(size, read)
            if room != _contents(size):
                raise ValueError(f"a read of {size} bytes returned other contents than the peer's memory has")
        await control.finish()


async def lead_write(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    async with open_link(control, options) as link:
        remote = await _remote(control)
        for size in options.sizes:
            contents = bytearray(reversed(_contents(size)))  # not those that the peer's memory has already
            write = partial(link.endpoint.write, contents, remote[:size], **link.to)
            figures[str(size)] = await median_of(size, write)
            await _arrived(control, contents)
        await control.finish()


async def lead_write_data(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    async with open_link(control, options) as link:
        remote = await _remote(control)
        contents = _contents(SMALLEST)

        async def trip() -> None:
            await link.endpoint.write(contents, remote[: len(contents)], remote_data=DATA, **link.to)
            event = (await control.receive())["event"]
            if event != DATA:
                raise ValueError(f"a write with remote data {DATA} arrived as {event}")

        figures[str(SMALLEST)] = await median_of(SMALLEST, trip)
        await _arrived(control, contents)
        await control.finish()


async def lead_atomics(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    async with open_link(control, options, caps=_ATOMICS) as link:
        endpoint, number = link.endpoint, Datatype.UINT64
        remote = (await _remote(control))[:8]
        given = {"datatype": number, **link.to}
        count = 0

        async def add() -> None:
            nonlocal count
            await endpoint.atomic(AtomicOp.SUM, 1, remote, **given)
            count += 1

        async def fetch() -> None:
            nonlocal count
            before = await endpoint.fetch_atomic(AtomicOp.SUM, 1, remote, **given)
            if before != count:
                raise ValueError(f"a fetching atomic returned {before} instead of {count}")
            count += 1

        async def swap() -> None:
            nonlocal count
            before = await endpoint.compare_atomic(AtomicOp.CSWAP, count + 1, count, remote, **given)
            if before != count:
                raise ValueError(f"a comparing atomic returned {before} instead of {count}")
            count += 1

        forms = {
            "add_us": (add, AtomicOp.SUM, AtomicForm.BASE),
            "fetch_us": (fetch, AtomicOp.SUM, AtomicForm.FETCH_ATOMIC),
            "compare_us": (swap, AtomicOp.CSWAP, AtomicForm.COMPARE_ATOMIC),
        }
        for name, (trip, op, form) in forms.items():
            if endpoint.atomic_count(op, number, form):
                figures[name] = await median_of(8, trip)
                await _arrived(control, count.to_bytes(8, "little"))
            else:
                figures[name] = None
        await control.finish()


async def follow_memory(control: Control, options: CheckOptions) -> None:
    """Offer memory, and tell the contents of its first bytes."""
    await _offer(control, options, _contents(max(*options.sizes, SMALLEST)))


async def follow_atomics(control: Control, options: CheckOptions) -> None:
    await _offer(control, options, bytearray(8), caps=_ATOMICS)


async def follow_write_data(control: Control, options: CheckOptions) -> None:
    await _offer(control, options, bytearray(SMALLEST), remote_writes=ROUNDS)


async def _offer(control: Control, options: CheckOptions, memory: bytearray, **endpoint: Any) -> None:
    async with open_link(control, options, **endpoint) as link, asyncio.TaskGroup() as tasks:
        access = Access.REMOTE_READ | Access.REMOTE_WRITE
        with link.endpoint.domain.register(memory, access=access) as region:
            await control.send(region=region.remote.pack().hex())
            serving = tasks.create_task(_report_writes(control, link)) if "remote_writes" in endpoint else None
            while "size" in (question := await control.receive()):
                await control.send(sum=zlib.crc32(memoryview(memory)[: question["size"]]))
            if serving is not None:
                serving.cancel()
            await control.finished()


async def _report_writes(control: Control, link: PeerEndpoint) -> None:
    while True:
        await control.send(event=(await link.endpoint.remote_write()).data)


async def _remote(control: Control) -> aiofabric.RemoteRegion:
    return aiofabric.RemoteRegion.unpack(bytes.fromhex((await control.receive())["region"]))


async def _arrived(control: Control, contents: bytes | bytearray) -> None:
    """Wait until the peer's memory has the contents: a write returns before they have arrived."""
    end = perf_counter() + _TIMEOUT
    while True:
        await control.send(size=len(contents))
        if (await control.receive())["sum"] == zlib.crc32(contents):
            return
        if perf_counter() > end:
            raise ValueError(f"{len(contents)} bytes have not arrived in the peer's memory within {_TIMEOUT:.0f} s")
        await asyncio.sleep(0.001)


def _contents(size: int) -> bytearray:
    return bytearray(Pattern(size).next(size))
