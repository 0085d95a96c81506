"""Places: where the other ends of a pipeline are.

A place is ``"host:port"``, ``(host, port)``, an `Address` or its text. ``"dns:///name:port"`` stands for every address
of the name. A `PlaceFolder` has the places that processes announced in a folder of a shared file system. A program may
also pass an async function that returns a list of places. Names, folders and functions are asked each second, so ends
may come later. An async iterator gives a list of all places of the moment whenever they change.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from inspect import isawaitable
from pathlib import Path
from socket import gethostname, getservbyname
from time import monotonic
from typing import Any, Final, TypeGuard
from uuid import uuid4

import anyio
import anyio.to_thread

from ..address import Address
from ..arguments import check_type
from ..cm.clients.targets import resolve, split_host_port

__all__ = ["Place", "PlaceFolder", "Places", "Target", "finder_of", "target_of"]

Place = str | Address | tuple[str, int]
Target = tuple[str | Address | None, int | str | None]  # node and service of `aiofabric.connect`
Find = Callable[[], Awaitable[Sequence[Target]]]

_FIND_AGAIN: Final = 1.0
"""Seconds until names, folders and functions are asked for places again."""

_WILDCARDS: Final = ("0.0.0.0", "::", "")  # a listener has no other address to tell

_log = logging.getLogger(__name__)


class PlaceFolder:
    """Places as files of a folder, which all hosts share: how the processes of a batch job find each other.

    A listener announces itself in a file of its own, which is complete as soon as it can be seen. The file is removed
    at the listener's end, and touched three times in ``stale_after`` seconds. One that was not touched for so long is
    stale: its process has died. It is not used any more, and the program that made the folder may remove it.
    """

    def __init__(self, folder: str | os.PathLike[str], *, stale_after: float = 30.0) -> None:
        check_type("stale_after", stale_after, int, float)
        if stale_after <= 0:
            raise ValueError(f"stale_after must be more than 0 seconds, not {stale_after}")
        self._folder = Path(folder)
        self._stale_after = stale_after
        self._touched: dict[str, tuple[int, float]] = {}  # time of the last touch by the file system's clock, and ours

    @asynccontextmanager
    async def announced(self, address: Address) -> AsyncIterator[None]:
        """Announce a listener until the end of the block."""
        host = gethostname() if address.host in _WILDCARDS else address.host
        place = {"host": host, "port": address.port, "address": str(address), "pid": os.getpid()}
        path = self._folder / f"{uuid4()}.json"
        await anyio.to_thread.run_sync(_write, path, json.dumps(place))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_fresh, path)
                yield
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: path.unlink(missing_ok=True))

    async def _keep_fresh(self, path: Path) -> None:
        while True:
            await anyio.sleep(self._stale_after / 3)
            try:
                await anyio.to_thread.run_sync(os.utime, path)
            except OSError as error:
                _log.warning("the announcement %s cannot be touched: %s", path, error)

    async def find(self) -> Sequence[Target]:
        """The places that are announced now, without the stale ones."""
        return await anyio.to_thread.run_sync(self._find)

    def _find(self) -> list[Target]:
        found: list[Target] = []
        for path in sorted(self._folder.glob("*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):  # removed meanwhile, or not an announcement
                place = json.loads(path.read_text())
                if self._is_fresh(path):
                    host, port = place["host"], place["port"]
                    found.append((str(host), int(port)) if port else (Address.from_str(place["address"]), None))
        return found

    def _is_fresh(self, path: Path) -> bool:
        touched, now = path.stat().st_mtime_ns, monotonic()
        before = self._touched.get(path.name)
        if before is None or before[0] != touched:
            self._touched[path.name] = touched, now
            return True
        if now - before[1] < self._stale_after:
            return True
        _log.info("%s is stale: its process has ended without removing it", path)
        return False

    def __repr__(self) -> str:
        return f"PlaceFolder({str(self._folder)!r})"


Places = (
    Place | Sequence[Place] | PlaceFolder | Callable[[], Awaitable[Sequence[Place]]] | AsyncIterable[Sequence[Place]]
)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".new")
    unfinished.write_text(text)
    unfinished.replace(path)


def target_of(place: Place) -> Target:
    """Node and service of one place. Raises ValueError or TypeError if it is none."""
    if isinstance(place, Address):
        return place, None
    if _is_pair(place):
        host, port = place
        _check_port(port, place)
        return host, port
    if not isinstance(place, str):
        raise TypeError(f"a place is 'host:port', (host, port) or an Address, not {place!r:.100}")
    if "://" in place:
        if not place.startswith("fi_"):
            raise ValueError(
                "a place is 'host:port', (host, port), 'dns:///name:port', or an Address or its text, such as "
                f"'fi_sockaddr_in://127.0.0.1:7301', not {place!r:.100}"
            )
        return Address.from_str(place), None
    host, service = split_host_port(place)
    _check_port(service, place)
    return host, service


def _is_pair(place: Any) -> TypeGuard[tuple[str, int | str]]:
    return (
        isinstance(place, tuple) and len(place) == 2 and isinstance(place[0], str) and isinstance(place[1], (int, str))
    )


def _check_port(port: int | str, place: object) -> None:
    """Raise ValueError unless it can be a port: an end would try to connect for ever."""
    try:
        number = int(port)
    except ValueError:
        try:
            getservbyname(str(port))
        except OSError:
            raise ValueError(
                f"{place!r:.100}: the port must be a number from 0 to 65535, or a service that this host knows, not "
                f"{port!r:.100}"
            ) from None
        return
    if not 0 <= number <= 65535:
        raise ValueError(f"{place!r:.100}: a port is 0 to 65535, not {number}")


def finder_of(places: Places) -> tuple[AsyncIterator[Sequence[Target]], bool]:
    """The targets of each moment, and whether they may change. Raises ValueError or TypeError."""
    if isinstance(places, PlaceFolder):
        return _again_and_again(places.find), True
    if isinstance(places, AsyncIterable):
        return _changing(places), True
    if callable(places):
        return _again_and_again(_calling(places)), True
    if isinstance(places, str) and places.startswith("dns:"):
        _check_port(places.rpartition(":")[2], places)
        return _again_and_again(lambda: resolve(places)), True
    several: list[Any] = list(places) if isinstance(places, (list, set, frozenset)) else [places]
    if not several:
        raise ValueError("no place was given")
    return _constant([target_of(place) for place in several]), False


def _calling(find: Callable[[], Awaitable[Sequence[Place]]]) -> Find:
    async def targets() -> Sequence[Target]:
        asked = find()
        if not isawaitable(asked):
            raise TypeError(f"a function for places must be async; {find!r:.100} returned {asked!r:.100}")
        places = await asked
        if isinstance(places, str) or not isinstance(places, Iterable):
            raise TypeError(f"a function for places must return a list of them; {find!r:.100} returned {places!r:.100}")
        return [target_of(place) for place in places]

    return targets


async def _again_and_again(find: Find) -> AsyncIterator[Sequence[Target]]:
    while True:
        try:
            targets = await find()
        except OSError as error:
            _log.info("no places were found: %s", error)
        else:
            yield targets
        await anyio.sleep(_FIND_AGAIN)


async def _changing(places: AsyncIterable[Sequence[Place]]) -> AsyncIterator[Sequence[Target]]:
    try:
        async for each in places:
            yield [target_of(place) for place in each]
    finally:
        if isinstance(places, AsyncGenerator):
            await places.aclose()  # also if it gave something that is no place


async def _constant(targets: Sequence[Target]) -> AsyncIterator[Sequence[Target]]:
    yield targets
