"""A child of test_core_arguments: calls everything of the native core with arbitrary objects, and ends.

``python -m tests.fuzz.core_calls SEED CALLS LOG``: each call is written to LOG before it is made, so that a
crash can be assigned to a call.

Addresses are the exception: functions with the address of a native object trust their caller (`NativeQueue`,
`_send_here`, `_receive_here`, `_prepare`, `_enter`), so each number there is the address of existing memory. Objects
are initialised, as the classes in Python do it.
"""

# Privates: every method of the native core is called, also those for its own Python classes.

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import warnings
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from aiofabric import _core
from aiofabric._ffi import ffi
from aiofabric.cq.operation import State
from aiofabric.cq.polling import Waiting
from aiofabric.cq.source.source import Source
from aiofabric.rpc.protocol.frames import frame
from aiofabric.testing import ScriptedQueue
from tests.cq.manual import Endpoint, ManualDriver
from tests.fixtures.native_endpoint import NativeEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMES = b"".join(frame(kind, 1, bytes(8), flags=flags) for kind in (3, 7, 5) for flags in (2, 3))
CHANNEL_FRAMES = (b"\0\0\0\0data", b"\2\0\0\0")
ROOM = 64  # bytes of a pool's receive

MEMORY = ffi.new("char[]", 4096)
ADDRESS = int(ffi.cast("uintptr_t", MEMORY))


class Evil:
    """Fails in every special method."""

    def _fail(self, *_: object) -> Any:
        raise LookupError("evil")

    __index__ = __len__ = __iter__ = __eq__ = __hash__ = __bool__ = __call__ = __getitem__ = __float__ = _fail

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


class Vast:
    """Claims to be very long."""

    def __len__(self) -> int:
        return 1 << 16

    def __index__(self) -> int:
        return 1 << 63

    def __getitem__(self, index: object) -> object:
        if isinstance(index, int) and index >= 1 << 16:  # so that an iteration ends
            raise IndexError(index)
        return self


class Helpful:
    """Has every name that C may ask for, as a call without a result."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Slots(_core.SlotsCore):
    count = 0

    def _grow(self) -> None:
        Slots.count += 1
        self._free.append(_core.Slot(ffi.NULL, 64 * Slots.count))


TOLD = {
    "end_came",
    "failed",
    "overlong",
    "_post_failed",
    "exhausted",
    "feed",
    "message_refused",
    "_requeue",
    "_all_lent",
}


class Pool(_core.PoolCore):
    """A pool whose methods in Python do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name in TOLD:
            return lambda *_: None
        raise AttributeError(name)

    @property
    def view(self) -> memoryview:
        return memoryview(bytes(1024))


SPECIAL = [f"__{name}__" for name in ("init", "call", "iter", "len", "getitem", "setitem", "delitem", "await", "next")]
RANDOM = random.Random()
NATIVE = NativeEndpoint(lambda buf, length, context: RANDOM.choice([0, 0, 0, -11, -5]))


def ready_connection() -> _core.ConnectionCore:
    """A connection that takes the fast paths of both roles."""
    connection = _core.ConnectionCore()
    connection.calls, connection._handlers, connection.output = {}, {}, []
    connection.method_indexes, connection.method_names, connection.new_call = {"text": 0}, ["text"], _core.CallCore
    connection.budget, connection.status_ok = _core.BudgetCore(), object()
    connection.small = connection.window = connection.receive_window = connection.most_in_status = 1000
    connection.max_message = connection.max_calls = connection.peer_max_calls = 1000
    connection.peer_known = True
    connection.send_now = lambda _: True
    return connection


class ClientCall(_core.ClientCallCore):
    """A client's call; every method in Python does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Response(_core.ResponseCore):
    """The call object of one; a generator has every wait that C leaves to Python."""

    def _wait(self) -> Any:
        yield
        return b"waited"

    _outcome_later = _wait


class Channel(_core.ChannelCore):
    """A channel whose methods in Python do nothing."""

    __getattr__ = ClientCall.__getattr__


class Stream(_core.ResourceCore):
    """A stream whose calls run in C where they can; a generator has all others."""

    def _send(self, *_: object) -> Any:
        yield

    _receive = _receive_into = _send

    send: Any = _core.fast_stream_send(lambda *_: None)
    receive: Any = _core.fast_stream_receive(lambda *_: None)
    receive_message: Any = _core.fast_message_receive(lambda *_: None)
    receive_into: Any = _core.fast_stream_receive_into(lambda *_: None)


def ready_stream(channel: Channel) -> tuple[Stream, Any]:
    stream, guards = Stream(), (_core.GuardCore(), _core.GuardCore())
    path = _core.StreamPath(channel, *guards)
    if RANDOM.random() < 0.5:
        path = _core.StreamPath(channel, *guards, _core.MessageReader(channel, RANDOM.choice([3, 1000])), 100)
    stream._calls_go_by(path)
    return stream, path


class ServerCall(_core.ServerRpcCore):
    """A server's call; every method in Python does nothing."""

    metadata = ()
    __getattr__ = ClientCall.__getattr__


