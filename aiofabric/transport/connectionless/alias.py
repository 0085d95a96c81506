"""Aliases: a second endpoint object for one endpoint, with other default flags (man page: fi_endpoint, fi_ep_alias)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from ..._ffi import constants, ffi, lib
from ...errors import NotSupportedError, check
from ...flags import OpFlags
from ...resource import Handle
from ...settings import check_receive_flags
from ..endpoint import Endpoint
from ..handle import EndpointHandle
from ..route import Route
from .handle import ConnectionlessHandle

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Aliases"]

E = TypeVar("E", bound=Endpoint)


class _AliasHandle(EndpointHandle):
    """Handle of a native alias. Operations posted through it belong to the endpoint: they continue after it closes."""

    __slots__ = ()
    parent: EndpointHandle
    serves_memory = False  # the endpoint's own handle does

    def refuse(self, call: str) -> BaseException:
        return self.parent.gone() if self.parent.gone is not None else super().refuse(call)

    @property
    def owner(self) -> EndpointHandle:
        return self.parent

    def release(self) -> None:
        self.thread_check.thread = 0
        Handle.release(self)
        orphans = self.parent.orphans
        triggered = [queue for queue in orphans if queue.owner is self]
        for queue in (*self.submission_queues, *triggered):
            queue.fail_waiting(self.closed_error)
        orphans[:] = [queue for queue in (*orphans, *self.submission_queues) if queue.posted or queue.waiting]


class _ConnectionlessAliasHandle(_AliasHandle, ConnectionlessHandle):
    __slots__ = ()


def _open_alias(endpoint: E, given: OpFlags | None, *, receiving: bool) -> E:
    """A second object for the endpoint, with ``given`` as default flags of its sends, or of its receives."""
    handle = endpoint._handle
    if given is not None:
        check_receive_flags(given)
    handle.check_usable("fi_ep_alias")
    if type(handle) not in (EndpointHandle, ConnectionlessHandle):
        detail = f"The provider {endpoint.info.fabric_attr.prov_name} has no connected endpoints of its own"
        raise NotSupportedError(constants.FI_ENOSYS, "fi_ep_alias", detail=detail)
    out = ffi.new("struct fid_ep **")
    direction = constants.FI_RECV if receiving else constants.FI_TRANSMIT
    check(lib.fi_ep_alias(handle.fid, out, direction | (given or 0)), "fi_ep_alias")
    what = f"alias of a {handle.what}"
    options = {"cancel_grace": handle.rx.grace}
    mine: _AliasHandle
    if isinstance(handle, ConnectionlessHandle):
        vector = handle.vector
        mine = _ConnectionlessAliasHandle(vector, what, out[0], handle, endpoint.info, handle.source, **options)
    else:
        mine = _AliasHandle(what, out[0], handle, endpoint.info, handle.source, **options)
        assert handle.tx is not None
        mine.tx = Route(mine, handle.tx.peer, handle.tx.name)
    mine.pool, mine.remote_writes = handle.pool, handle.remote_writes
    mine.open_for_use()
    alias: E = object.__new__(type(endpoint))
    for name in _attributes(endpoint):
        if hasattr(endpoint, name):
            setattr(alias, name, getattr(endpoint, name))
    alias._handle = mine
    alias._calls_go_by(mine.fast_path)
    # The provider would reset the flags that are not given.
    parent, own = endpoint.settings, alias.settings
    own.tx_flags = parent.tx_flags if receiving or given is None else given
    own.rx_flags = given if receiving and given is not None else parent.rx_flags & ~OpFlags.MULTI_RECV
    return alias


def _attributes(endpoint: Endpoint) -> Iterator[str]:
    for base in type(endpoint).__mro__:
        yield from (name for name in base.__dict__.get("__slots__", ()) if not name.startswith("__"))
    yield from getattr(endpoint, "__dict__", ())  # a subclass of the program may have one


class Aliases(Endpoint):
    """Endpoints that can have aliases."""

    __slots__ = ()

    def alias(self, flags: OpFlags | None = None, *, receiving: bool = False) -> Self:
        """A second object for the same endpoint, whose operations have other default flags.

        Default flags that are not given are those that the endpoint has now.

        Receives belong to the endpoint: the pool is shared, and so are the messages that arrive. Closing an alias
        leaves the endpoint open. Closing the endpoint closes its aliases first.

        Args:
            flags: for sends, reads and writes started through the alias, such as `OpFlags.DELIVERY_COMPLETE`.
            receiving: the flags are for receives instead.

        Raises:
            NotSupportedError: the provider has no aliases.
            ValueError: ``flags`` has FI_MULTI_RECV, which can only be chosen when the endpoint is opened
                (``multi_recv=``).

        Man page: fi_endpoint (fi_ep_alias).
        """

        return _open_alias(self, flags, receiving=receiving)
