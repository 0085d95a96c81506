"""A slot's address names one operation at a time, and after that no operation for a while."""

from itertools import pairwise

import pytest

from aiofabric._ffi import ffi
from aiofabric.cq.slots import Slots

pytestmark = pytest.mark.once


def test_addresses_are_distinct_and_apart() -> None:
    slots = Slots()
    addresses = sorted(slots.acquire().address for _ in range(1000))
    assert slots.in_use == 1000
    # The provider may write all of a struct fi_context2.
    assert min(b - a for a, b in pairwise(addresses)) >= ffi.sizeof("struct fi_context2")


def test_pointer_is_the_address() -> None:
    slot = Slots().acquire()
    assert int(ffi.cast("uintptr_t", slot.pointer)) == slot.address


def test_released_slot_is_used_last() -> None:
    """The longer an address is unused, the fewer late completions can be taken for those of its next operation."""
    slots = Slots()
    first = slots.acquire()
    slots.release(first)
    rest = [slots.acquire() for _ in range(127)]
    assert first not in rest
    assert slots.acquire() is first


def test_quarantined_slot_is_never_used_again() -> None:
    slots = Slots()
    lost = slots.acquire()
    slots.quarantine(lost)
    assert (slots.in_use, slots.quarantined) == (0, 1)
    assert lost.address not in {slots.acquire().address for _ in range(1000)}


def test_free_list_stays_as_large_as_its_busiest_moment() -> None:
    slots = Slots()
    seen = set()
    for _ in range(50):
        lent = [slots.acquire() for _ in range(100)]
        seen |= {s.address for s in lent}
        for slot in lent:
            slots.release(slot)
    assert slots.in_use == 0
    assert len(seen) <= 128
