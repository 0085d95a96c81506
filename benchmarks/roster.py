"""The programs that are compared: one line for each row of the table."""

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from . import floor
from .measures import CALLS, FEW, MANY, ONE, SWEEP

PACKAGE = __package__


@dataclass(frozen=True)
class Row:
    """A contender: how its two processes start, what is asked of them, what they need."""

    name: str
    command: tuple[str, ...]
    measures: tuple[str, ...]
    absent: Callable[[], str | None]
    """Why this contender cannot run here, if it cannot."""
    pictured: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def sweep(self) -> tuple[str, ...]:
        return SWEEP if self.pictured else ()


def python(
    name: str,
    module: str,
    loop: str,
    measures: tuple[str, ...],
    *,
    needs: str = "anyio",
    pictured: bool = False,
    environment: Mapping[str, str] | None = None,
    **options: str,
) -> Row:
    """A contender of ``contenders/``; ``options`` go to its two functions."""
    wanted = {needs, loop} - {"asyncio"}

    def absent() -> str | None:
        missing = sorted(package for package in wanted if importlib.util.find_spec(package) is None)
        return f"{' and '.join(missing)} not installed" if missing else None

    command = (sys.executable, "-m", f"{PACKAGE}.worker", module, loop, json.dumps(options))
    return Row(name, command, measures, absent, pictured, environment or {})


ours = partial(python, needs="aiofabric")
grpc_ours = partial(python, needs="grpc", library="aiofabric")


def c(name: str, provider: str, wait: str, operation: str, *measures: str, pictured: bool = False) -> Row:
    """A mode of floor/floor.c."""

    def absent() -> str | None:
        try:
            floor.build()
        except floor.BuildError as error:
            return str(error)
        return None

    return Row(name, (str(floor.PROGRAM), provider, wait, operation), measures, absent, pictured)


def pingpong(name: str, provider: str, endpoint: str) -> Row:
    """libfabric's own fi_pingpong."""
    command = (sys.executable, "-m", f"{PACKAGE}.contenders.pingpong", provider, endpoint)
    return Row(name, command, ("ping",), lambda: None if shutil.which("fi_pingpong") else "not installed")


# Polling is the mode in which ucxx answers fastest (and burns a core while idle); its default, a thread,
# took eight times as long.
UCX_TCP = {"UCXPY_PROGRESS_MODE": "polling", "UCX_TLS": "tcp"}
UCX_SHM = {"UCXPY_PROGRESS_MODE": "polling", "UCX_TLS": "tcp,sm"}  # tcp only to find each other
BULK = ("bulk64k", "bulk1m")
FANS = ("fan100", "fan1000")

ROWS = (
    c("C, spinning", "tcp", "spin", "send", "ping", "flight", "rate", *FANS, *BULK, pictured=True),
    c("C, on the fd", "tcp", "fd", "send", "ping", "core", "flight", "rate", *FANS, *BULK, pictured=True),
    c("C, RMA write", "tcp", "spin", "write", *BULK),
    c("C, RMA read", "tcp", "spin", "read", *BULK),
    c("C over shm", "shm", "spin", "send", "ping", "flight", "rate", *BULK),
    pingpong("fi_pingpong, tcp", "tcp", "msg"),
    pingpong("fi_pingpong, shm", "shm", "rdm"),
    ours("aiofabric on asyncio", "messages", "asyncio", MANY, waiting="adaptive"),
    ours("aiofabric on uvloop", "messages", "uvloop", MANY, pictured=True, waiting="adaptive"),
    ours("aiofabric on trio", "messages", "trio", FEW, waiting="adaptive"),
    ours("aiofabric on asyncio, fd", "messages", "asyncio", ONE, waiting="fd"),
    ours("aiofabric on uvloop, fd", "messages", "uvloop", ONE, pictured=True, waiting="fd"),
    ours("aiofabric RMA write", "rma", "uvloop", BULK, operation="write"),
    ours("aiofabric RMA read", "rma", "uvloop", BULK, operation="read"),
    ours("aiofabric tagged", "tagged", "uvloop", ONE, provider="tcp;ofi_rxm"),
    ours("aiofabric over shm", "tagged", "uvloop", ONE, provider="shm"),
    ours("FabricStream on asyncio", "fabric_stream", "asyncio", ONE),
    ours("FabricStream on uvloop", "fabric_stream", "uvloop", FEW, pictured=True),
    ours("FabricStream on trio", "fabric_stream", "trio", ONE),
    ours("MessageStream, packed", "message_stream", "uvloop", ONE),
    ours("aiofabric transport", "protocol", "uvloop", FEW, over="fabric"),
    ours("aiofabric.aio streams", "streams", "uvloop", ONE, over="fabric"),
    python("blocking sockets", "blocking", "asyncio", ONE),
    python("asyncio streams", "streams", "asyncio", MANY, pictured=True),
    python("uvloop streams", "streams", "uvloop", MANY, pictured=True),
    python("asyncio Protocol", "protocol", "asyncio", MANY),
    python("uvloop Protocol", "protocol", "uvloop", MANY, pictured=True),
    python("anyio on asyncio", "anyio_sockets", "asyncio", FEW),
    python("anyio on uvloop", "anyio_sockets", "uvloop", FEW, pictured=True),
    python("trio", "trio_sockets", "trio", FEW),
    python("pyzmq on asyncio", "zmq_sockets", "asyncio", FEW, needs="zmq", pictured=True),
    python("grpc.aio", "grpc_calls", "asyncio", (*FEW, "items", "up", "down", "beside"), needs="grpc", pictured=True),
    python("grpc.aio on uvloop", "grpc_calls", "uvloop", CALLS, needs="grpc", messages="protobuf"),
    grpc_ours("RPC, grpc interface", "grpc_calls", "uvloop", CALLS, messages="protobuf"),
    grpc_ours("RPC, grpc, asyncio", "grpc_calls", "asyncio", CALLS, messages="bytes"),
    python("ucxx over tcp", "ucxx_endpoints", "uvloop", ONE, needs="ucxx", environment=UCX_TCP, pictured=True),
    python("ucxx over shm", "ucxx_endpoints", "uvloop", ONE, needs="ucxx", environment=UCX_SHM),
)
