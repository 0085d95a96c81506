"""A byte channel whose endpoint, peer and loop are the test: for tests of order, without I/O."""

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiofabric.channel.endpoint import EndpointChannel
from aiofabric.channel.frames import FRAME_COST, GRANT, Hello, header
from tests.cq.manual import Caller, PolledSource

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = Hello(recv_size=1004, window=2000)  # frames of 1,000 bytes
LARGE = Hello(recv_size=40_004, window=100_000)


class Transfer:
    """A frame that the provider has; the test completes it."""

    def __init__(self) -> None:
        self.notify: Callable[[Any], object] | None = None
        self.error: BaseException | None = None

    def complete(self, error: BaseException | None = None) -> None:
        self.error = error
        if self.notify is not None:
            self.notify(self)


class Endpoint:
    """A connected endpoint; `sent` has the frames, as bytes."""

    local_address = None
    peer_address = None
    info = None

    def __init__(self) -> None:
        self.source = PolledSource()
        self.sent: list[bytes] = []
        self.injected = 0
        self.transfers: list[Transfer] = []
        self.refusals: deque[BaseException] = deque()
        self.inline = True  # the provider injects small frames
        self.admits = True
        self.aborts = 0
        self.thread_checks = 0
        self.on_message: Any = None
        self.on_end: Any = None
        self._handle = SimpleNamespace(
            closed=True,  # a test may drop a stream without closing it
            source=self.source,
            thread_check=SimpleNamespace(admits=lambda: self.admits),
            loop_thread=SimpleNamespace(admits=lambda: True),
            check_caller=lambda: None,
            refuse=lambda what: ConnectionResetError(f"{what} refused"),
            check_thread=self.check_thread,
            tx=self,
        )

    @property
    def closed(self) -> bool:
        return self.aborts > 0

    def check_thread(self) -> None:
        self.thread_checks += 1

    def set_sink(self, on_message: Any, on_end: Any) -> None:
        self.on_message, self.on_end = on_message, on_end

    def abort(self) -> None:
        self.aborts += 1
        self.admits = False

    def inject(self, frame: Any) -> bool:
        assert type(frame) is not list
        if self.refusals:
            raise self.refusals.popleft()
        if self.inline:
            self.injected += 1
            self.sent.append(bytes(frame))
        return self.inline

    def post(self, frame: Any) -> Transfer:
        if self.refusals:
            raise self.refusals.popleft()
        self.sent.append(b"".join(frame) if type(frame) is list else bytes(frame))
        self.transfers.append(Transfer())
        return self.transfers[-1]


class Channel:
    """A channel on a scripted endpoint."""

    def __init__(self, ours: Hello = SMALL, theirs: Hello = SMALL, *, strict: bool = False) -> None:
        self.endpoint = Endpoint()
        if strict:
            self.source.driver.checkpoint_if_cancelled = self.source.checkpoint
        endpoint: Any = self.endpoint
        self.channel = EndpointChannel(endpoint, ours, theirs)
        self.told: list[BaseException | None] = []

    @property
    def source(self) -> PolledSource:
        return self.endpoint.source

    @property
    def sent(self) -> list[bytes]:
        """The frames sent since the last look."""
        frames, self.endpoint.sent = self.endpoint.sent, []
        return frames

    @property
    def sizes(self) -> list[int]:
        """The sizes of the data frames sent since the last look."""
        return [len(frame) - 4 for frame in self.sent]

    @property
    def credits(self) -> int:
        return self.channel.statistics().send_credits

    def spend(self, credits: int) -> None:
        """Send data until only these credits are left."""
        while self.credits > credits:
            size = min(1000, self.credits - credits - FRAME_COST)
            assert self.channel.try_send(bytes(size)) == size
        assert self.credits == credits
        self.endpoint.sent.clear()

    def post(self, data: bytes | bytearray) -> None:
        self.channel.post(memoryview(data), self.told.append)

    def comes(self, frame: bytes) -> None:
        self.endpoint.on_message(memoryview(bytearray(frame)))

    def grant(self, credits: int) -> None:
        self.comes(header(GRANT, credits))

    def breaks(self) -> ConnectionResetError:
        error = ConnectionResetError("broken")
        self.endpoint.on_end(error)
        return error

    def call(self, coroutine: Any) -> Caller:
        return Caller(self.source.driver, coroutine)
