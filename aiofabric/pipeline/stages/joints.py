"""Joints: what stands between two stages of one process, and what every stage sees of its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import anyio

from .entry import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Inlet", "Joint", "Outlet"]


class Inlet(Protocol):
    """The values that a stage takes."""

    async def take(self) -> Entry | None: ...  # None: finish what is held back. Raises EndOfStream


class Outlet(Protocol):
    """The values that a stage gives to another one: each is packed, and then given."""

    def pack(self, value: Any) -> Any: ...  # raises PicklingError for one that cannot be sent
    async def give(self, packed: Any, made_of: Sequence[Entry], *, last: bool) -> None: ...  # last of its entry
    async def made_none(self, entry: Entry) -> None: ...  # nothing is made of it, or nothing more
    async def flush(self) -> None: ...  # no new values come soon: finish what is held back
    async def aclose(self) -> None: ...  # no more values come


class Joint:
    """A queue of at most ``most`` values. It ends when all ``givers`` have closed it."""

    def __init__(self, most: int, givers: int) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[Entry | None](most)
        self._givers = givers

    async def take(self) -> Entry | None:
        try:
            return self._receive.receive_nowait()
        except anyio.WouldBlock:
            return await self._receive.receive()

    def pack(self, value: Any) -> Any:
        return value

    async def give(self, packed: Any, made_of: Sequence[Entry], *, last: bool) -> None:
        entry = Entry(packed, made_of)
        try:
            self._send.send_nowait(entry)
        except anyio.WouldBlock:
            await self._send.send(entry)

    async def made_none(self, entry: Entry) -> None:
        pass

    async def flush(self) -> None:
        await self._send.send(None)

    async def aclose(self) -> None:
        self._givers -= 1
        if not self._givers:
            self._send.close()

    def abandon(self) -> None:
        """The run is over."""
        self._send.close()
        self._receive.close()
