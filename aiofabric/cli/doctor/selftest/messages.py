"""Checks of messages: plain, tagged, and with remote data."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiofabric.cli.doctor.selftest.endpoint import PeerEndpoint, open_link
from aiofabric.cli.doctor.selftest.options import DATAGRAM, CheckOptions
from aiofabric.cli.doctor.selftest.sample import median_trip
from aiofabric.features import require
from aiofabric.flags import Caps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiofabric.cli.doctor.selftest.control import Control

__all__ = [
    "DATA",
    "SMALLEST",
    "datagram_trip",
    "echo",
    "follow_messages",
    "follow_remote_data",
    "follow_tagged",
    "lead_messages",
    "lead_remote_data",
    "lead_tagged",
    "message_trip",
    "receives",
    "until_done",
]

SMALLEST = 64  # bytes of a receive
DATA = 42  # remote data: one byte, so that every provider carries it
_RECEIVES = 4
_TAG = 0x2A
_LOST = 0.5  # seconds after which a datagram counts as lost
_RESENDS = 5


async def lead_messages(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    for size in options.sizes:
        async with open_link(control, options, **receives(size)) as link:
            trip = datagram_trip(link) if options.kind == DATAGRAM else message_trip(link)
            figures[str(size)] = await median_trip(size, trip)
            await control.finish()


async def follow_messages(control: Control, options: CheckOptions) -> None:
    for size in options.sizes:
        async with open_link(control, options, **receives(size)) as link:
            await until_done(control, echo(link))


def receives(size: int) -> dict[str, Any]:
    return {"recv_size": max(size, SMALLEST), "recv_count": _RECEIVES}


def message_trip(link: PeerEndpoint) -> Callable[[bytes], Awaitable[Any]]:
    async def trip(message: bytes) -> Any:
        await link.send(message)
        return await link.receive()

    return trip


def datagram_trip(link: PeerEndpoint) -> Callable[[bytes], Awaitable[Any]]:
    async def trip(message: bytes) -> Any:
        """Send again what was lost; an answer that comes later than that is one of an earlier message."""
        for _ in range(_RESENDS):
            await link.send(message)
            try:
                async with asyncio.timeout(_LOST):
                    while (answer := await link.receive()) != message:
                        pass
                    return answer
            except TimeoutError:
                continue
        raise TimeoutError(f"{_RESENDS} datagrams of {len(message)} bytes were lost")

    return trip


async def echo(link: PeerEndpoint, late: float = 0.0) -> None:
    while True:
        message = await link.receive()
        if late:
            await asyncio.sleep(late)
        await link.send(message)


async def until_done(control: Control, serving: Any) -> None:
    """Serve until the other side says that it is done."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(serving)
        await control.receive()
        task.cancel()
    await control.finished()


async def lead_tagged(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    """Send tagged messages, and receive their echo."""
    async with open_link(control, options) as link:
        require(Caps.TAGGED, link.endpoint.info)
        room = memoryview(bytearray(max(*options.sizes, SMALLEST)))

        async def trip(message: bytes) -> memoryview:
            await link.endpoint.send_tagged(message, _TAG, **link.to)
            return room[: (await link.endpoint.recv_tagged_into(room, _TAG)).length]

        for size in options.sizes:
            figures[str(size)] = await median_trip(size, trip)
        await control.finish()


async def follow_tagged(control: Control, options: CheckOptions) -> None:
    """Return tagged messages."""
    async with open_link(control, options) as link:
        room = memoryview(bytearray(max(*options.sizes, SMALLEST)))

        async def serve() -> None:
            while True:
                length = (await link.endpoint.recv_tagged_into(room, _TAG)).length
                await link.endpoint.send_tagged(room[:length], _TAG, **link.to)

        await until_done(control, serve())


async def lead_remote_data(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    async with open_link(control, options, **receives(SMALLEST)) as link:

        async def trip(message: bytes) -> Any:
            await link.send(message, remote_data=DATA)
            answer = await link.receive()
            if answer.remote_data != DATA:
                raise ValueError(f"a message with remote data {DATA} came back with {answer.remote_data}")
            return answer

        figures[str(SMALLEST)] = await median_trip(SMALLEST, trip)
        await control.finish()


async def follow_remote_data(control: Control, options: CheckOptions) -> None:
    async with open_link(control, options, **receives(SMALLEST)) as link:

        async def serve() -> None:
            while True:
                message = await link.receive()
                await link.send(message, remote_data=message.remote_data)

        await until_done(control, serve())
