"""Connector: listens and connects for one end of a pipeline, until that end has no more use for connections.

A connection that is lost is made again, after growing delays. Log records of ERROR are printed although the program has
not configured logging: one for each place where something else listens, or where no peer has answered for ten seconds.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
from anyio import ClosedResourceError

from ...cm.acceptor import Acceptor
from ...cm.clients.backoff import Backoff
from ...errors import FabricConnectionRejectedError, NoProviderError
from ...transport.connect import connect, listen
from ...transport.opening.selection import find_connectable
from ..places import finder_of, target_of
from ..protocol.hello import HelloError, Role
from .connection import Receives

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AsyncExitStack

    from anyio.abc import TaskGroup

    from ...address import Address
    from ...cm.listener import Listener
    from ...cm.requests import ConnectionRequest
    from ...transport.connected.endpoint import MessageEndpoint
    from ..places import Place, PlaceFolder, Places, Target
    from ..protocol.hello import Hello

__all__ = ["Connector", "Participant"]

_DELAYS: Final = (0.05, 1.6, 5.0)
"""Seconds before the second attempt to connect, the factor for each further one, and the longest."""

_SILENT: Final = 10.0
"""Seconds without a connection after which this is an error: either side may start first."""

_log = logging.getLogger(__name__)


class Participant(Protocol):
    """One end's part of a connection."""

    async def wait_end(self) -> bool: ...  # True: the other end has finished, so it is not connected again
    def close(self) -> None: ...  # now; nothing, if the connection has ended


