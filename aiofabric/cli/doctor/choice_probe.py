"""The provider that `connect` and `listen` choose for an address, found by calling them; runs in a probe's process."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiofabric
from aiofabric.cli.sentence import sentence
from aiofabric.errors import FabricError, NoProviderError
from aiofabric.flags import Caps, EndpointType, GetInfoFlags
from aiofabric.info import EpAttr, Hints, Info, getinfo
from aiofabric.transport.opening.device_failures import is_device, leave_out
from aiofabric.transport.opening.resolution import places
from aiofabric.transport.opening.selection import find_connectable
from aiofabric.transport.opening.shared_objects import open_once

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["choose_all", "collect_left_out", "reach"]

_TIMEOUT = 3.0  # seconds for each address; a probe has 20
_ANY_PORT = 1  # nothing is sent to it: a destination without a port is none


async def choose_all(*addresses: str) -> dict[str, Any]:
    """For each local address: the provider that listens there, and the one that a connection to it uses."""
    with collect_left_out() as left_out:
        return {"choices": {address: await _choose(address, left_out) for address in addresses}}


async def _choose(address: str, left_out: dict[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    try:
        async with asyncio.timeout(_TIMEOUT), aiofabric.listen(address, 0) as listener, asyncio.TaskGroup() as tasks:
            answer |= _described(listener.info, address, left_out, passive=True)
            accepting = tasks.create_task(_accept(listener))
            async with await aiofabric.connect(listener.address) as endpoint:
                answer["connect"] = endpoint.info.fabric_attr.prov_name
            await accepting
    except Exception as error:
        answer["failure"] = sentence(error)
    return answer


async def _accept(listener: aiofabric.Listener) -> None:
    request = await listener.accept_request()
    async with await request.accept() as endpoint:
        async for _ in endpoint:
            pass


async def reach(host: str) -> dict[str, Any]:
    """The choice of `connect` for another host. Nothing is sent to it."""
    with collect_left_out() as left_out:
        async with asyncio.timeout(_TIMEOUT):
            node, service = (await places(host, _ANY_PORT))[0]
            while True:
                info = await find_connectable(node, service, provider=None, domain=None, hints=None)
                try:
                    if is_device(info):
                        open_once(info)
                    break
                except FabricError as error:
                    if not leave_out(info, error):
                        raise
        return _described(info, host, left_out, passive=False)


def _described(info: Info, node: str, left_out: dict[str, str], *, passive: bool) -> dict[str, Any]:
    name = info.fabric_attr.prov_name
    offered = _connected_offers(node, passive=passive)
    before = offered[: offered.index(name)] if name in offered else offered
    return {
        "provider": name,
        "connected": info.ep_attr.type is EndpointType.MSG,
        "domain": info.domain_attr.name,
        "source": info.src_addr.host if info.src_addr is not None else None,
        "device": is_device(info),
        "after": [other for other in offered if other != name and other not in before],
        "left_out": {other: left_out.get(other, "") for other in before},
    }


def _connected_offers(node: str, *, passive: bool) -> list[str]:
    """The providers of connected endpoints for an address, in libfabric's order, as `find_connectable` asks."""
    flags = GetInfoFlags.SOURCE if passive else GetInfoFlags(0)
    for caps in (Caps.MSG | Caps.RMA, Caps(0)):
        hints = Hints(caps=caps, ep_attr=EpAttr(type=EndpointType.MSG))
        with suppress(NoProviderError):
            offers = getinfo(node, 0 if passive else _ANY_PORT, flags=flags, hints=hints)
            return list(dict.fromkeys(info.fabric_attr.prov_name for info in offers))
    return []


@contextmanager
def collect_left_out() -> Iterator[dict[str, str]]:
    """The providers that were left out, each with the reason: aiofabric logs one warning for each."""
    found: dict[str, str] = {}

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            match record.args:
                case (str(name), FabricError() as error, *_):
                    found[name] = str(error)

    collector, log = Collector(), logging.getLogger("aiofabric")
    log.addHandler(collector)
    try:
        yield found
    finally:
        log.removeHandler(collector)
