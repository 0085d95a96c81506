"""How long a source polls a queue before it sleeps on the descriptor, and how that time adapts.

Polling costs CPU and saves a wake-up. A 64 B round trip over loopback takes about 11 us if both sides poll, and about
68 us if both sleep (C, libfabric 1.17 tcp, 2 cores). Polling pays only while completions arrive soon and the peer
has a core of its own. So each queue has a `Window`, as the halt polling of a hypervisor has. The window grows while
completions arrive within it, and shrinks to zero while they do not.

The first share of the window is spent inside the awaiting call: a completion that arrives in time costs no loop
iteration. The other shares are spent in progress passes, one in each, so that other callbacks run in between. An idle
queue costs nothing: after one window without a completion it is armed.

With every strategy, a task that is about to wait yields its core once (sched_yield), as long as that is effective
(_core/queue/completion_queue.c). A peer on the same core then replies, and neither side sleeps.
"""

from __future__ import annotations

from enum import Enum

from .._core import Window

__all__ = ["Waiting", "Window"]


class Waiting(Enum):
    """How a source waits for completions."""

    ADAPTIVE = "adaptive"
    """Poll for a learned time, then sleep on the descriptor. The default if the provider has a descriptor."""
    FD = "fd"
    """Sleep on the descriptor. The only polling is the one during a single sched_yield."""
    POLL = "poll"
    """Poll with a growing delay, then sleep on the descriptor if there is one. The default without a descriptor."""
