"""Hazard: tcp of 1.17 reports a connection that ended before its answer with an outdated errno."""

import errno
from types import SimpleNamespace
from typing import Any

import pytest

import aiofabric
from aiofabric.cm.events import EventError
from aiofabric.cm.handshake import Handshake


@pytest.mark.parametrize("stale", [errno.ENOENT, errno.EEXIST, errno.EINPROGRESS, errno.EAGAIN, errno.EINTR])
def test_stale_errno_is_a_reset(stale: int) -> None:
    connecting: Any = SimpleNamespace(peer="peer")
    error = Handshake.refusal(connecting, EventError(0, stale, 0, "", b""))
    assert type(error) is aiofabric.FabricConnectionResetError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ECONNREFUSED, aiofabric.FabricConnectionRefusedError),
        (errno.ETIMEDOUT, aiofabric.FabricTimeoutError),
        (errno.EHOSTUNREACH, aiofabric.UnreachableError),
        (errno.EMFILE, aiofabric.FabricError),
    ],
)
def test_answers_of_the_network_stay_what_they_are(code: int, kind: type[Exception]) -> None:
    connecting: Any = SimpleNamespace(peer="peer", _answered=False)
    error = Handshake.refusal(connecting, EventError(0, code, 0, "", b""))
    assert type(error) is kind
