"""Objects as items: they come back equal, large buffers are not copied, and pickle needs trust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy
import pytest

from aiofabric.pipeline import MsgspecObjects, PickleObjects, Pull, Push
from tests.fixtures.providers import HOST

PICKLE = PickleObjects(trusted=True)


class Point(msgspec.Struct):
    x: int
    y: float


@dataclass
class Image:
    name: str
    pixels: Any


@pytest.mark.once
@pytest.mark.parametrize("value", [b"", b"data", "text", None, 5, {"a": [1, 2]}, (b"x" * 10_000,), bytearray(b"abc")])
def test_an_object_comes_back_equal(value: Any) -> None:
    again = PICKLE.decode(PICKLE.encode(value))
    assert again == value
    assert type(again) is type(value)


@pytest.mark.once
def test_large_buffers_are_parts_of_their_own_and_not_copied() -> None:
    small, large = numpy.arange(10), numpy.arange(10_000)
    parts = PICKLE.encode([small, large, Image("name", large)])
    assert len(parts) == 2  # the same array twice is one part
    assert numpy.shares_memory(numpy.frombuffer(parts[1], dtype=large.dtype), large)
    first, second, image = PICKLE.decode(parts)
    assert numpy.array_equal(first, small)
    assert second is image.pixels
    assert numpy.shares_memory(second, large)


@pytest.mark.once
def test_more_buffers_than_an_item_has_parts() -> None:
    arrays = [numpy.full(1000, number) for number in range(400)]
    parts = PICKLE.encode(arrays)
    assert len(parts) == 256
    assert all(map(numpy.array_equal, PICKLE.decode(parts), arrays))


@pytest.mark.once
@pytest.mark.parametrize("trusted", [False, None, 1, "yes"])
def test_pickle_needs_trust(trusted: Any) -> None:
    with pytest.raises(ValueError, match="trusted=True"):
        PickleObjects(trusted=trusted)


@pytest.mark.once
@pytest.mark.parametrize("parts", [[], [b""], [b"v"]])
def test_missing_parts_are_named(parts: list[bytes]) -> None:
    with pytest.raises(ValueError, match="parts of the object are missing"):
        PickleObjects(trusted=True).decode(parts)
    with pytest.raises(ValueError, match="parts of the object are missing"):
        MsgspecObjects(int).decode([])


def test_msgspec_checks_what_comes() -> None:
    points = MsgspecObjects(Point)
    assert points.decode(points.encode(Point(1, 2.5))) == Point(1, 2.5)
    with pytest.raises(msgspec.ValidationError):
        points.decode(MsgspecObjects(dict[str, str]).encode({"x": "one"}))
    with pytest.raises(TypeError):
        points.encode(object())  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_objects_go_through_a_pipeline(provider: str) -> None:
    pixels = numpy.arange(1 << 18, dtype="f4").reshape(512, 512)
    points = MsgspecObjects(Point)
    async with Pull(listen=(HOST, 0), provider=provider) as pull, Push(pull.address, provider=provider) as push:
        await push.push(PICKLE.encode(Image("large", pixels)))
        await push.push(points.encode(Point(3, 4)))
        with await pull.pull() as item:
            image = PICKLE.decode(item.parts)
            assert (image.name, numpy.array_equal(image.pixels, pixels)) == ("large", True)
            assert not image.pixels.flags.writeable
        assert numpy.array_equal(image.pixels, pixels)  # its memory stays
        with await pull.pull() as item:
            assert points.decode(item.parts) == Point(3, 4)
