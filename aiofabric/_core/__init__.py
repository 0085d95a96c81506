"""The native core: the C code that every message passes through. Python modules beside it document its purpose.

===== ================= ======================================================= =====================================
layer file              purpose                                                 belongs to
===== ================= ======================================================= =====================================
0     references        headers and helpers of Python for every file
0     names             interned names of attributes; making types
0     clock             the clock of all windows
0     upcalls           calls from a lower layer to a higher one
0     freelist          objects that are reused                                 `Call`, `ReceiveWaiter`
0     plain_buffer      refuses buffers that hold pointers                      ``memory.py``
0     fifo              `Fifo`: a queue of objects                              ``transport/messages/inbox.py``
0     exceptions        steps that must all run, also after an exception
0     awaitable         the coroutine protocol of awaitable objects             ``cq/submission.py``
0     coroutine         the common part of `Call` and `Handling`
0     call              `Call`: the coroutine of `send` and `recv`              ``transport/messages/send.py``
0     fast_method       methods whose usual call is C; `ResourceCore`           ``resource.py``
0     thread_check      `ThreadCheck`: which thread may use an endpoint         ``transport/handle.py``
1     slots             `Slot`, `SlotsCore`: the fi_contexts of operations      ``cq/slots.py``
1     registry          `Registry`: which object a completion is for            ``cq/source/source.py``
1     operation         `Operation`: a posted call                              ``cq/operation.py``
2     completion_queue  `NativeQueue`: reads and polls a completion queue       ``cq/queue.py``
2     polling           `Window`, `Polling`: how long to poll before sleeping   ``cq/polling.py``
2     coalescing        messages of one batch leave in one segment              ``transport/connected/endpoint.py``
2     wakeups           `Waker`: resumes asyncio's tasks                        ``cq/loops/drivers.py``
2     waiter            `Waiter`: the object that each of them awaits           ``cq/loops/drivers.py``
3     iteration         when an awaiting call may poll, or others come first    ``cq/source/source.py``
3     interest          the uses of a source, counted                           ``cq/source/source.py``
3     source            `SourceCore`: the part of a source in each wait         ``cq/source/source.py``
3     completions       reads a source's queue and dispatches completions       ``cq/source/unmatched.py``
3     arming            the bounded poll, and how the next pass comes           ``cq/source/source.py``
3     progress          callbacks of the event loop                             ``cq/source/delays.py``
4     submission        `SubmissionCore`: one direction of an endpoint          ``cq/submission.py``
4     transfer          `Transfer`: an operation of a submission queue          ``cq/submission.py``
4     posting           makes operations and posts them                         ``cq/submission.py``
4     injection         small messages, which the provider copies               ``transport/route.py``
4     pending_result    the awaitable of an operation                           ``cq/submission.py``
5     message           `Message`: bytes, and their metadata                    ``transport/messages/receive.py``
5     inbox             `InboxCore`: messages that arrived                      ``transport/messages/inbox.py``
5     receive_pool      `PoolCore`: receives that stay posted                   ``transport/messages/pool.py``
5     pool_buffer       `PoolBuffer`: one of these receives                     ``transport/messages/pool.py``
5     unpack            a received buffer as a `Message`                        ``transport/messages/inbox.py``
5     loan              `LoanCore`: a message that stays where it is, in use    ``transport/messages/loans.py``
5     receive_waiter    the awaitable of a message that is still to come        ``transport/messages/inbox.py``
5     next_message      the next message: taken, polled for or awaited          ``transport/messages/inbox.py``
5     send              sends that are awaited                                  ``transport/route.py``
5     receive           receives into the caller's memory                       ``transport/messages/receive.py``
5     assembly          one message from pieces                                 ``rpc/protocol/calls.py``
6     fast_path         `send` and `recv` themselves                            ``transport/endpoint.py``
6     channel           `ChannelCore`: the state of a byte channel              ``channel/endpoint.py``
6     channel_wire      frames of the byte channel as bytes                     ``channel/frames.py``
6     channel_frames    reads the frames of a byte channel                      ``channel/endpoint.py``
6     arrivals          data that arrived and was not taken                     ``channel/endpoint.py``
6     reading           gives that data to its readers                          ``channel/endpoint.py``
6     sending           spends and grants credits; gathers small sends          ``channel/endpoint.py``
6     outbox            posted buffers that wait for credits                    ``channel/endpoint.py``
6     message_reader    `MessageReader`: messages in the data of a channel      ``streams/message.py``
6     data_waiter       the awaitable of data that is still to come             ``streams/byte.py``
6     stream            the usual calls of a stream                             ``streams/base.py``
7     frame_output      `FrameOutput`: the way of RPC frames to the provider    ``rpc/runtime/transport.py``
7     rpc_call          `CallCore`, `ClientCallCore`: the state of an RPC call  ``rpc/protocol/calls.py``
7     rpc_wire          RPC frames as bytes                                     ``rpc/protocol/frames.py``
7     rpc_connection    `ConnectionCore`: an RPC connection and its output      ``rpc/protocol/connection.py``
7     rpc_client_frames frames of a client's usual call                         ``rpc/protocol/client.py``
7     rpc_server_frames frames of a server's usual call                         ``rpc/protocol/server.py``
7     rpc_frames        reads the frames of a fabric message                    ``rpc/protocol/connection.py``
7     rpc_message       messages of RPC as bytes                                ``rpc/grpc/messages.py``
7     rpc_response      the wait for the one response of a call                 ``rpc/grpc/client/calls.py``
7     rpc_stub          `StubCore`: begins the usual calls of a stub            ``rpc/grpc/client/multicallable.py``
7     task_set          `TaskSet`: the tasks of handlers                        ``rpc/runtime/tasks.py``
7     rpc_handling      `Handling`: the coroutine of a handler                  ``rpc/grpc/server/handling.py``
7     rpc_handler       `ServerRpcCore`: starts the handler of a call           ``rpc/grpc/server/rpc.py``
8     module            makes all types
===== ================= ======================================================= =====================================

A file includes its own layer and lower ones, without a circle (``tests/test_native_core_layers.py``). The page for
maintainers is docs/native-core.md. A Python class inherits from each ``Core`` and handles the rare steps: opening,
closing, errors, growing, queueing. C handles only the steps of each message: of a 64 B round trip that takes 11 us in
C, the interpreter took 10 us before and takes 5 us now. For a call that needs anything else, C returns None and Python
does the work.

The core is built for CPython's stable interface. It uses libfabric's headers only: their inline functions call through
the objects, so this module loads no library.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

if "t" in sys.abiflags:
    raise ImportError("aiofabric needs the GIL: this Python is a free-threaded build; use an ordinary one")

from ._core import (
    ASSERTIONS,
    COALESCE_NS,
    COPY_LIMIT,
    EMPTY_WAKEUPS,
    READ_SIZE,
    STREAK,
    Assembly,
    BudgetCore,
    CallCore,
    CallObject,
    ChannelCore,
    ClientCallCore,
    ConnectionCore,
    DirectPath,
    FastPath,
    Fifo,
    FrameOutput,
    GuardCore,
    HandlerPlan,
    InboxCore,
    LoanCore,
    Message,
    MessageReader,
    NativeQueue,
    Operation,
    Polling,
    PoolBuffer,
    PoolCore,
    Registry,
    ResourceCore,
    ResponseCore,
    ServerRpcCore,
    Slot,
    SlotsCore,
    SourceCore,
    StreamPath,
    StubCore,
    SubmissionCore,
    TaskSet,
    ThreadCheck,
    Transfer,
    Waiter,
    Waker,
    Window,
    check_interpreter,
    fast_message_receive,
    fast_recv,
    fast_send,
    fast_stream_receive,
    fast_stream_receive_into,
    fast_stream_send,
    keep_for_ever,
    learn_first_frame,
    learn_states,
    refuse_pointers,
    serialized,
)

check_interpreter()


def _before_the_first_step() -> Generator[None]:
    """Never runs: its frame is ``cr_frame`` of a coroutine of C that has not begun (`inspect.getcoroutinestate`)."""
    yield


_not_begun: Any = _before_the_first_step()
learn_first_frame(_not_begun.gi_frame)

__all__ = [
    "ASSERTIONS",
    "STREAK",
    "EMPTY_WAKEUPS",
    "COALESCE_NS",
    "COPY_LIMIT",
    "READ_SIZE",
    "Assembly",
    "BudgetCore",
    "CallCore",
    "CallObject",
    "ChannelCore",
    "ClientCallCore",
    "ConnectionCore",
    "DirectPath",
    "Fifo",
    "FrameOutput",
    "GuardCore",
    "HandlerPlan",
    "ThreadCheck",
    "InboxCore",
    "LoanCore",
    "SubmissionCore",
    "TaskSet",
    "Polling",
    "Message",
    "MessageReader",
    "NativeQueue",
    "Operation",
    "PoolBuffer",
    "PoolCore",
    "FastPath",
    "Registry",
    "ResourceCore",
    "ResponseCore",
    "ServerRpcCore",
    "Slot",
    "SlotsCore",
    "SourceCore",
    "StreamPath",
    "StubCore",
    "Transfer",
    "Waiter",
    "Waker",
    "Window",
    "keep_for_ever",
    "refuse_pointers",
    "learn_states",
    "serialized",
    "fast_recv",
    "fast_send",
    "fast_message_receive",
    "fast_stream_receive",
    "fast_stream_receive_into",
    "fast_stream_send",
]
