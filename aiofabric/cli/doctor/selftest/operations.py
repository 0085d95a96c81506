"""The kinds of operations that are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiofabric.cli.doctor.selftest.baseline import COMPARE, follow_comparison, lead_comparison
from aiofabric.cli.doctor.selftest.memory import (
    follow_atomics,
    follow_memory,
    follow_write_data,
    lead_atomics,
    lead_read,
    lead_write,
    lead_write_data,
)
from aiofabric.cli.doctor.selftest.messages import (
    follow_messages,
    follow_remote_data,
    follow_tagged,
    lead_messages,
    lead_remote_data,
    lead_tagged,
)
from aiofabric.cli.doctor.selftest.states import (
    follow_connections,
    follow_idle,
    follow_interrupt,
    lead_connections,
    lead_idle,
    lead_interrupt,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiofabric.cli.doctor.selftest.control import Control
    from aiofabric.cli.doctor.selftest.options import CheckOptions

__all__ = ["OPERATIONS", "Operation"]


@dataclass(frozen=True)
class Operation:
    """One kind of operation. ``lead`` fills in the figures as they come; ``follow`` ends when it is told so."""

    lead: Callable[[Control, CheckOptions, dict[str, Any]], Coroutine[Any, Any, None]]
    follow: Callable[[Control, CheckOptions], Coroutine[Any, Any, None]]


OPERATIONS = {
    "messages": Operation(lead_messages, follow_messages),
    "tagged": Operation(lead_tagged, follow_tagged),
    "remote data": Operation(lead_remote_data, follow_remote_data),
    "read": Operation(lead_read, follow_memory),
    "write": Operation(lead_write, follow_memory),
    "write with data": Operation(lead_write_data, follow_write_data),
    "atomics": Operation(lead_atomics, follow_atomics),
    "connections": Operation(lead_connections, follow_connections),
    "idle": Operation(lead_idle, follow_idle),
    COMPARE: Operation(lead_comparison, follow_comparison),
    "interrupt": Operation(lead_interrupt, follow_interrupt),
}
