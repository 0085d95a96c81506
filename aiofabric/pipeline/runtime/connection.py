"""PipelineConnection: one connection of a pipeline, as frames that arrive and frames that leave.

The first frame of an iteration of the loop leaves at once. The owner may gather later ones of the same iteration:
``gathered`` is called when the iteration ends, or before a task of this thread polls the queue for the answers. If it
returns true, it has sent something, and frames of the next iteration are gathered, too.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from threading import local
from typing import TYPE_CHECKING, Any, Final

from anyio import ClosedResourceError

from ...features import Quirk
from ...flags import Access
from ...transport.connected.closing import abort_when_drained
from ..protocol.frames import HEADER, ProtocolError
from ..protocol.hello import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..._core import LoanCore
    from ...cq.loops.drivers import Driver
    from ...memory import MemoryRegion
    from ...transport.connected.endpoint import MessageEndpoint
    from ...transport.opening.keywords import EndpointKeywords
    from ..protocol.hello import Hello

__all__ = ["INLINE", "RECV_COUNT", "RECV_SIZE", "PipelineConnection", "Receives", "send_gathered", "sized_for"]

INLINE: Final = 3 << 16
"""Bytes of the largest item that travels in a fabric message on every connection. Larger ones are read by the consumer
(RMA): 75 us more on each side. An item of 128 KiB took 25 us in a message over tcp, and 93 when it was read.
"""
_START: Final = 1024 + 64
"""Bytes of a frame before the parts of an item: its header, its number and their sizes."""
RECV_SIZE: Final = INLINE + _START
_SHORT: Final = (1 << 16) + _START
"""Bytes of the largest frame where long messages lose packets (rxd), or where the provider reads them from their
sender, and keeps sockets and memory of one that was killed meanwhile (rxm of 1.17: above 128 KiB).
"""
_NO_LONG_ONES: Final = Quirk.LONG_MESSAGES_LOSE_PACKETS | Quirk.LATE_RECEIVE_CRASHES
RECV_COUNT: Final = 16
"""Receives of a connection: 3 MiB of virtual memory. Most messages are taken in the pass that reads their completion; a
large item stays in its receive until its scope ends."""
_LONG: Final = (1 << 20) + _START
"""Bytes of the largest frame, of one item in one or two parts. The provider must write long messages to the posted
receive itself, as tcp does: 1 MiB took 180 us, and 250 when the consumer read it; 512 KiB 91 and 180.
"""
_LONG_COUNT: Final = 8
_WITH_LONG: Final = frozenset({"tcp"})  # providers

MOST_POSTED: Final = 64
"""Frames in several pieces that the endpoint has. Later ones wait here: one that waits in the endpoint's queue, which
serves operations of any kind, took 9 us more.
"""


class _Local(local):
    """The connections of a thread that gather items; a dict as a set."""

    def __init__(self) -> None:
        self.gathering: dict[PipelineConnection, None] = {}


_of_thread = _Local()


def send_gathered(driver: Driver) -> None:
    """Send the items that connections of this event loop have gathered. Polling takes the place of an iteration of the
    loop: without this, an item would wait for the end of the poll for its own answer (shm: 42 us instead of 26 one
    way). Acknowledgements wait: sent before each poll they cost a third of the rate of small items.
    """
    for connection in tuple(_of_thread.gathering):
        if connection.source.driver is not driver:  # of a loop that has ended
            del _of_thread.gathering[connection]
        else:
            connection.send_gathered()


def sized_for(endpoint: MessageEndpoint, theirs: Hello) -> Hello:
    """The peer's hello, with the size of the frames that the provider sends well."""
    most = _SHORT if endpoint._handle.known & _NO_LONG_ONES else RECV_SIZE
    if theirs.recv_size <= most or endpoint.info.fabric_attr.prov_name in _WITH_LONG:
        return theirs
    return replace(theirs, recv_size=most)


class Receives:
    """The receives of the connections of one end. Long ones are for consumers, and only as long as those of all
    connections have no more bytes than the end's window: a program with little memory chooses a small one.
    """

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._left = hello.window_bytes if hello.role == Role.PULL else 0  # bytes

    @contextmanager
    def for_connection(
        self, provider: str | None, other: Role | None = None
    ) -> Iterator[tuple[Hello, EndpointKeywords]]:
        """The hello and the options of one connection, for as long as it lasts.
        ``other``: the role of the other end, if it is known.
        """
        size, count = _LONG, _LONG_COUNT
        taken = size * count
        if other == Role.WATCH or self._left < taken or provider not in _WITH_LONG:
            size, count, taken = RECV_SIZE, RECV_COUNT, 0
        self._left -= taken
        try:
            yield replace(self._hello, recv_size=size), {"recv_size": size, "recv_count": count}
        finally:
            self._left += taken


