"""`Fifo` behaves as a list does."""

import gc
import random
import weakref
from typing import Any

import pytest

from aiofabric._core import Fifo

pytestmark = pytest.mark.once


@pytest.mark.parametrize("seed", range(5))
def test_it_does_what_a_list_does(seed: int) -> None:
    chance = random.Random(seed)
    fifo, model = Fifo(), list[object]()
    for _ in range(2000):
        match chance.randrange(6):
            case 0 | 1 | 2:
                item = object()
                fifo.append(item)
                model.append(item)
            case 3 if model:
                assert fifo.popleft() is model.pop(0)
            case 4:
                index, item = chance.randrange(-1, len(model) + 2), object()
                fifo.insert(index, item)
                model.insert(max(index, 0), item)
            case 5 if model:
                item = chance.choice(model)
                fifo.remove(item)
                model.remove(item)
        assert len(fifo) == len(model)
    assert list(fifo) == model
    fifo.clear()
    assert list(fifo) == []


def test_of_several_the_newest_is_removed() -> None:
    fifo = Fifo()
    for item in ("a", "b", "a", "c"):
        fifo.append(item)
    fifo.remove("a")
    assert list(fifo) == ["a", "b", "c"]


def test_what_is_not_there() -> None:
    fifo = Fifo()
    with pytest.raises(IndexError):
        fifo.popleft()
    with pytest.raises(ValueError, match="expected an item"):
        fifo.remove("a")


def test_a_cycle_through_it_is_collected() -> None:
    class Item:
        fifo: Any = None

    item = Item()
    item.fifo = Fifo()
    item.fifo.append(item)
    alive = weakref.ref(item)
    del item
    gc.collect()
    assert alive() is None
