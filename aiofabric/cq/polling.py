"""How long to look at a queue before going to sleep on its descriptor, and how that is learned.

Looking costs CPU and saves a wake-up: a 64 B round trip over loopback takes some 11 us when both sides look
and some 68 us when both sleep (C, libfabric 1.17 tcp, 2 cores). It pays only while answers come quickly and
while the peer has a core of its own; so a queue has a `Window` that grows while completions land inside it and
shrinks to nothing while they do not, as a hypervisor's halt polling does. The first share of the window is spent
inside the awaiting call (no loop iteration at all when the answer comes in time), the rest in turns, one share in
each, so that other callbacks run in between. Idle costs nothing: after one window in vain the queue is armed.

Whatever the strategy, a task that is about to wait yields its core once, while that is answered
(_core/completion_queue.c): a peer on the same core replies meanwhile, and neither sleeps.
"""

from __future__ import annotations

from enum import Enum

from .._core import Window

__all__ = ["Waiting", "Window"]


class Waiting(Enum):
    """How a queue is waited for."""

    ADAPTIVE = "adaptive"
    """Look for a learned time, then sleep on the descriptor. The default where the provider has one."""
    FD = "fd"
    """Sleep on the descriptor, without looking for longer than an offer of the core takes."""
    POLL = "poll"
    """Look, with a growing delay; then sleep on the descriptor where there is one. The providers without have this."""
