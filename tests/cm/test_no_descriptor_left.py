"""The examination of sockets goes on in a process that has no descriptor left."""

# Doubles: a directory of descriptors that cannot be read.

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aiofabric.cm.workarounds.half_open_clients import out_of_descriptors
from aiofabric.cm.workarounds.provider_sockets import are_free, next_descriptor, open_descriptors

pytestmark = pytest.mark.once


@contextmanager
def left(count: int) -> Iterator[int]:
    """Meanwhile, this process can open ``count`` more descriptors; yields the number of the next one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers = [os.dup(0)]
    highest = max(open_descriptors())
    while fillers[-1] <= highest:  # no number below the limit is free
        fillers.append(os.dup(0))
    lowest = fillers.pop()
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + count, hard))
    try:
        yield lowest
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


def test_the_last_descriptor_is_the_next_one() -> None:
    with left(1) as lowest:
        assert next_descriptor() == lowest
        assert next_descriptor() == lowest
        assert not out_of_descriptors()
        assert open_descriptors() == set(range(lowest))


def test_without_a_descriptor_there_is_no_next_one() -> None:
    with left(0) as lowest:
        assert next_descriptor() is None
        assert out_of_descriptors()
        assert open_descriptors() == set(range(lowest))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_free_descriptors_are_counted_and_stay_free(count: int) -> None:
    with left(count):
        for _ in range(2):
            assert are_free(count)
            assert not are_free(count + 1)


def test_a_directory_of_descriptors_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> list[str]:
        raise PermissionError(13, "no /proc")

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", refuse)
        with pytest.raises(PermissionError, match="no /proc"):
            open_descriptors()
