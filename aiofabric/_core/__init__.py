"""The hot path: what every message passes through, in C, beside the modules that say what it is for.

========== ======================================================= ===============================================
file       what                                                    belongs to
========== ======================================================= ===============================================
waiting    `Window`, `Looking`: how long to look before sleeping   ``cq/waiting.py``
queue      `NativeQueue`: reads a completion queue                 ``cq/queue.py``
settling   reads a source's queue and tells whose completion it is ``cq/settling.py``
spares     objects that are used again                             `Call`, `Arrival`
steps      what all that is awaited has in common                  ``cq/lane.py``, ``transport/inbox.py``
quick      `send` and `recv` themselves; `ResourceCore`            ``transport/handle.py``, ``resource.py``
call       `Call`: what `send` and `recv` give back                ``transport/messages.py``
waker      `Waker`: lets asyncio's tasks go on                     ``cq/drivers.py``
waiter     `Waiter`: what each of them waits with                  ``cq/drivers.py``
source     `SourceCore`: look and arm                              ``cq/source.py``
turning    what the event loop calls                               ``cq/turning.py``
registry   `Registry`: who is told of a completion                 ``cq/source.py``
slots      `Slot`, `SlotsCore`: what operations lend               ``cq/slots.py``
operation  `Operation`, `Transfer`: what is posted                 ``cq/operation.py``
lane       `LaneCore`: posts, and sends small messages             ``cq/lane.py``, ``transport/route.py``
outcome    what is awaited of an operation                         ``cq/lane.py``
cork       what a connection sends in a volley leaves together     ``transport/connected.py``
sending    sends that are awaited                                  ``transport/route.py``
receiving  receives into the caller's memory                       ``transport/receives.py``
fifo       `Fifo`: what waits to be taken                          ``transport/inbox.py``
gate       `Gate`: which thread may use an endpoint now            ``transport/handle.py``
message    `Message`: bytes, and what came along                   ``transport/receives.py``
arrival    what is awaited for a message that is still to come     ``transport/inbox.py``
inbox      `InboxCore`: takes a message, hands one out             ``transport/inbox.py``
pool       `PoolCore`, `PoolBuffer`: receives that stay posted     ``transport/pool.py``
lengths    messages behind their lengths, in a stream of bytes     ``streams/message.py``
========== ======================================================= ===============================================

A class in Python inherits from each ``Core`` and has what happens now and then: opening, closing, errors, growing,
parking. What is here is what happens for each message, and nothing else: of a 64 B round trip that takes 11 us in C,
the interpreter had 10, and has 5 now. What is special about a call C leaves to Python, with None for an answer.

It is C for CPython's stable interface, and knows libfabric by its headers only: their inline functions call through
the objects, so this module loads no library.
"""

from ._core import (
    STREAK,
    VAIN,
    VOLLEY_NS,
    Fifo,
    Gate,
    InboxCore,
    LaneCore,
    Looking,
    Message,
    NativeQueue,
    Operation,
    PoolBuffer,
    PoolCore,
    Quick,
    Registry,
    ResourceCore,
    Slot,
    SlotsCore,
    SourceCore,
    Transfer,
    Waiter,
    Waker,
    Window,
    cut_messages,
    join_messages,
    learn_states,
    quick_recv,
    quick_send,
)

__all__ = [
    "STREAK",
    "VAIN",
    "VOLLEY_NS",
    "Fifo",
    "Gate",
    "InboxCore",
    "LaneCore",
    "Looking",
    "Message",
    "NativeQueue",
    "Operation",
    "PoolBuffer",
    "PoolCore",
    "Quick",
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
    "quick_recv",
    "quick_send",
]