async def handler(request: bytes, context: object) -> bytes:
    if RANDOM.random() < 0.5:
        await asyncio.sleep(0)
    return request


async def finish() -> None:
    pass


def ready_server_call(plan: _core.HandlerPlan, connection: _core.ConnectionCore) -> ServerCall:
    """A call whose method has a plan."""
    host = Helpful()
    host.plans = {"text": plan}  # type: ignore[attr-defined]
    call = ServerCall(host)
    call.method, call.connection, call.first = "text", connection, b"bytes"
    return call


def ready_stub(connection: _core.ConnectionCore, loop: Any) -> _core.StubCore:
    """A stub that takes the fast path."""
    stub = _core.StubCore(Helpful(), "text", RANDOM.choice([None, lambda data: data]), None, ClientCall, Response)
    stub._core, stub._direct = Helpful(), _core.DirectPath(set())
    stub._direct.connection, stub._direct.loop = connection, loop
    return stub


class Fuzz:
    def __init__(self, seed: int, loop: asyncio.AbstractEventLoop, log: int) -> None:
        RANDOM.seed(seed)
        self.log = log
        self.loop = loop
        self.things: list[Any] = []  # of the core's types, to be passed to others
        self.renew()

    def renew(self) -> None:
        """Make new objects: the called ones may be in any state."""
        waker = _core.Waker(self.loop)
        driver: Any = ManualDriver()
        driver.waker = RANDOM.choice([None, waker])
        self.endpoint = endpoint = Endpoint(source=Source(driver, ScriptedQueue(), waiting=Waiting.FD))
        source = endpoint.source
        handle: Any = Helpful()
        handle.native_open = True
        pool = Pool(handle, source, ROOM, 4)
        pool._prepare(NATIVE.address, 0, ROOM, 4, (0, 0), RANDOM.random() < 0.5)
        slots = Slots()
        for index in range(4):
            buffer = _core.PoolBuffer(pool, index, index * ROOM, slots.acquire())
            pool._enter(buffer, ADDRESS + index * ROOM, 64 * index + 64)
        check = _core.ThreadCheck()
        operation = _core.Operation("fi_test", RANDOM.choice([None, endpoint.submissions]), slots.acquire(), None, 0)
        transfer = endpoint.submissions.submit("fi_test", endpoint.post, ("label",), None, 0)
        connection = ready_connection()
        call = _core.CallCore()
        if RANDOM.random() < 0.5:
            connection.begin(call, "text", b"bytes", True, None, 0.0)
        output = _core.FrameOutput(source, endpoint.submissions, lambda _: None, lambda: None)
        made = ClientCall(self.loop)
        if RANDOM.random() < 0.7:
            connection.send_now = output
            made.connection, made.attached = connection, True
        stub = ready_stub(connection, self.loop)
        tasks = _core.TaskSet(self.loop, lambda *_, **__: Helpful(), RANDOM.choice([None, waker]), {}, [])
        plan = _core.HandlerPlan(
            handler,
            RANDOM.choice([None, lambda data: data]),
            None,
            lambda *parts: parts,
            lambda _: finish(),
            lambda *_: RANDOM.random() < 0.5,
            lambda _: None,
            tasks,
            copy_context(),
        )
        served = ready_server_call(plan, connection)
        tx: Any = RANDOM.choice([endpoint.submissions, Helpful()])
        channel = Channel(handle, source, tx, 10_000, 1000, 10_000)
        for each in (b"\0\0\0\0data", b"\1\1\0\0", b"\0\0\0\0more"):
            self.call("Channel", channel, each)
        stream, path = ready_stream(channel)
        self.things = [
            source, endpoint.submissions, pool, *pool._buffers, slots, slots.acquire(), operation, transfer, check,
            waker, waker.create_waiter(),
            _core.Fifo(), _core.Registry(), _core.Window(1000), _core.Polling(1000, never=False, polls=False),
            _core.FastPath(check), _core.ResourceCore(), _core.Message(b"text", None, 1, 2),
            _core.InboxCore(handle, source, ROOM, 4), connection, call, output, _core.BudgetCore(),
            made, Response(made, None), stub, stub(b"bytes"), stub._direct, tasks, plan, served,
            plan(ready_server_call(plan, connection)), handler(b"bytes", None),
            channel, stream, path, stream.receive(), stream.receive_message(), stream.receive_into(bytearray(10)),
            stream.send(b"bytes"), _core.MessageReader(channel, 100),
        ]  # fmt: skip

    def value(self) -> Any:
        """Anything."""
        kind = RANDOM.randrange(12)
        if kind < 3:
            return RANDOM.choice(
                [0, 1, -1, 2, 63, 64, 65, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 1 << 64, 10**30]
            )
        if kind < 5:
            return RANDOM.choice(
                [None, True, False, 1.5, float("nan"), "", "text", "\udc80", b"", b"bytes", bytes(300)]
            )
        if kind < 7:
            return RANDOM.choice(
                [
                    bytearray(b"array"),
                    FRAMES,
                    *CHANNEL_FRAMES,
                    memoryview(bytearray(100)),
                    memoryview(bytes(100))[::2],
                    memoryview(b""),
                ]
            )
        if kind < 8:
            return [self.value() for _ in range(RANDOM.randrange(4))]
        if kind < 9:
            return tuple(self.value() for _ in range(RANDOM.randrange(8)))
        if kind < 10:
            return RANDOM.choice(
                [Evil(), Vast(), Helpful(), object(), int, KeyError, KeyError("it"), GeneratorExit, {}, {1: 2},
                 deque([1]), lambda *_: None, State.NEW, State.POSTED, (lambda: 0, ()), (1, 2, 3, 4, 5, 6),
                 (64, 0, 5, 0, 0, 0, 9)]
            )  # fmt: skip
        return RANDOM.choice(self.things)

    def call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        words = ", ".join(map(self._word, args))
        os.pwrite(self.log, f"{what}({words})".encode(errors="replace").ljust(600)[:600], 0)
        try:
            return function(*args)
        except BaseException:  # what is thrown into a coroutine comes out of it
            return None

    @staticmethod
    def _word(each: object) -> str:
        return repr(each)[:60] if type(each) in (int, float, bool, str, bytes) else type(each).__name__

    def arguments(self) -> list[Any]:
        return [self.value() for _ in range(RANDOM.choice([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 4, 6]))]

    def step(self) -> None:
        thing = RANDOM.choice(self.things)
        names = [name for name in dir(type(thing)) if not name.startswith("__")]
        names += SPECIAL
        name = RANDOM.choice(names)
        what = f"{type(thing).__name__}.{name}"
        if name in TRUSTED or (name == "__init__" and isinstance(thing, TRUSTED_INITS)):
            return
        attribute = getattr(type(thing), name, None)
        if attribute is None:
            return
        if callable(attribute):
            awaited = self.call(what, lambda *args: getattr(thing, name)(*args), *self.arguments())
            if hasattr(awaited, "send") and hasattr(awaited, "throw"):
                self.drive(what, awaited)
        elif RANDOM.random() < 0.5:
            self.call(what, lambda: getattr(thing, name))
        elif RANDOM.random() < 0.8:
            self.call(f"{what} = ", lambda value: setattr(thing, name, value), self.value())
        else:
            self.call(f"del {what}", lambda: delattr(thing, name))

    def drive(self, what: str, awaited: Any) -> None:
        """Step a coroutine of the core, as a careless loop would."""
        for _ in range(RANDOM.randrange(3)):
            how = RANDOM.choice(["send", "send", "throw", "close", "__next__", "__await__"])
            method = getattr(awaited, how, None)
            if method is not None:
                args = {"send": [RANDOM.choice([None, 1])], "throw": self.arguments()}.get(how, [])
                self.call(f"{what}().{how}", method, *args)

    def functions(self) -> None:
        """Functions of the module, and constructors."""
        of_all: list[Any] = [
            _core.MessageReader, _core.fast_message_receive, _core.fast_send, _core.fast_recv, _core.fast_stream_send,
            _core.fast_stream_receive,
            _core.fast_stream_receive_into, _core.ChannelCore, _core.GuardCore, _core.StreamPath, _core.Message,
            _core.Slot,
            _core.Operation, _core.Fifo, _core.Registry, _core.Window, _core.Polling, _core.Waker, _core.FastPath,
            _core.ThreadCheck, _core.ResourceCore, _core.SlotsCore, _core.PoolBuffer, _core.InboxCore, _core.SourceCore,
            _core.SubmissionCore, _core.Transfer, _core.CallCore, _core.ConnectionCore, _core.FrameOutput,
            _core.BudgetCore, _core.ClientCallCore, _core.CallObject, _core.ResponseCore, _core.StubCore,
            _core.DirectPath, _core.TaskSet, _core.HandlerPlan, _core.ServerRpcCore, _core.serialized,
        ]  # fmt: skip
        function = RANDOM.choice(of_all)
        made = self.call(function.__name__, function, *self.arguments())
        if made is not None and not isinstance(made, (tuple, bytes)) and len(self.things) < 60:
            self.things.append(made)


TRUSTED = {"_send_here", "_receive_here", "_prepare", "_enter", "keep_socket"}
TRUSTED_INITS = (_core.PoolCore,)


def main(seed: int, calls: int, path: str) -> None:
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(loop)  # a stub uses it
    fuzz = Fuzz(seed, loop, os.open(path, os.O_RDWR | os.O_CREAT))
    for number in range(calls):
        if number % 40 == 0:
            fuzz.renew()
        if number % 1000 == 0:
            gc.collect()
        fuzz.step() if RANDOM.random() < 0.85 else fuzz.functions()
    fuzz.things.clear()
    asyncio._set_running_loop(None)
    gc.collect()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
