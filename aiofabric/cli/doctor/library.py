"""Checks of libfabric: its version, the environment variables it reads, and its signal handlers."""

from __future__ import annotations

import difflib
import os
from contextlib import suppress
from textwrap import dedent
from typing import TYPE_CHECKING

from aiofabric._ffi.switches import asked_for
from aiofabric.cli.doctor.findings import Finding, Level
from aiofabric.cli.doctor.probe import ask
from aiofabric.errors import LibfabricNotFound, NoProviderError
from aiofabric.features import describe
from aiofabric.info import getinfo, parameters
from aiofabric.workarounds import VARIABLE, WORKAROUNDS, State, meant, state, unknown_words

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["environment", "library", "signals", "workarounds"]


def library() -> Finding:
    """The version and the path of libfabric."""
    try:
        return Finding(Level.OK, "library", describe())
    except LibfabricNotFound as error:
        # The text ends with the cures; if there are several, they follow a line of their own.
        text, _, cures = str(error).partition("\nAny one of these helps:\n")
        return Finding(
            Level.FAILURE,
            "library",
            text,
            dedent(cures) or "name a libfabric.so.1 that exists in AIOFABRIC_LIBFABRIC, or unset it",
        )


def environment() -> Iterator[Finding]:
    """FI_ variables that nothing reads, mostly misspelled, and variables that exclude providers."""
    with suppress(NoProviderError):
        getinfo()  # providers register their variables when they are loaded
    known = {parameter.name for parameter in parameters()}
    for name in sorted(name for name in os.environ if name.startswith("FI_") and name not in known):
        close = difflib.get_close_matches(name, known, n=1)
        yield Finding(
            Level.WARNING,
            name,
            "set, but this libfabric does not read it",
            f"unset it, or did you mean {close[0]}?" if close else "unset it; aiofabric info -e lists the known ones",
        )
    if allowed := os.environ.get("FI_PROVIDER"):
        yield Finding(
            Level.WARNING,
            "FI_PROVIDER",
            f"set to {allowed!r}: other providers do not exist for programs started from here",
            "unset FI_PROVIDER; a program names its provider with connect(..., provider=...)",
        )


def signals() -> Iterator[Finding]:
    """Signals that libfabric, or a library that it loads, handles instead of Python."""
    report = ask("signals")
    if report.failure:
        yield Finding(
            Level.FAILURE,
            "signals",
            f"getinfo in a fresh process failed: {report.failure}",
            "FI_LOG_LEVEL=info aiofabric info shows the last step before the failure; FI_PROVIDER=tcp leaves "
            "the other providers out",
        )
    elif taken := report.answer["signals"]:
        cure = "do not load that library ahead of aiofabric (LD_PRELOAD, other modules)"
        if asked_for("signals") is False:
            cure = f"switch the workaround signals on ({VARIABLE})"
        files = ", ".join(sorted({os.path.basename(file) for file in taken.values()}))
        yield Finding(
            Level.WARNING,
            "signals",
            f"{' '.join(taken)} handled by {files}: tracebacks and clean ends of programs may be lost",
            f"{cure}; install handlers of your own after the first use of aiofabric",
        )
    else:
        yield Finding(Level.OK, "signals", "all left to Python")


def workarounds() -> Iterator[Finding]:
    """The state of the workarounds, which reach below libfabric's interface."""
    found: dict[State, list[str]] = {}
    for name in WORKAROUNDS:
        found.setdefault(state(name), []).append(name)
    text = "; ".join(f"{each}: {', '.join(found[each])}" for each in State if each in found)
    if State.NOT_EXAMINED in found:
        cure = f"{VARIABLE}={found[State.NOT_EXAMINED][0]} switches it on; see the page on workarounds"
        yield Finding(Level.WARNING, "workarounds", text, cure)
    else:
        yield Finding(Level.OK, "workarounds", text)
    for word in unknown_words():
        yield Finding(Level.WARNING, VARIABLE, f"names {word!r}, which is not a workaround", meant(word))
