"""The native core: what every message passes through, in C, beside the modules of Python that say what it is for.

===== ================ ======================================================= =====================================
layer file             what                                                    belongs to
===== ================ ======================================================= =====================================
0     references       what every file needs of Python
0     names            strings that Python is asked by; making types
0     clock            the clock of all windows
0     upcalls          what a lower layer tells a higher one
0     freelist         objects that are used again                             `Call`, `ReceiveWaiter`
0     fifo             `Fifo`: what waits to be taken                          ``transport/messages/inbox.py``
0     awaitable        what all that is awaited has in common                  ``cq/submission.py``
0     call             `Call`: what `send` and `recv` return                   ``transport/messages/send.py``
0     thread_check     `ThreadCheck`: which thread may use an endpoint         ``transport/handle.py``
1     slots            `Slot`, `SlotsCore`: what operations lend               ``cq/slots.py``
1     registry         `Registry`: which object a completion is for            ``cq/source.py``
1     operation        `Operation`: what is posted                             ``cq/operation.py``
2     completion_queue `NativeQueue`: reads a completion queue                 ``cq/queue.py``
2     polling          `Window`, `Polling`: how long to poll before sleeping   ``cq/polling.py``
2     coalescing       messages of one batch leave in one segment              ``transport/connected/endpoint.py``
2     wakeups          `Waker`: lets asyncio's tasks go on                     ``cq/drivers.py``
2     waiter           `Waiter`: what each of them waits with                  ``cq/drivers.py``
3     source           `SourceCore`: what each wait passes through             ``cq/source.py``
3     completions      reads a source's queue and dispatches completions       ``cq/completions.py``
3     arming           the bounded poll, and sleeping on the descriptor        ``cq/source.py``
3     progress         what the event loop calls                               ``cq/progress.py``
4     submission       `SubmissionCore`: one direction of an endpoint          ``cq/submission.py``
4     transfer         `Transfer`: an operation of a submission queue          ``cq/submission.py``
4     posting          makes operations and posts them                         ``cq/submission.py``
4     injection        small messages, which the provider copies               ``transport/route.py``
4     pending_result   what is awaited of an operation                         ``cq/submission.py``
5     message          `Message`: bytes, and what came along                   ``transport/messages/receive.py``
5     inbox            `InboxCore`: messages that arrived                      ``transport/messages/inbox.py``
5     receive_pool     `PoolCore`: receives that stay posted                   ``transport/messages/pool.py``
5     pool_buffer      `PoolBuffer`: one of them                               ``transport/messages/pool.py``
5     unpack           a received buffer as a `Message`                        ``transport/messages/inbox.py``
5     receive_waiter   what is awaited for a message that is still to come     ``transport/messages/inbox.py``
5     next_message     the next message: taken, polled for or awaited          ``transport/messages/inbox.py``
5     send             sends that are awaited                                  ``transport/route.py``
5     receive          receives into the caller's memory                       ``transport/messages/receive.py``
5     length_prefix    messages behind their lengths, in a stream of bytes     ``streams/message.py``
6     fast_path        `send` and `recv` themselves; `ResourceCore`            ``resource.py``
6     module           makes all types
===== ================ ======================================================= =====================================

A file includes its own layer and lower ones, without a circle (``tests/test_native_core_layers.py``). The page for
maintainers is docs/native-core.md. A class in Python inherits from each ``Core`` and does what happens now and then:
opening, closing, errors, growing, queueing. C does what happens for each message, and nothing else: of a 64 B round
trip that takes 11 us in C, the interpreter had 10, and has 5 now. A call that asks for anything special returns None
from C, and Python does it.

The core is C for CPython's stable interface, and knows libfabric by its headers only: their inline functions call
through the objects, so this module loads no library.
"""

import sys

if "t" in sys.abiflags:
    raise ImportError("aiofabric needs the GIL: this Python is a free-threaded build; use an ordinary one")

from ._core import (
    ASSERTIONS,
    COALESCE_NS,
    EMPTY_WAKEUPS,
    STREAK,
    FastPath,
    Fifo,
    InboxCore,
    Message,
    NativeQueue,
    Operation,
    Polling,
    PoolBuffer,
    PoolCore,
    Registry,
    ResourceCore,
    Slot,
    SlotsCore,
    SourceCore,
    SubmissionCore,
    ThreadCheck,
    Transfer,
    Waiter,
    Waker,
    Window,
    check_interpreter,
    cut_messages,
    fast_recv,
    fast_send,
    join_messages,
    learn_states,
)

check_interpreter()

__all__ = [
    "ASSERTIONS",
    "STREAK",
    "EMPTY_WAKEUPS",
    "COALESCE_NS",
    "Fifo",
    "ThreadCheck",
    "InboxCore",
    "SubmissionCore",
    "Polling",
    "Message",
    "NativeQueue",
    "Operation",
    "PoolBuffer",
    "PoolCore",
    "FastPath",
    "Registry",
    "ResourceCore",
    "Slot",
    "SlotsCore",
    "SourceCore",
    "Transfer",
    "Waiter",
    "Waker",
    "Window",
    "cut_messages",
    "join_messages",
    "learn_states",
    "fast_recv",
    "fast_send",
]