class PipelineConnection:
    """Owns ``endpoint``. ``on_frame(kind, frame)`` gets each frame; ``on_end(error)`` is called once. ``notes()``:
    lines for `aiofabric.debug`.
    """

    def __init__(
        self,
        endpoint: MessageEndpoint,
        on_frame: Callable[[int, memoryview], object],
        on_end: Callable[[BaseException], object],
        notes: Callable[[], Iterable[str]],
    ) -> None:
        self.endpoint = endpoint
        self.ended = False
        self.gathered: Callable[[], object] | None = None
        self.iteration_ended: Callable[[], object] | None = None  # after an iteration in which it gathered
        self.sends_items = False  # not only acknowledgements, for which no task waits
        self._on_frame = on_frame
        self._on_end = on_end
        handle: Any = endpoint._handle
        handle.what = "pipeline connection"  # in the texts of errors
        handle.notes = notes
        self.source = handle.source
        self.source.interest += 1  # a queue without a descriptor must be polled
        self.gathering = False  # `gathered` is called at the end of this iteration
        self._posted = 0  # frames in several pieces
        self._waiting: deque[bytes | list[Any]] = deque()

    def start(self) -> None:
        """Take frames from now on."""
        try:
            self.endpoint.set_sink(self._arrived, self.end)
        except (OSError, ClosedResourceError) as error:  # it has ended meanwhile
            self.end(error)

    def expose(self, data: Any) -> MemoryRegion:
        """Let the peer read ``data`` until the region is closed."""
        return self.endpoint.domain.register(data, access=Access.REMOTE_READ)

    # -- output

    def gather(self) -> bool:
        """Call ``gathered`` when this iteration of the loop ends. False if that was arranged before: then the owner
        keeps its frame until that call. But frames leave one by one after the loop was late, as in a program that
        computes between two items.
        """
        if self.gathering:
            self.source.message_waits()
            return bool(self.source.hurries)
        self.gathering = True
        if self.sends_items:
            _of_thread.gathering[self] = None
        self.source.driver.call_soon(self._iteration_ends)
        return True

    def _iteration_ends(self) -> None:
        self.gathering = False
        self.source.messages_leave()
        _of_thread.gathering.pop(self, None)
        if self.iteration_ended is not None:
            self.iteration_ended()
        self.send_gathered()

    def send_gathered(self) -> None:
        """Send what the owner has gathered."""
        if self.gathered is not None and not self.ended and self.gathered():
            self.gather()

    def send(self, frame: bytes | list[Any]) -> None:
        """Post a frame, behind those that wait. The memory of its pieces is pinned until it has left."""
        if self.ended:
            return
        if self._posted < MOST_POSTED:
            self._post(frame)
        else:
            self._waiting.append(frame)

    def _post(self, frame: bytes | list[Any]) -> None:
        try:
            if type(frame) is bytes:
                self.endpoint.send_nowait(frame)
            else:
                self._posted += 1
                self.endpoint.send_nowait(frame, self._left)
        except (OSError, ClosedResourceError) as error:
            self.end(error)

    def _left(self, error: BaseException | None) -> None:
        """A frame has left."""
        self._posted -= 1
        if error is not None:
            self.end(error)
        while self._waiting and self._posted < MOST_POSTED:
            self._post(self._waiting.popleft())

    # -- input

    def _arrived(self, frame: memoryview) -> None:
        try:
            if len(frame) < HEADER.size:
                raise ProtocolError(f"a frame of {len(frame)} bytes is shorter than its header")
            self._on_frame(frame[0], frame)
        except ProtocolError as error:
            self.end(ConnectionAbortedError(f"the peer broke the pipeline protocol: {error}"))
        except Exception as error:
            self.end(error)  # a frame is lost
            raise

    def loan(self, start: int) -> LoanCore | None:
        """The rest of the frame that arrives now, from ``start`` on, stays where it is. None: it must be copied, since
        too many receives are lent.
        """
        inbox: Any = self.endpoint._handle.pool
        loan: LoanCore | None = inbox.loan(start)
        return loan

    # -- the end

    def end(self, error: BaseException) -> None:
        """Close now."""
        if not self.ended:
            self.ended = True
            self._waiting.clear()
            abort_when_drained(self.endpoint)
            self._on_end(error)

    async def aclose(self) -> None:
        """Close in order: the peer gets what was sent."""
        if not self.ended:
            while self._waiting:
                self._post(self._waiting.popleft())
        if not self.ended:
            self.ended = True
            self.source.interest -= 1
            await self.endpoint.aclose()
