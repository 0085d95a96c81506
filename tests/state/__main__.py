"""``python -m tests.state KIND PROVIDER [SECONDS]``: random operations on one pair of endpoints, compared with a model.

KIND is connected, direct or connectionless. Without SECONDS the short profile of the suite: the same few examples each
time. With them new examples until the time is over; the first failure ends it, with the shortest steps that show it.
"""

import sys
import time
from typing import Any

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from tests.state.connected import Connected, Direct
from tests.state.connectionless import Connectionless
from tests.state.machine import Machine

KINDS: dict[str, type[Machine]] = {"connected": Connected, "direct": Direct, "connectionless": Connectionless}
SHORT, LONG = (12, 25), (20, 50)  # examples, and steps in each


def main(kind: str, provider: str, seconds: float = 0) -> None:
    virtual = kind != "connectionless" and provider != "tcp"  # has messages only
    options: dict[str, Any] = {"provider": provider, "rma": not virtual}
    if seconds:
        options["timeout"] = 120.0  # such runs go on beside other work
    machine = type(KINDS[kind].__name__, (KINDS[kind],), options)
    examples, steps = LONG if seconds else SHORT
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=not seconds,
        phases=hypothesis.settings().phases if seconds else [hypothesis.Phase.generate],  # no time for shorter steps
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    until, rounds = time.monotonic() + seconds, 0
    while True:
        run_state_machine_as_test(machine, settings=settings)
        rounds += 1
        if time.monotonic() >= until:
            break
    print(f"{kind} over {provider}: {rounds * examples} examples of up to {steps} steps")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
