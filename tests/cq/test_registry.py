"""`Registry` finds the object that a completion is for, as a dict would."""

import gc
import random
import weakref
from typing import Any

import pytest

from aiofabric._core import Registry

pytestmark = pytest.mark.once

NEIGHBOURS = [1 << 40 | 64 * number for number in range(50)]
ANYWHERE = [1, 8, 2**63, 2**64 - 1, *(random.Random(7).randrange(1, 2**64) for _ in range(46))]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("addresses", [NEIGHBOURS, ANYWHERE], ids=["neighbours", "anywhere"])
def test_it_does_what_a_dict_does(addresses: list[int], seed: int) -> None:
    chance = random.Random(seed)
    registry: Any = Registry()
    model = dict[int, object]()
    for _ in range(5000):
        address = chance.choice(addresses)
        match chance.randrange(5):
            case 0 | 1:
                registry[address] = model[address] = object()
            case 2:
                assert registry.pop(address) is model.pop(address, None)
            case 3 if address in model:
                del registry[address], model[address]
            case _:
                assert registry.get(address) is model.get(address)
                assert (address in registry) == (address in model)
        assert len(registry) == len(model)
    assert dict(registry) == model
    assert sorted(registry) == sorted(registry.keys()) == sorted(model)
    for address in model:
        assert registry[address] is model[address]


def test_whom_it_does_not_know() -> None:
    registry: Any = Registry()
    for known in range(2):
        assert registry.get(64) is None
        assert registry.pop(64) is None
        assert registry.get(0) is None  # a completion without a context
        with pytest.raises(KeyError):
            registry[64]
        with pytest.raises(KeyError):
            del registry[64]
        assert len(registry) == known
        registry[128] = "somebody"
    with pytest.raises((KeyError, ValueError)):
        registry[0] = "nobody's"
    for bad in ("128", None, 2**64):
        for call in (registry.get, registry.pop, registry.__getitem__):
            with pytest.raises((TypeError, OverflowError)):
                call(bad)
    assert dict(registry) == {128: "somebody"}


def test_it_keeps_whom_it_knows_and_nobody_else() -> None:
    class Completable:
        pass

    registry: Any = Registry()
    known = [weakref.ref(each := Completable())]
    registry[64] = each
    registry[64] = each = Completable()
    known.append(weakref.ref(each))
    registry[128] = each
    del each
    assert [ref() is None for ref in known] == [True, False]
    del registry[64]
    assert known[1]() is registry.pop(128)
    assert known[1]() is None


def test_the_collector_finds_cycles_through_it() -> None:
    class Completable:
        registry: Any = None

    registry: Any = Registry()
    registry[64] = finished = Completable()
    finished.registry = registry
    gone = weakref.ref(finished)
    del finished, registry
    gc.collect()
    assert gone() is None


def test_hazard_who_goes_looks_into_it() -> None:
    """An object that a removal frees may run Python code, which enters others or looks itself up."""
    registry: Any = Registry()
    seen: list[object] = []

    class Completable:
        def __del__(self) -> None:
            seen.append(registry.get(64))
            for address in range(1, 100):
                registry[64 * address] = "another"

    registry[64] = Completable()
    registry[64] = "its successor"
    assert seen == ["its successor"]
    assert len(registry) == 99
    registry[64] = Completable()
    del registry[64]
    assert seen == ["its successor", None]
    assert registry[64] == "another"
