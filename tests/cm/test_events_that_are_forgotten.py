"""Events of an object that was forgotten are dropped: its address may be that of a later object."""

import pytest

import aiofabric
from aiofabric import Fabric
from aiofabric._ffi import constants, ffi
from aiofabric.cm.events import Event, EventError
from aiofabric.cm.queue import EventQueue

pytestmark = pytest.mark.once


class Handler:
    """Remembers the private data of its events."""

    def __init__(self) -> None:
        self.params: list[bytes] = []

    def event(self, event: Event) -> None:
        assert event.kind == constants.FI_CONNECTED
        self.params.append(event.param)

    def event_error(self, error: EventError) -> None:
        raise AssertionError(error)

    def wait_failed(self, error: aiofabric.FabricError) -> int:
        raise AssertionError(error)


class ScriptedEvents(EventQueue):
    """An event queue whose events the test writes: fid and private data."""

    __slots__ = ("script",)

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self.script: list[tuple[int, bytes]] = []

    def read(self) -> int:
        if not self.script:
            return super().read()
        fid, param = self.script.pop(0)
        self._event[0] = constants.FI_CONNECTED
        self._entry.fid = ffi.cast("struct fid *", fid)
        head: int = ffi.sizeof("struct fi_eq_cm_entry")
        ffi.memmove(self._buffer + head, param, len(param))
        return head + len(param)


def test_events_go_to_their_handler_until_it_is_forgotten() -> None:
    one, other = Handler(), Handler()
    with Fabric(aiofabric.getinfo()[0]) as fabric, ScriptedEvents(fabric) as queue:
        first = queue.handle_events_of(ffi.cast("struct fid *", 1000), one)
        second = queue.handle_events_of(ffi.cast("struct fid *", 2000), other)
        queue.script = [(first, b"1"), (second, b"2"), (3000, b"nobody's"), (first, b"")]
        assert queue.drain() == 4
        queue.forget(first)
        queue.script = [(first, b"late"), (second, b"4")]
        assert queue.drain() == 2
        queue.forget(first)
        assert queue.drain() == 0
    assert (one.params, other.params) == ([b"1", b""], [b"2", b"4"])
