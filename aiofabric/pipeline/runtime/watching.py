"""Watching: an end that listens tells its statistics to those that ask, as JSON, once a second."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import ClosedResourceError, EndOfStream

from ...transport.connect import connect
from ..places import target_of
from ..protocol.hello import Hello, HelloError, Role
from .connection import RECV_COUNT, RECV_SIZE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ...transport.connected.endpoint import MessageEndpoint
    from ..places import Place

__all__ = ["tell_statistics", "watch"]

_EVERY: Final = 1.0
"""Seconds between two reports."""
_MOST_BYTES: Final = 1 << 16  # of a report: see `sized_for`
_MOST_LISTED: Final = (200, 20, 0)
"""Connections of one report, and topics of one of them; fewer, if it would not fit into a message."""


async def tell_statistics(endpoint: MessageEndpoint, end: str, name: bytes, statistics: Callable[[], Any]) -> None:
    """Report until the watcher leaves."""
    async with endpoint:
        with suppress(OSError, ClosedResourceError):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_it_leaves, endpoint, tasks.cancel_scope)
                while True:
                    await endpoint.send(_report(end, name, statistics()))
                    await anyio.sleep(_EVERY)


async def _until_it_leaves(endpoint: MessageEndpoint, scope: anyio.CancelScope) -> None:
    with suppress(OSError, ClosedResourceError, EndOfStream):
        await endpoint.recv()
    scope.cancel()


def _report(end: str, name: bytes, statistics: Any) -> bytes:
    for most in _MOST_LISTED:
        report = json.dumps({"end": end, "id": name.hex(), **_plain(statistics, most)}).encode()
        if len(report) <= _MOST_BYTES:
            break
    return report


def _plain(value: Any, most: int) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(each, most) for name, each in asdict(value).items()}
    if isinstance(value, dict):
        return {name: _plain(each, most) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, most) for each in value[:most]]
    return value.hex() if isinstance(value, bytes) else value


async def watch(place: Place, *, provider: str | None = None) -> AsyncGenerator[dict[str, Any]]:
    """The statistics of a `Push`, `Pull`, `Publish` or `Subscribe` that listens at ``place``, once a second, until it
    leaves. Each is a dict with ``"end"`` (the name of its class), ``"id"`` (hexadecimal), and the fields of its
    statistics; at most 200 of its connections are listed, and fewer if their topics are long.

    Raises:
        FabricError: no connection.
        ValueError: the peer is not an end of a pipeline.
    """
    hello = Hello(Role.WATCH, bytes(16), RECV_SIZE)
    endpoint = await connect(
        *target_of(place), param=hello.pack(), provider=provider, recv_size=RECV_SIZE, recv_count=RECV_COUNT
    )
    async with endpoint:
        try:
            hello.check_other(endpoint.param)
        except HelloError as error:
            raise ValueError(f"no end of a pipeline listens at {place}: {error}") from None
        with suppress(EndOfStream, ConnectionError):
            while True:
                yield json.loads(await endpoint.recv())
