"""The process of a probe: ``python -m aiofabric.cli.doctor.probing QUESTION``.

The questions: ``signals``, ``choice ADDRESS...``, ``reach HOST``, ``describe``, ``echo PROVIDER TYPE``.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import signal
import statistics
import sys
from time import perf_counter
from typing import Any

import aiofabric
from aiofabric._ffi.load import file_of
from aiofabric.cli.doctor.choice_probe import choose_all, reach
from aiofabric.cli.doctor.host import describe
from aiofabric.cli.loop import run
from aiofabric.cli.sentence import sentence
from aiofabric.flags import EndpointType

__all__ = ["main"]

_ROUNDS, _SIZE = 200, 64
_LONG_ENOUGH, _TIMEOUT = 0.2, 10.0  # seconds
_LOOPBACK = "127.0.0.1"


def taken_signals() -> dict[str, str]:
    """Signals with a handler that is not Python's, and the file of each handler."""
    libc = ctypes.CDLL(None)
    python = file_of(ctypes.pythonapi.Py_Initialize)
    taken = {}
    for number in signal.valid_signals():
        action = (ctypes.c_size_t * 32)()  # struct sigaction; the handler is its first field
        if libc.sigaction(int(number), None, action) == 0 and action[0] not in (signal.SIG_DFL, signal.SIG_IGN):
            file = file_of(ctypes.c_void_p(action[0])) or "?"
            if file != python:
                taken[signal.Signals(number).name] = file
    return taken


async def echo(provider: str, kind: EndpointType) -> dict[str, Any]:
    """Send messages back and forth between two endpoints of this process."""
    async with asyncio.timeout(_TIMEOUT):
        return await (_connected if kind is EndpointType.MSG else _connectionless)(provider, kind)


async def _connected(provider: str, kind: EndpointType) -> dict[str, Any]:
    async def serve(listener: aiofabric.Listener) -> None:
        request = await listener.accept_request()
        async with await request.accept() as theirs:
            async for message in theirs:
                await theirs.send(message)

    node = _node(provider, kind)
    async with (
        aiofabric.listen(node, 0, provider=provider) as listener,
        asyncio.TaskGroup() as tasks,
    ):
        serving = tasks.create_task(serve(listener))
        async with await aiofabric.connect(listener.address, provider=provider) as ours:
            report = await _measure(ours.send, ours.recv)
        await serving
    return report


async def _connectionless(provider: str, kind: EndpointType) -> dict[str, Any]:
    node = _node(provider, kind)
    async with (
        aiofabric.open_endpoint(kind, node, provider=provider) as ours,
        aiofabric.open_endpoint(kind, node, provider=provider) as theirs,
        asyncio.TaskGroup() as tasks,
    ):
        there = await ours.add_peer(theirs.local_address)
        back = await theirs.add_peer(ours.local_address)

        async def serve() -> None:
            while True:
                await theirs.send(await theirs.recv(), to=back)

        serving = tasks.create_task(serve())

        async def send(message: bytes) -> None:
            await ours.send(message, to=there)

        report = await _measure(send, ours.recv)
        serving.cancel()
    return report


async def _measure(send: Any, receive: Any) -> dict[str, Any]:
    """Measure the round trips after the first one, which may include connecting."""
    times: list[float] = []
    for number in range(_ROUNDS):
        if sum(times[1:]) > _LONG_ENOUGH:
            break
        message = number.to_bytes(_SIZE, "big")
        start = perf_counter()
        await send(message)
        answer = await receive()
        times.append(perf_counter() - start)
        if answer != message:
            raise ValueError(f"message {number} came back as {bytes(answer)!r}")
    sources = aiofabric.Reactor.current().statistics().sources
    busiest = max(sources, key=lambda source: source.completions)
    return {
        "waiting": busiest.waiting.value,
        "microseconds": statistics.median(times[1:]) * 1e6,
        "signals": _taken_from_python(),
    }


def _taken_from_python() -> dict[str, str]:
    """All signals taken, if Python had a handler for one of them: the others end the process anyway."""
    taken = taken_signals()
    lost = (name for name in taken if callable(signal.getsignal(signal.Signals[name])))
    return taken if any(lost) else {}


def _node(provider: str, kind: EndpointType) -> str | None:
    """The loopback address, if the provider has it."""
    hints = aiofabric.Hints(ep_attr=aiofabric.EpAttr(type=kind), fabric_attr=aiofabric.FabricAttr(prov_name=provider))
    addresses = [info.src_addr for info in aiofabric.getinfo(hints=hints)]
    return _LOOPBACK if any(address and address.host == _LOOPBACK for address in addresses) else None


def main(*question: str) -> None:
    """Answer one question on stdout."""
    try:
        report = _answer(*question)
    except Exception as error:
        report = {"failure": sentence(error)}
    print(json.dumps(report))


def _answer(*question: str) -> dict[str, Any]:
    match question:
        case ("signals",):
            aiofabric.getinfo()
            return {"signals": taken_signals()}
        case ("choice", *addresses):
            return run(choose_all, *addresses)
        case ("reach", host):
            return run(reach, host)
        case ("describe",):
            return describe()
        case ("echo", provider, kind):
            return run(echo, provider, EndpointType[kind])
    raise ValueError(f"a probe has no question {question}")


if __name__ == "__main__":
    main(*sys.argv[1:])
