"""Counter: how many operations finished, without a completion for each (man page: fi_cntr).

tcp, rxm, shm and net offer no descriptor for a counter, and that of sockets does not always work. So a counter wakes no
task by itself. While a task waits for a counter, the sources of its endpoints poll the counter after each pass.
Without other events, the passes follow each other with a growing delay of at most 20 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from anyio import ClosedResourceError

from .._ffi import constants, ffi, lib
from ..arguments import check_number, check_type
from ..errors import FabricError, check
from ..flags import CounterEvents
from ..resource import Handle, Resource, check_resource
from .reactor import Reactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..domain import Domain
    from ..flags import Bind
    from .loops.drivers import Driver, Waiter
    from .source.source import Source

__all__ = ["Counter"]


class _Wait(NamedTuple):
    threshold: int
    errors: int  # as many had failed when the wait began
    waiter: Waiter
    driver: Driver

    def wake(self, error: FabricError | None = None) -> None:
        if not self.waiter.done() and not self.driver.closed():
            self.waiter.set_result(error)


class _CounterHandle(Handle):
    """The native counter and the tasks that wait for it. Its children are the endpoints that it is bound to."""

    __slots__ = ("moved_by", "waits")

    def __init__(self, fid: Any, domain: Domain) -> None:
        super().__init__("Counter", fid, domain._handle)
        self.waits: dict[_Wait, None] = {}
        self.moved_by: set[Source] = set()

    def poll(self) -> int:
        """Wake the tasks whose threshold is reached, or that must see a failure; return how many."""
        value, errors = lib.fi_cntr_read(self.fid), lib.fi_cntr_readerr(self.fid)
        reached = [wait for wait in self.waits if value >= wait.threshold or errors != wait.errors]
        for wait in reached:
            self.forget(wait)
            wait.wake()
        return len(reached)

    def remember(self, wait: _Wait) -> None:
        self.waits[wait] = None
        for source in self.moved_by:
            source.polled[self] = source.wait_owners[self] = None
            source.touch()

    def wait_failed(self, error: Callable[[], FabricError]) -> int:
        """A source that moves the counter cannot wait for its queue: nothing would poll the counter."""
        waits = list(self.waits)
        for wait in waits:
            self.forget(wait)
            wait.wake(error())
        return len(waits)

    def forget(self, wait: _Wait) -> None:
        self.waits.pop(wait, None)
        if not self.waits:
            for source in self.moved_by:
                source.polled.pop(self, None)
                source.wait_owners.pop(self, None)

    def close(self) -> None:
        try:
            super().close()
        finally:
            for wait in list(self.waits) if self.closed else ():  # the native counter may stay: an endpoint lingers
                self.forget(wait)
                wait.wake()


class Counter(Resource):
    """A completion counter of a domain; bind it with ``counters={counter: Bind.SEND}`` when an endpoint opens.

    It counts the operations of the endpoints it is bound to, by the flags of the binding, whether or not each of
    them also has a completion. Closing it closes these endpoints first.

    Args:
        domain: where to open it.
        events: what it counts.

    Raises:
        NotSupportedError: the provider has no counters (udp).

    Man page: fi_cntr (fi_cntr_open).
    """

    __slots__ = ("domain",)
    _handle: _CounterHandle

    def __init__(self, domain: Domain, *, events: CounterEvents = CounterEvents.COMP) -> None:
        check_resource("domain", domain, "Domain")
        domain._handle.check_open()
        check_type("events", events, int)
        out = ffi.new("struct fid_cntr **")
        attr = ffi.new("struct fi_cntr_attr[2]")  # the library's own layout may be longer than the headers'
        attr[0].events = events
        attr[0].wait_obj = constants.FI_WAIT_NONE
        check(lib.fi_cntr_open(domain._handle.fid, attr, out, ffi.NULL), "fi_cntr_open")
        self.domain = domain
        self._handle = _CounterHandle(out[0], domain)

    def _bind(self, endpoint: Handle, source: Source, flags: Bind) -> None:
        """Count the operations of a not yet enabled endpoint that ``source`` moves (fi_ep_bind)."""
        handle = self._handle
        endpoint.need(handle)
        check(lib.fi_ep_bind(endpoint.fid, ffi.cast("struct fid *", handle.fid), flags), "fi_ep_bind")
        handle.moved_by.add(source)

    def read(self) -> int:
        """How many operations have finished well, plus what was added (fi_cntr_read)."""
        self._handle.check_open()
        return lib.fi_cntr_read(self._handle.fid)

    def read_error(self) -> int:
        """How many operations have failed; each also has an error completion (fi_cntr_readerr)."""
        self._handle.check_open()
        return lib.fi_cntr_readerr(self._handle.fid)

    def add(self, value: int) -> None:
        """Add to the count (fi_cntr_add)."""
        self._change("fi_cntr_add", lib.fi_cntr_add, value)

    def set(self, value: int) -> None:
        """Set the count (fi_cntr_set)."""
        self._change("fi_cntr_set", lib.fi_cntr_set, value)

    def add_error(self, value: int) -> None:
        """Add to the count of failures (fi_cntr_adderr)."""
        self._change("fi_cntr_adderr", lib.fi_cntr_adderr, value)

    def set_error(self, value: int) -> None:
        """Set the count of failures (fi_cntr_seterr)."""
        self._change("fi_cntr_seterr", lib.fi_cntr_seterr, value)

    def _change(self, call: str, function: Any, value: int) -> None:
        handle = self._handle
        handle.check_open()
        check_number("value", value, 64)
        check(function(handle.fid, value), call)
        handle.poll()

    async def wait(self, threshold: int) -> int:
        """Wait until at least ``threshold`` operations have finished well; return the count.

        Cancelling is safe: nothing is lost, the count stays.

        Raises:
            FabricError: a counted operation has failed meanwhile. The await of that operation raises the reason.
            ClosedResourceError: the counter was closed.

        Man page: fi_cntr (fi_cntr_wait).
        """
        handle = self._handle
        handle.check_open()
        driver = Reactor.current().driver
        if driver.checkpoint_if_cancelled is not None:
            await driver.checkpoint_if_cancelled()
        if driver.shielded_checkpoint is not None:
            await driver.shielded_checkpoint()
        handle.check_open()
        errors = lib.fi_cntr_readerr(handle.fid)
        while (count := lib.fi_cntr_read(handle.fid)) < threshold:
            wait = _Wait(threshold, errors, driver.create_waiter(), driver)
            handle.remember(wait)
            try:
                failure = await wait.waiter
            finally:
                handle.forget(wait)
            if failure is not None:
                raise failure
            if handle.closed:
                raise ClosedResourceError("this Counter was closed")
            if failed := lib.fi_cntr_readerr(handle.fid) - errors:
                detail = f"{failed} of the counted operations failed; {count} of {threshold} had finished well"
                raise FabricError(constants.FI_EIO, "fi_cntr_wait", detail=detail)
        return count

    def __repr__(self) -> str:
        return f"<Counter {'closed' if self.closed else self.read()}>"
