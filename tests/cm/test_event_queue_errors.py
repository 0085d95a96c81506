"""The text of an event queue's error contains the provider's own words if the provider has a code of its own."""

# Privates: an error entry of a provider is made by the test, and read as the queue reads it.
# Doubles: no provider reports a chosen error on request.

from __future__ import annotations

from typing import Any

import pytest

from aiofabric._ffi import constants, ffi, lib
from aiofabric.cm.queue import EventQueue

pytestmark = pytest.mark.once


class Handler:
    def __init__(self) -> None:
        self.errors: list[Any] = []

    def event_error(self, error: Any) -> None:
        self.errors.append(error)


@pytest.mark.parametrize(("code", "words"), [(0, ""), (77, "the cable is cut")])
def test_the_provider_is_asked_for_words_only_if_it_has_a_code(
    code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ffi.new("char[]", b"the cable is cut")
    handler = Handler()
    queue: Any = EventQueue.__new__(EventQueue)
    queue._eq, queue._handlers = ffi.NULL, {0: handler}

    def read(_: Any, entry: Any, __: int) -> int:
        entry.err, entry.prov_errno = constants.FI_ECONNREFUSED, code
        return 1

    with monkeypatch.context() as patch:
        patch.setattr(lib, "fi_eq_readerr", read)
        patch.setattr(lib, "fi_eq_strerror", lambda *_: text)
        queue._read_error()
    (error,) = handler.errors
    assert (error.errno, error.provider_errno, error.text) == (constants.FI_ECONNREFUSED, code, words)
