"""Events that no provider makes on request: errors with and without words, and requests without a handler."""

# Privates: an entry of a provider is made by the test, and read as the queue reads it.
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


def test_an_error_that_is_not_there_after_all_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Handler()
    queue: Any = EventQueue.__new__(EventQueue)
    queue._eq, queue._handlers = ffi.NULL, {0: handler}
    with monkeypatch.context() as patch:
        patch.setattr(lib, "fi_eq_readerr", lambda *_: -constants.FI_EAGAIN)
        queue._read_error()
    assert handler.errors == []


@pytest.mark.parametrize(("kind", "freed"), [("FI_CONNREQ", True), ("FI_SHUTDOWN", False)])
def test_a_request_that_nobody_handles_is_freed_once(kind: str, freed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other events have no info: the memory of an earlier request may still be in the buffer."""
    queue: Any = EventQueue.__new__(EventQueue)
    info = ffi.new("struct fi_info *")
    queue._buffer = ffi.new("char[]", 1024)
    queue._entry = ffi.cast("struct fi_eq_cm_entry *", queue._buffer)
    queue._event = [getattr(constants, kind)]
    queue._handlers = {}
    queue._entry.info = info
    found: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(lib, "fi_freeinfo", found.append)
        queue._dispatch(ffi.sizeof("struct fi_eq_cm_entry"))
    assert found == [info] * freed
