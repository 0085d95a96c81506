"""The count of messages taken that each message carries, modulo 256: what it grants, and what is ignored."""

# A route without a provider.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric.transport.virtual.route import ConnectionRoute

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("sent", "taken", "count", "granted"),
    [
        (10, 0, 4, 4),
        (10, 0, 10, 10),
        (260, 250, 2, 258),  # the count has wrapped
        (10, 4, 4, 4),
        (10, 4, 2, 4),  # an older count that was delayed
        (10, 4, 11, 4),  # more than was sent
        (300, 0, 127, 127),
        (300, 0, 128, 0),  # more than a window
    ],
)
def test_a_count_grants_what_was_sent_and_no_more(sent: int, taken: int, count: int, granted: int) -> None:
    touched: list[None] = []
    route: Any = SimpleNamespace(
        sent=sent, taken=taken, waiting=["message"], source=SimpleNamespace(touch=lambda: touched.append(None))
    )
    ConnectionRoute.granted(route, count)
    assert route.taken == granted
    assert len(touched) == (granted > taken)


def test_a_grant_schedules_no_pass_if_nothing_is_queued() -> None:
    route: Any = SimpleNamespace(sent=10, taken=0, waiting=[], source=None)
    ConnectionRoute.granted(route, 5)
    assert route.taken == 5
