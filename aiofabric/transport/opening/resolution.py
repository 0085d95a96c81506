"""Resolution: host names and the first load of providers, outside of the loop's thread."""

from __future__ import annotations

import socket
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

from ..._ffi import is_loaded
from ...address import Address, is_ip, split_uri
from ...cq.reactor import Reactor
from ...errors import NoProviderError, unresolved
from ...flags import EndpointType, GetInfoFlags
from ...info import Hints, Info, getinfo
from ...info.place import check_place, check_remote

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["at_port", "local_places", "must_resolve", "places", "resolve"]


async def resolve(
    node: str | Address | None,
    service: str | int | None,
    hints: Hints,
    *,
    passive: bool = False,
    call: Callable[..., list[Info]] = getinfo,
) -> list[Info]:
    """Call getinfo without blocking the loop: name look-ups and the first load of providers run in a worker thread.

    A listener's address is asked for with port 0, and its port is added afterwards. verbs binds to the address in
    fi_getinfo (vrb_get_rai_id), and offers nothing for a port in use: another provider would listen there instead.
    """
    if passive and hints.ep_attr.type == EndpointType.MSG and (port := _port_of(node, service)):
        with suppress(NoProviderError):
            if found := _offers_at(port, await _ask(*at_port(node, 0), hints, passive=passive, call=call)):
                return found
    return await _ask(node, service, hints, passive=passive, call=call)


def _port_of(node: str | Address | None, service: str | int | None) -> int | None:
    """The port of a local address; None if it has none, or a name instead of a number."""
    if isinstance(node, Address):
        return node.port
    if node is not None and (parts := split_uri(node)) is not None and service is None:
        return parts[1]
    if isinstance(service, str):
        return int(service) if service.isdecimal() else None
    return service


def at_port(node: str | Address | None, port: int) -> tuple[str | Address | None, int | None]:
    """Node and service: the same address with this port."""
    if isinstance(node, Address):
        return Address.from_ip(node.host or "", port), None
    if node is not None and (parts := split_uri(node)) is not None:
        node = parts[0]
    return node or None, port


def _offers_at(port: int, found: list[Info]) -> list[Info]:
    """The offers with this local port; none if one of them has no address with a port."""
    addresses = [info.src_addr for info in found]
    if any(address is None or address.port is None for address in addresses):
        return []
    return [
        info.replace(src_addr=Address.from_ip(address.host or "", port))
        for info, address in zip(found, addresses, strict=True)
        if address is not None
    ]


async def _ask(
    node: str | Address | None,
    service: str | int | None,
    hints: Hints,
    *,
    passive: bool,
    call: Callable[..., list[Info]],
) -> list[Info]:
    flags = GetInfoFlags.SOURCE if passive else GetInfoFlags(0)
    if isinstance(node, Address):
        if service is not None:
            raise ValueError(f"{node} is a complete address: leave out the service {service!r}")
        hints = replace(hints, src_addr=node) if passive else replace(hints, dest_addr=node)
        node = None
        flags = GetInfoFlags(0)
    elif passive and service is None and "://" not in (node or ""):
        service = 0
    question = partial(call, node, service, flags=flags, hints=hints)
    if is_loaded() and _is_numeric(node):
        return question()
    return await _in_a_thread(question)


async def _in_a_thread(question: Callable[[], list[Info]]) -> list[Info]:
    """Run the function ``question`` in its own thread, which then ends; a thread of anyio's pool would stay as long as
    the loop.
    """
    from anyio import CancelScope, Event
    from anyio.to_thread import current_default_thread_limiter

    answer: Future[list[Info]] = Future()
    answered, driver = Event(), Reactor.current().driver
    limiter = current_default_thread_limiter()

    def ended() -> None:
        limiter.release_on_behalf_of(answer)
        answered.set()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:
            answer.set_exception(error)
        with suppress(RuntimeError):  # the loop has ended
            driver.call_soon_threadsafe(ended)

    thread = Thread(target=ask, name="aiofabric getinfo", daemon=True)
    await limiter.acquire_on_behalf_of(answer)  # held until the thread ends, also if asyncio cancels this task before
    try:
        thread.start()
    except RuntimeError:
        limiter.release_on_behalf_of(answer)
        raise
    with CancelScope(shield=True):
        await answered.wait()
    thread.join()
    return answer.result()


async def must_resolve(node: str | Address | None, service: str | int | None) -> None:
    """Raise NameResolutionError for an unknown host or service; libfabric takes much longer to report it."""
    check_place(node, service)
    named = isinstance(service, str) and not service.isdecimal()
    if not isinstance(node, Address) and (named or not _is_numeric(node)):
        await _look_up(node, service)


async def _look_up(node: str | None, service: str | int | None) -> list[Any]:
    """Call getaddrinfo in a thread of anyio's pool.

    Raises:
        NameResolutionError: the name does not resolve.
    """
    from anyio import getaddrinfo  # imported here: it loads anyio's sockets and TLS, 8 ms

    try:
        return await getaddrinfo(node, service, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise unresolved(error, node, service) from None


async def places(
    node: str | Address | None, service: str | int | None
) -> list[tuple[str | Address | None, str | int | None]]:
    """The addresses of a host name, in the resolver's order; a node that is not a name is returned as it is.

    libfabric tries only the first address, and on Debian the first address of localhost is ::1.

    Raises:
        NameResolutionError: the name does not resolve.
        TypeError, ValueError: not a valid address of a peer.
    """
    check_remote(node, service)
    return await _each_address(node, service)


async def local_places(
    node: str | Address | None, service: str | int | None
) -> list[tuple[str | Address | None, str | int | None]]:
    """`places` for listening: at each address of a host name.

    Raises:
        NameResolutionError: the name does not resolve.
        TypeError, ValueError: not a valid address.
    """
    check_place(node, service)
    return await _each_address(node, service)


async def _each_address(
    node: str | Address | None, service: str | int | None
) -> list[tuple[str | Address | None, str | int | None]]:
    if not isinstance(node, str) or _is_numeric(node):
        return [(node, service)]
    names = [name for *_, name in await _look_up(node, service)]
    found = [Address.from_ip(_with_scope(*name), int(name[1])) for name in names]
    return [(address, None) for address in dict.fromkeys(found)]


def _with_scope(host: Any, _: object, __: object = 0, scope: int = 0) -> str:
    """The host of a socket address of Python, whose link-local hosts have the number of their interface apart."""
    return f"{host}%{scope}" if scope and "%" not in host else str(host)


def _is_numeric(node: str | None) -> bool:
    return node is None or "://" in node or is_ip(node)
