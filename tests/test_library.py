"""Objects that the library itself opens (fi_open)."""

import pytest

from aiofabric import LibraryObject, NotSupportedError
from aiofabric.testing import live_resources


def test_the_registration_cache_opens_and_closes() -> None:
    with LibraryObject("mr_cache") as cache:
        assert cache.native
        assert "LibraryObject" in live_resources()[-1]
        assert repr(cache) == "<LibraryObject mr_cache>"
    assert repr(cache) == "<LibraryObject mr_cache closed>"


def test_what_it_does_not_have_is_refused_in_a_sentence() -> None:
    with pytest.raises(NotSupportedError, match=r"has no object called 'nosuch'\. This is libfabric"):
        LibraryObject("nosuch")
