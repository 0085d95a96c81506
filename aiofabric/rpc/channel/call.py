"""ChannelCall: a call with all its attempts, on whatever connections its channel has.

The call object is its own attempt: for another one, it begins again on another connection with a new id. It keeps the
sent messages for that until an attempt is committed: by initial metadata, by a message, or because `MOST_REPLAY` bytes
were sent. Two kinds of attempts are repeated:

* transparently (without a retry policy): an attempt that has not left this process is repeated without limit, and an
  attempt that the server refused before a handler saw it is repeated once;
* as the service config says (`retry`).
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from ..protocol.calls import Status
from ..protocol.client_call import ClientCall
from ..protocol.status import StatusCode
from .retry import MOST_REPLAY, Retries

if TYPE_CHECKING:
    from ..protocol.metadata import Metadata
    from .channel import ChannelCore
    from .service_config import MethodConfig
    from .subchannel import ChannelConnection

__all__ = ["ChannelCall"]

_ATTEMPTS = "grpc-previous-rpc-attempts"

MOST_SECONDS: Final = 1e9
"""The longest timeout; longer ones, such as infinity, count as this."""


class ChannelCall(ClientCall):
    """One call of a channel. Override `headers_received`, `message_received`, `writable` and `finished`.

    An override of `message_received` must call `commit`.
    """

    channel: ChannelCore
    metadata: Metadata = ()
    wait_for_ready: bool | None
    connection: ChannelConnection
    attached: bool
    """Whether an attempt runs; otherwise the call waits for a connection or for a delay."""
    replay: list[bytes] | None
    """The sent messages, as long as the call is not committed."""
    retries: Retries | None
    left = False
    """Whether an attempt may have reached a handler."""
    may_repeat = True
    ended_here = False

    # -- events

    def finished(self) -> None:
        """`status` is set. This is the last event, and it always comes."""

    # -- the application's side

    def begin(
        self,
        channel: ChannelCore,
        method: str,
        metadata: Metadata = (),
        *,
        timeout: float | None = None,
        message: bytes | None = None,
        end: bool = False,
        wait_for_ready: bool | None = None,
    ) -> bool:
        """Begin the call; see `ClientCall.start`. ``timeout`` in seconds."""
        self.channel = channel
        self.method = method
        self.metadata = metadata
        self._wants_end = end
        if channel.service_config is not None:
            timeout, wait_for_ready = self._configure(channel.config_of(method), timeout, wait_for_ready)
        self.wait_for_ready = wait_for_ready
        now = 0.0
        if timeout is not None:
            now = monotonic()
            try:
                usual = 0 < timeout < MOST_SECONDS
            except TypeError:
                raise TypeError(f"The timeout of a call must be a number of seconds, not {timeout!r}") from None
            if not usual:
                if not timeout > 0:  # NaN, too
                    self.deadline = now
                    self.end_here(Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", may_have_run=False))
                    return True
                timeout = MOST_SECONDS
            self.deadline = now + timeout
            channel.deadlines.add(self)
        channel.calls.add(self)
        if message is None:
            self.replay = []
        else:
            self.replay = [message]
            self.replay_size = len(message)
        connection = channel.pick(self)
        if connection is None:
            return message is None
        self.attached = True
        return self.start(connection, method, metadata, deadline=self.deadline, message=message, end=end, now=now)

    def begin_unary(self, channel: ChannelCore, method: str, message: bytes) -> None:
        """Begin a call with one message and no options."""
        self.begin(channel, method, message=message, end=True)

    def _configure(
        self, config: MethodConfig, timeout: float | None, wait_for_ready: bool | None
    ) -> tuple[float | None, bool | None]:
        if config.retry is not None:
            self.retries = Retries(config.retry, self.channel.throttle)
        if config.timeout is not None:
            timeout = config.timeout if timeout is None else min(timeout, config.timeout)
        return timeout, config.wait_for_ready if wait_for_ready is None else wait_for_ready

    def post(self, message: bytes, *, end: bool = False) -> bool:
        if self.over:
            return True
        if end:
            self._wants_end = True
        if self.replay is not None:
            self.replay.append(message)
            self.replay_size += len(message)
            if self.replay_size > MOST_REPLAY and self.attached:
                self.commit()
        if not self.attached:
            return False
        return super().post(message, end=end)

    def half_close(self) -> None:
        self._wants_end = True
        if self.attached:
            super().half_close()

    def cancel(self, code: int = StatusCode.CANCELLED, details: str = "") -> bool:
        if self.over:
            return False
        self.ended_here = True
        if self.attached:
            return super().cancel(code, details)
        self.channel.forget(self)
        self.end_here(Status(code, details, may_have_run=self.left))
        return True

    def expired(self) -> None:
        """The deadline has passed."""
        self.cancel(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def fail(self, details: str) -> None:
        """No connection is available, and the call does not wait for one."""
        self.end_here(Status(StatusCode.UNAVAILABLE, details, may_have_run=self.left))

    def end_here(self, status: Status) -> None:
        """End the call while no attempt runs."""
        self.ended_here = True
        self.over = self.received_end = True
        self.status = status
        self.replay = None
        self.channel.call_over(self)
        self.finished()

    def commit(self) -> None:
        """The application has seen an answer: no other attempt follows."""
        self.replay = None

    # -- attempts

    def headers_arrived(self, payload: memoryview) -> None:
        self.commit()
        super().headers_arrived(payload)

    def attempt(self, connection: ChannelConnection) -> None:
        """Begin, or begin again, on ``connection``, with all that was sent before."""
        replay = self.replay
        assert replay is not None
        metadata = self.metadata
        if self.retries is not None and self.retries.attempts > 1:
            metadata = (*metadata, (_ATTEMPTS, str(self.retries.attempts - 1)))
        self.attached = True
        first = replay[0] if replay else None
        alone = len(replay) <= 1
        self.start(
            connection,
            self.method,
            metadata,
            deadline=self.deadline,
            message=first,
            end=self._wants_end and alone,
            now=monotonic(),
        )
        for place, message in enumerate(replay[1:], 2):
            if not self.over:
                super().post(message, end=self._wants_end and place == len(replay))
        if self.replay_size > MOST_REPLAY:
            self.commit()
        if not self.over and self._queue is None:
            self.writable()

    def ended(self) -> None:
        """An attempt has ended: begin another one, or end the call."""
        connection, status = self.connection, self.status
        if status is None:
            raise RuntimeError("this call has no status yet: the connection reports its end")
        if connection.retired or len(connection.calls) >= connection.peer_max_calls - 1:
            connection.call_ended()
        self.left = self.left or status.may_have_run
        if self.replay is not None and not self.ended_here and (status.code or self.retries is not None):
            delay = self._delay(status)
            if delay is not None:
                self._prepare()
                self.channel.again(self, delay)
                return
        status.may_have_run = self.left
        self.replay = None
        self.channel.call_over(self)
        self.finished()

    def _delay(self, status: Status) -> float | None:
        if not status.may_have_run and status.code == StatusCode.UNAVAILABLE:
            if self.start_frame is not None:
                return 0.0
            if self.may_repeat:
                self.may_repeat = False
                return 0.0
        if self.retries is None:
            return None
        return self.retries.delay(status.code, status.metadata)

    def _prepare(self) -> None:
        self.attached = self.over = self.received_end = self.sent_end = self.unsent = False
        self.status = self.start_frame = None
        self.id = 0
        self.credits = self.window = self._owed = 0
        self.initial_metadata = None
