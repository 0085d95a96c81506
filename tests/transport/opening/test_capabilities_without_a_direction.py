"""Capabilities of which no direction is named have both, as fi_getinfo(3) says."""

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Caps
from aiofabric.transport.exclusions import lacking

pytestmark = pytest.mark.once


def lacks(caps: Caps, kind: Caps, direction: Caps) -> Caps:
    as_the_endpoint = SimpleNamespace(caps=Caps(0))
    info: Any = SimpleNamespace(caps=caps, tx_attr=as_the_endpoint, rx_attr=as_the_endpoint)
    return lacking(info, kind, direction)


def test_messages_without_a_direction_go_both_ways() -> None:
    for direction in (Caps.SEND, Caps.RECV):
        assert lacks(Caps.MSG, Caps.MSG, direction) == Caps(0)
        assert lacks(Caps.MSG | direction, Caps.MSG, direction) == Caps(0)
        assert lacks(Caps.MSG | Caps.RMA | Caps.READ, Caps.MSG, direction) == Caps(0)
        assert lacks(Caps.TAGGED | direction, Caps.MSG, direction) == Caps.MSG | direction
    assert lacks(Caps.MSG | Caps.SEND, Caps.MSG, Caps.RECV) == Caps.RECV
    assert lacks(Caps.MSG | Caps.RECV, Caps.MSG, Caps.SEND) == Caps.SEND


def test_remote_memory_without_a_direction_is_read_and_written_from_both_sides() -> None:
    directions = (Caps.READ, Caps.WRITE, Caps.REMOTE_READ, Caps.REMOTE_WRITE)
    for kind in (Caps.RMA, Caps.ATOMIC):
        for direction in directions:
            assert lacks(kind, kind, direction) == Caps(0)
            assert lacks(kind | Caps.SEND, kind, direction) == Caps(0)
            assert lacks(kind | direction, kind, direction) == Caps(0)
            for other in directions:
                if other != direction:
                    assert lacks(kind | other, kind, direction) == direction
            assert lacks(Caps.MSG, kind, direction) == kind | direction
