"""ChannelCore: a target, its addresses, and the calls that wait for a connection."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import anyio

from ..._core import DirectPath
from ...cm.clients.backoff import Backoff
from ...cm.clients.targets import resolve
from ...cq.reactor import Reactor
from ...errors import WrongLoopError, WrongThreadError
from ..protocol.calls import Status
from ..protocol.connection import DEFAULT_LIMITS, Limits
from ..protocol.flow import ClientBudget
from ..protocol.status import StatusCode
from ..runtime.deadlines import Deadlines
from ..runtime.ended_loops import watch
from ..runtime.tasks import Tasks, tasks_of
from .arguments import check_options, check_timeout, made_by
from .policies import POLICIES, PickFirst, Policy
from .resolution import Resolution
from .retry import Throttle
from .service_config import ServiceConfig
from .states import States
from .subchannel import ChannelConnection, Connectivity, Subchannel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...cm.clients.targets import Resolver, Target
    from .interfaces import PendingCall
    from .service_config import MethodConfig

__all__ = ["ChannelCore"]


class ChannelCore:
    """Calls to the servers behind a target; for `aiofabric.rpc.Channel`, which describes the arguments, and for the
    interface of grpc.aio.
    """

    _bound = False  # to a loop

    def __init__(
        self,
        target: str,
        limits: Limits = DEFAULT_LIMITS,
        *,
        resolver: Resolver | None = None,
        policy: str | Callable[[], Policy] = "pick_first",
        service_config: ServiceConfig | None = None,
        backoff: Callable[[], Backoff] = Backoff,
        connect_timeout: float = 20.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(target, str):
            raise TypeError(f"The target of a channel must be a str such as 'host:port', not {target!r}")
        if not isinstance(limits, Limits):
            raise TypeError(f"limits must be Limits, not {limits!r}: host and port are one target, 'host:port'")
        if not isinstance(service_config, ServiceConfig | None):
            raise TypeError(f"The service config must be what ServiceConfig.parse() returns, not {service_config!r}")
        self.target = target
        self.limits = limits
        self.service_config = service_config
        self.throttle: Throttle | None = None
        if service_config is not None:
            if service_config.throttling is not None:
                self.throttle = Throttle(service_config.throttling)
            policy = service_config.policy or policy
        if isinstance(policy, str):
            if policy not in POLICIES:
                raise ValueError(f"the policy {policy!r} is not one of {', '.join(POLICIES)}")
            policy = POLICIES[policy]
        if resolver is not None and not callable(resolver):
            raise TypeError(f"resolver must be an async function that gets the target, not {resolver!r:.100}")
        self._policy: Policy = made_by("policy", policy, "pick", "connect", "update")
        self._backoff = backoff
        self._timeout = check_timeout(connect_timeout)
        self._options = check_options(options)
        self.budget = ClientBudget(limits.memory)
        self.calls: set[PendingCall] = set()
        self.direct = DirectPath(self.calls)
        self.waiting: deque[PendingCall] = deque()
        self._states = States()
        self._resolution = Resolution(target, resolver or resolve, made_by("backoff", backoff, "next", "reset"))
        self._subchannels: dict[Target, Subchannel] = {}
        self._configs: dict[str, MethodConfig] = {}
        self._thread = 0
        self._closing = False
        self._no_calls: anyio.Event | None = None
        self.tasks: Tasks
        self.deadlines: Deadlines

    def bind(self) -> None:
        """Use the running loop from now on. Raises WrongLoopError in another one."""
        if self._thread != get_ident():
            self._bind()

    def _bind(self) -> None:
        if self._bound:
            raise WrongLoopError(
                f"the channel to {self.target} belongs to the event loop of another thread: create a channel "
                "for each event loop"
            )
        self.driver = Reactor.current().driver
        self.deadlines = Deadlines.of(self.driver)
        self.tasks = tasks_of(self.driver)
        self._bound = True
        self._thread = get_ident()
        watch(self)

    def check_thread(self) -> None:
        """Raise WrongThreadError in another thread than that of the channel's loop."""
        if self._thread != get_ident():
            raise WrongThreadError(
                f"a call of the channel to {self.target} belongs to the thread of its event loop: use "
                "loop.call_soon_threadsafe()"
            )

    # -- calls

    def config_of(self, method: str) -> MethodConfig:
        """The settings of a method in the service config."""
        config = self._configs.get(method)
        if config is None:
            assert self.service_config is not None
            config = self.service_config.method(method)
            if len(self._configs) < 10_000:
                self._configs[method] = config
        return config

    def pick(self, call: PendingCall) -> ChannelConnection | None:
        """A connection for a new call; otherwise the call waits, or has failed."""
        subchannel = None if self._closing else self._policy.pick(call.method)
        if subchannel is not None:
            connection = subchannel.connection
            if connection is not None and connection.usable and (not call.metadata or connection.takes(call.metadata)):
                return connection
        if self._closing or self.state is Connectivity.SHUTDOWN:
            call.end_here(Status(StatusCode.CANCELLED, "The channel is closed", may_have_run=False))
            return None
        if self.state is Connectivity.TRANSIENT_FAILURE and not call.wait_for_ready:
            self.connect()
            self.driver.call_soon(partial(self._fail, call, self.failure_text))
            return None
        self.waiting.append(call)
        self.connect()
        return None

    def _choose_directly(self) -> None:
        """Tell the stubs which connection every new call takes, if it is always the same one."""
        subchannel = None
        if type(self._policy) is PickFirst and self.service_config is None and not self._closing:
            subchannel = self._policy.chosen
        self.direct.connection = None if subchannel is None else subchannel.connection

    def _fail(self, call: PendingCall, details: str) -> None:
        if not call.over:
            call.fail(details)

    def forget(self, call: PendingCall) -> None:
        """A waiting call was cancelled."""
        if call in self.waiting:
            self.waiting.remove(call)

    def call_over(self, call: PendingCall) -> None:
        """A call has ended."""
        self.calls.discard(call)
        if self._closing and not self.calls and self._no_calls is not None:
            self._no_calls.set()

    def again(self, call: PendingCall, delay: float) -> None:
        """Begin another attempt of a call after a delay in seconds."""

        def attempt() -> None:
            if not call.over and not call.attached and self.state is not Connectivity.SHUTDOWN:
                connection = self.pick(call)
                if connection is not None:
                    call.attempt(connection)

        if delay:
            self.driver.call_later(delay, attempt)
        else:
            self.driver.call_soon(attempt)

    @property
    def failure_text(self) -> str:
        """Why there is no connection."""
        failures = [each.failure for each in self._subchannels.values() if each.failure is not None]
        failure = failures[-1] if failures else self._resolution.failure
        return f"No connection to {self.target}: {failure}" if failure else f"No connection to {self.target}"

    # -- connections

    def connect(self) -> None:
        """Resolve the target and connect, unless that is under way."""
        self.bind()
        if self.driver.closed():
            raise WrongLoopError(
                f"the channel to {self.target} belongs to an event loop that has ended: create a channel for "
                "each event loop"
            )
        if self._resolution.current:
            self._policy.connect()
            self.changed()
        elif not self._resolution.pending:
            if self.state is Connectivity.IDLE:
                self._states.change_to(Connectivity.CONNECTING)
            self._resolution.start(self.tasks, self._target_resolved)

    def _target_resolved(self, targets: Sequence[Target]) -> None:
        if self.state is Connectivity.SHUTDOWN:
            return
        if not targets:
            self._resolution.retry_later(self.driver, self._resolve_again)
            self._states.change_to(Connectivity.TRANSIENT_FAILURE)
            self._fail_waiting()
            return
        old, self._subchannels = self._subchannels, {}
        for target in targets:
            self._subchannels[target] = old.pop(target) if target in old else self._new_subchannel(target)
        self._policy.update([*self._subchannels.values()])
        for subchannel in old.values():
            subchannel.retire()
        self._policy.connect()
        self.changed()

    def _new_subchannel(self, target: Target) -> Subchannel:
        return Subchannel(
            target,
            self.limits,
            self.budget,
            self.tasks,
            _weak(self._subchannel_changed),
            backoff=self._backoff(),
            connect_timeout=self._timeout,
            options=self._options,
        )

    @property
    def _wanted(self) -> bool:
        return bool(self.waiting or self._states.watched)

    def _resolve_again(self) -> None:
        if self.state is not Connectivity.SHUTDOWN and self._wanted:
            self._resolution.start(self.tasks, self._target_resolved)

    def _subchannel_changed(self) -> None:
        self.changed()
        if self.state is Connectivity.TRANSIENT_FAILURE:
            self._resolution.current = False  # the addresses may have changed
            if self._wanted and not self._resolution.pending:
                self._resolution.retry_later(self.driver, self._resolve_again)

    def changed(self) -> None:
        """The state of a subchannel has changed, or a connection takes calls again."""
        if self.state is Connectivity.SHUTDOWN:
            return
        policy = self._policy
        policy.changed()
        self._choose_directly()
        if self.waiting and policy.state is Connectivity.IDLE:
            policy.connect()
        if policy.state is not self.state:
            if policy.state is Connectivity.READY:
                self._resolution.connected()
            self._states.change_to(policy.state)
        if self.waiting:
            if self.state is Connectivity.TRANSIENT_FAILURE:
                self._fail_waiting()
            else:
                self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self.waiting:
            call = self.waiting[0]
            subchannel = self._policy.pick(call.method)
            connection = None if subchannel is None else subchannel.connection
            if connection is None or not connection.usable or not connection.takes(call.metadata):
                return
            self.waiting.popleft()
            call.attempt(connection)

    def _fail_waiting(self) -> None:
        for call in [each for each in self.waiting if not each.wait_for_ready]:
            if call in self.waiting:
                self.waiting.remove(call)
                call.fail(self.failure_text)

    # -- states

    @property
    def state(self) -> Connectivity:
        return self._states.current

    def get_state(self, try_to_connect: bool = False) -> Connectivity:
        """The state; with ``try_to_connect``, an IDLE channel begins to connect."""
        state = self.state
        if try_to_connect and state is Connectivity.IDLE:
            self.connect()
        return state

    async def wait_for_state_change(self, last: Connectivity) -> None:
        """Wait until the state is another one than ``last``."""
        await self._states.wait_for_change(last)

    # -- the end

    async def close(self, grace: float | None = None) -> None:
        """Begin no more calls; running ones may take ``grace`` seconds, then they are cancelled."""
        self._closing = True
        self._choose_directly()
        try:
            if grace and self.calls:
                for call in self.calls:
                    call.plain = False  # its end may be the last one
                event = self._no_calls = anyio.Event()
                with anyio.move_on_after(grace):
                    await event.wait()
        finally:
            self.abort()
        if self._bound:
            await self.tasks.wait()

    def forgotten(self) -> bool:
        """The program has dropped its channel: end everything soon. False if nothing is open.

        The collector may run in any thread.
        """
        if not self._bound or self.state is Connectivity.SHUTDOWN:
            return False
        if self.driver.closed():
            if self._thread == get_ident():
                self.loop_ended()
            return False
        subchannels = [*self._subchannels.values()]
        for subchannel in subchannels:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self.driver.call_soon_threadsafe(subchannel.close)
        return bool(subchannels)

    def loop_ended(self) -> None:
        """Close the connections of a loop that has ended."""
        self._states.current = Connectivity.SHUTDOWN  # without callbacks: their loop has ended
        self.direct.connection = None
        for subchannel in self._subchannels.values():
            subchannel.loop_ended()

    def __del__(self) -> None:
        self.forgotten()

    def abort(self) -> None:
        """Close at once: cancel all calls."""
        if self.state is Connectivity.SHUTDOWN:
            return
        self.direct.connection = None
        for call in [*self.calls]:
            call.cancel(StatusCode.CANCELLED, "Channel closed.")
        self._states.change_to(Connectivity.SHUTDOWN)
        for subchannel in self._subchannels.values():
            subchannel.close()
        self._resolution.close()
        if self._bound:
            self.tasks.cancel_all()


def _weak(method: Callable[[], object]) -> Callable[[], object]:
    """A function that calls a method, and does not keep its object alive."""
    reference = WeakMethod(method)

    def call() -> object:
        method = reference()
        return None if method is None else method()

    return call
