"""Hazard: a wrong argument of a public call fails deep inside, with an AttributeError or an AssertionError.

Calls everything that programs can call with wrong arguments, in a child. The answer may be a result, or an error that
says what is wrong: TypeError, ValueError, or one of aiofabric's and anyio's own.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import BrokenResourceError, BusyResourceError, ClosedResourceError, EndOfStream

import aiofabric
import aiofabric.aio
import aiofabric.debugging
import aiofabric.metrics
import aiofabric.rpc
import aiofabric.streams
import aiofabric.testing
from aiofabric import Access, Counter, EndpointType, Hints, WrongLoopError, WrongThreadError
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import connected_pair

pytestmark = pytest.mark.once

WRONG: tuple[Any, ...] = (object(), None, -1, 1 << 70, 1.5, "x", b"", (), {}, print, int)
OWN = (
    OSError,
    WrongLoopError,
    WrongThreadError,
    ClosedResourceError,
    BrokenResourceError,
    BusyResourceError,
    EndOfStream,
)
ALLOWED = (TypeError, ValueError, BufferError, StopIteration, StopAsyncIteration, *OWN)
MODULES = (
    aiofabric,
    aiofabric.streams,
    aiofabric.aio,
    aiofabric.testing,
    aiofabric.metrics,
    aiofabric.debugging,
    aiofabric.rpc,
)
ENDINGS = {"close", "aclose", "abort", "shutdown"}  # they take no arguments, and the object is needed


class Attempts:
    """The calls, and what they raised instead of an allowed error."""

    def __init__(self) -> None:
        self.calls = 0
        self.wrong: dict[str, str] = {}

    async def call(self, name: str, function: Callable[..., Any], /, *args: Any, **options: Any) -> None:
        self.calls += 1
        try:
            with anyio.move_on_after(0.05):
                result = function(*args, **options)
                if inspect.isawaitable(result):
                    await result
                elif hasattr(result, "__aenter__") and name.split(".")[-1][0].islower():
                    async with result:
                        pass
        except ALLOWED:
            pass
        except Exception as error:
            self.wrong.setdefault(f"{name}: {type(error).__name__}", f"{error}, for {args!r:.100} {options!r:.100}")

    async def try_all(self, name: str, function: Callable[..., Any]) -> None:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # of C
            parameters = ()  # type: ignore[assignment]
        places = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        needed = sum(each.default is each.empty for each in places)
        await self.call(name, function)
        for value in WRONG:
            for count in range(needed, len(places) + 1):
                await self.call(name, function, *[value] * count)
            for each in parameters:
                if each.kind is each.KEYWORD_ONLY:
                    await self.call(name, function, *WRONG[:1] * needed, **{each.name: value})

    async def methods(self, thing: Any) -> None:
        for name in dir(type(thing)):
            if not name.startswith("_") and name not in ENDINGS:
                try:
                    value = getattr(thing, name)
                except ALLOWED:
                    continue
                if callable(value):
                    await self.try_all(f"{type(thing).__name__}.{name}", value)


async def try_everything() -> None:
    attempts = Attempts()
    for module in MODULES:
        for name in sorted(getattr(module, "__all__", None) or dir(module)):
            value = getattr(module, name)
            if name.startswith("_") or not callable(value) or not value.__module__.startswith("aiofabric"):
                continue
            if not (isinstance(value, type) and issubclass(value, BaseException)):
                await attempts.try_all(f"{module.__name__}.{name}", value)
    async with connected_pair("tcp", {}) as (endpoint, _):
        domain = endpoint.domain
        for thing in (
            endpoint,
            endpoint.settings,
            domain,
            domain.fabric,
            endpoint.info,
            endpoint.local_address,
            Hints(),
        ):
            await attempts.methods(thing)
        with Counter(domain) as counter:
            await attempts.methods(counter)
        with domain.register(bytearray(64), access=Access.REMOTE_READ) as region:
            await attempts.methods(region)
            await attempts.methods(region.remote)
        endpoint.abort()
    async with aiofabric.listen("127.0.0.1", provider="tcp") as listener:
        await attempts.methods(listener)
    for kind, provider in ((EndpointType.RDM, "tcp;ofi_rxm"), (EndpointType.DGRAM, "udp")):
        async with aiofabric.open_endpoint(kind, "127.0.0.1", provider=provider) as connectionless:
            await attempts.methods(connectionless)
    async with aiofabric.rpc.Server({}) as server, aiofabric.rpc.Channel("127.0.0.1:1") as channel:
        await attempts.methods(server)
        await attempts.methods(channel)
    for what, detail in attempts.wrong.items():
        print(what, detail)
    print(attempts.calls > 5000)


def test_wrong_arguments_get_an_error_that_says_so() -> None:
    program = "import anyio; from tests.test_wrong_arguments import try_everything; anyio.run(try_everything)"
    ended = run_in_child(program, timeout=100, PYTHONPATH=":".join(filter(None, sys.path)))
    *wrong, enough = ended.out.splitlines() or [""]
    wrong = [line for line in wrong if not line.startswith((" ", "aiofabric: libfabric"))]
    assert (ended.status, wrong, enough) == (0, [], "True"), ended.err[-2000:]
    assert "Exception ignored" not in ended.err
