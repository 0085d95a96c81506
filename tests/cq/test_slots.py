"""A slot's address names one operation at a time, and for a while nobody."""

from itertools import pairwise

import pytest

from aiofabric._ffi import ffi
from aiofabric.cq.slots import Slots

pytestmark = pytest.mark.once


def test_addresses_are_distinct_and_apart() -> None:
    slots = Slots()
    addresses = sorted(slots.lend().address for _ in range(1000))
    assert slots.lent == 1000
    # The provider may write all of a struct fi_context2.
    assert min(b - a for a, b in pairwise(addresses)) >= ffi.sizeof("struct fi_context2")


def test_pointer_is_the_address() -> None:
    slot = Slots().lend()
    assert int(ffi.cast("uintptr_t", slot.pointer)) == slot.address


def test_slot_that_came_home_is_lent_last() -> None:
    """The longer an address rests, the fewer late completions can be mistaken for its next operation's."""
    slots = Slots()
    first = slots.lend()
    slots.take_back(first)
    rest = [slots.lend() for _ in range(127)]
    assert first not in rest
    assert slots.lend() is first


def test_quarantined_slot_is_never_lent_again() -> None:
    slots = Slots()
    lost = slots.lend()
    slots.quarantine(lost)
    assert (slots.lent, slots.quarantined) == (0, 1)
    assert lost.address not in {slots.lend().address for _ in range(1000)}


def test_shelf_stays_as_large_as_its_busiest_moment() -> None:
    slots = Slots()
    seen = set()
    for _ in range(50):
        lent = [slots.lend() for _ in range(100)]
        seen |= {s.address for s in lent}
        for slot in lent:
            slots.take_back(slot)
    assert slots.lent == 0
    assert len(seen) <= 128