class Connector:
    """``joined`` gets each connection with the peer's hello, ``watched`` one that asks for statistics."""

    def __init__(
        self,
        hello: Hello,
        places: Places | None,
        listen: Place | None,
        announce: PlaceFolder | None,
        joined: Callable[[MessageEndpoint, Hello], Participant],
        watched: Callable[[MessageEndpoint], Awaitable[None]],
        options: dict[str, Any],
    ) -> None:
        if places is None and listen is None:
            raise ValueError("say where the other end is, or listen=, where this one is")
        if announce is not None and listen is None:
            raise ValueError("announce= needs listen=: only a listener can be found")
        self._hello = hello
        self._receives = Receives(hello)
        self._finder = None if places is None else finder_of(places)
        self._listen_at = None if listen is None else target_of(listen)
        self._announce = announce
        self._joined = joined
        self._watched = watched
        self._options = options
        self._connecting: set[Target] = set()
        self._targets: set[Target] = set()  # that were found the last time
        self._places_change = False
        self._listener: Listener | None = None

    @property
    def address(self) -> Address | None:
        """Where this end listens."""
        return None if self._listener is None else self._listener.address

    async def start(self, tasks: TaskGroup, stack: AsyncExitStack) -> None:
        """Listen, and begin to connect. ``stack`` closes the listener."""
        if self._listen_at is not None:
            listener = await stack.enter_async_context(listen(*self._listen_at, **self._options))
            self._listener = listener
            tasks.start_soon(self._accept_all, listener, tasks)
            if self._announce is not None:
                await stack.enter_async_context(self._announce.announced(listener.address))
        if self._finder is not None:
            tasks.start_soon(self._connect_all, *self._finder, tasks)

    # -- accepting

    async def _accept_all(self, listener: Listener, tasks: TaskGroup) -> None:
        requests = Acceptor(listener)
        async for request in requests:
            tasks.start_soon(self._accept, requests, request)

    async def _accept(self, requests: Acceptor, request: ConnectionRequest) -> None:
        try:
            theirs = self._hello.check_other(request.param)
        except HelloError as error:
            _log.warning("no connection with %s: %s", request.address, error)
            _refuse(request, str(error))
            return
        with self._receives.for_connection(request.info.fabric_attr.prov_name, theirs.role) as (hello, options):

            async def accepting() -> MessageEndpoint:
                return await request.accept(param=hello.pack(), **options)

            try:
                endpoint = await requests.accept(request, accepting)
            except ClosedResourceError:  # this end is leaving, and its listener is closed already
                return
            if endpoint is None:
                return
            if theirs.role == Role.WATCH:
                await self._watched(endpoint)
            else:
                await self._take_part(endpoint, theirs)

    async def _take_part(self, endpoint: MessageEndpoint, theirs: Hello) -> bool:
        """Until the connection ends, or this end has no more use for it; see `Participant.wait_end`."""
        participant = self._joined(endpoint, theirs)
        try:
            return await participant.wait_end()
        finally:
            participant.close()

    # -- connecting

    async def _connect_all(self, found: AsyncIterator[Sequence[Target]], change: bool, tasks: TaskGroup) -> None:
        self._places_change = change
        async for targets in found:
            self._targets = set(targets)
            for target in self._targets - self._connecting:
                self._connecting.add(target)
                tasks.start_soon(self._keep_connected, target)

    async def _keep_connected(self, target: Target) -> None:
        """Connect to one place, and again, until the other end has finished or the place is not found any more."""
        first, multiplier, longest = _DELAYS
        delays = Backoff(first, multiplier, longest)
        failures = _Failures(target)
        try:
            while target in self._targets:
                provider = await self._provider_for(target)
                with self._receives.for_connection(provider) as (hello, options):
                    try:
                        endpoint = await connect(*target, param=hello.pack(), **options, **self._options)
                        theirs = self._check(endpoint)
                    except NoProviderError:
                        raise  # waiting does not help
                    except FabricConnectionRejectedError as error:
                        if error.param:
                            failures.refused(error.param.decode(errors="replace"))
                        else:
                            failures.refused_without_reason(error)
                    except OSError as error:
                        failures.failed(error)
                    except HelloError as error:
                        failures.refused(error)
                    else:
                        delays.reset()
                        failures = _Failures(target)
                        if await self._take_part(endpoint, theirs):
                            return
                await anyio.sleep(delays.next())
        finally:
            if self._places_change:
                self._connecting.discard(target)  # it may be announced again

    async def _provider_for(self, target: Target) -> str | None:
        """The provider that `connect` chooses. None: it will raise, too."""
        chosen: str | None = self._options["provider"]
        if chosen is None:
            with suppress(OSError, ValueError):
                info = await find_connectable(*target, provider=None, domain=None, hints=None)
                chosen = info.fabric_attr.prov_name
        return chosen

    def _check(self, endpoint: MessageEndpoint) -> Hello:
        try:
            return self._hello.check_other(endpoint.param)
        except HelloError:
            endpoint.abort()
            raise


class _Failures:
    """The failures to connect to one place; the first one that matters is logged as an error."""

    def __init__(self, target: Target) -> None:
        self._name = ":".join(str(part) for part in target if part is not None)
        self._since: float | None = None  # when the first attempt failed
        self._refused = False  # without a reason
        self._level = logging.ERROR

    def refused(self, reason: object) -> None:
        """Something listens there that is not the other end."""
        self._say("%s refuses the connection: %s. It is tried again", reason)

    def refused_without_reason(self, error: FabricConnectionRejectedError) -> None:
        """A listener that closes does so once with the requests that wait: its end of a pipeline leaves."""
        if self._refused:
            self.refused("it gave no reason")
        else:
            self._refused = True
            self.failed(error)

    def failed(self, error: OSError) -> None:
        now = anyio.current_time()
        if self._since is None:
            self._since = now
        if now - self._since < _SILENT:
            _log.info("no connection with %s yet: %s", self._name, error)
        else:
            self._say("no connection with %s for 10 seconds: %s. It is tried again", error)

    def _say(self, text: str, reason: object) -> None:
        _log.log(self._level, text, self._name, reason)
        self._level = logging.INFO


def _refuse(request: ConnectionRequest, reason: str) -> None:
    with suppress(OSError, ClosedResourceError):  # the client has left, or this end is leaving
        try:
            request.reject(param=reason.encode())
        except ValueError:  # the provider carries less private data
            request.reject()
