"""Signals: the first endpoint over shm replaces the handlers of SIGINT, SIGTERM, SIGBUS and SIGSEGV (smr_signal.h).

Its handler removes the files of all endpoints from /dev/shm, puts back the handler that it replaced, and raises the
signal again. This is correct if the signal ends the process. If the process has its own handler and continues, the
files of its endpoints are missing from then on: processes that connect to them crash (1.17) or hang (2.5).

So a handler that the process had before is put back at once. If the signal has its default action, it ends the process,
and the provider's handler stays.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..._ffi.load import file_of, loaded_path
from ...features import Quirk, quirks
from ...workarounds import is_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...info import Info

__all__ = ["handlers_stay"]

_TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGBUS, signal.SIGSEGV)
_Action = ctypes.c_size_t * 32  # room for a struct sigaction, whose first field is the handler
_PLUGIN = "-fi.so"  # the end of the name of a provider in a file of its own


@contextmanager
def handlers_stay(info: Info) -> Iterator[None]:
    """Opening an endpoint leaves the signal handlers of the process as they are."""
    if Quirk.TAKES_SIGNALS not in quirks(info) or not is_on("signals"):
        yield
        return
    before = {number: _action(number) for number in _TAKEN}
    try:
        yield
    finally:
        for number, action in before.items():
            handler = _action(number)[0]
            if action[0] not in (signal.SIG_DFL, handler) and _is_libfabric(handler):
                ctypes.CDLL(None).sigaction(int(number), action, None)


def _action(number: int) -> Any:
    action = _Action()
    ctypes.CDLL(None).sigaction(int(number), None, action)
    return action


def _is_libfabric(handler: int) -> bool:
    file = file_of(ctypes.c_void_p(handler)) or ""
    return file.endswith(_PLUGIN) or os.path.basename(file) == os.path.basename(loaded_path() or "")
