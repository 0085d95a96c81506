"""Writes docs/providers.md from the recorded answers of the providers."""

import json
from pathlib import Path
from typing import Any

from aiofabric import EndpointType
from aiofabric._ffi import constants
from tests.matrix.checks import CHECKS, EMULATED, USUAL
from tests.matrix.loops import LOOPS
from tests.matrix.record import RECORDED

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "providers.md"
MODES = (
    "LOCAL",
    "RAW",
    "VIRT_ADDR",
    "ALLOCATED",
    "PROV_KEY",
    "MMU_NOTIFY",
    "RMA_EVENT",
    "ENDPOINT",
    "HMEM",
    "COLLECTIVE",
)
UNRUN = "unrun: no provider here asks for it"
UNRUN_MODES = ("MSG_PREFIX", "RX_CQ_DATA", "ASYNC_IOV")
UNRUN_CAPS = ("SOURCE_ERR",)
ABSENT = "not in this libfabric"
NOT_ASKED = "not asked yet"

_HEAD = """\
# What each provider does

<!-- Written by python -m tests.matrix: change that, not this. -->

*For maintainers.* [The page on providers](topics/providers.md) is for programs.

The tables show the same checks for each provider of one machine: libfabric {versions}, on {loops}, over loopback and
shared memory. Each check of each provider ran in a process of its own, so a crash or a hang is a result here. If the
loops differ, the cell says how.

- *works* and similar sentences are observations.
- *not offered* means that fi_getinfo has no such offer, or returned another provider or type of endpoint. The cell then
  names it, and its own table has its results.
- *refused* is followed by the refusal. A call with libfabric's words for its code comes from the provider. A plain
  sentence comes from aiofabric, which examines the provider's offer before it makes the call.
- *no answer* means that the check waited for {timeout:.0f} seconds without a result.

The result of *cancelled send* depends on how far the send has come when its cancel arrives. It may differ from run to
run, and a difference between loops there has no meaning. An observation on one machine over loopback is no promise for
a network.

The tables of verbs are from a virtual machine with Soft RoCE, an RDMA device that Linux emulates in software.
`make test-rdma ARGS='--matrix "verbs MSG"'` boots the machine, asks the offers on each libfabric, and writes their
tables. There, an answer may take {emulated:.0f} seconds.

"""

_EMULATED = "On Soft RoCE.\n\n"

_MODES = """\
## Registration modes

The table shows which providers require which mode of registered memory. A mode that no provider here requires was not
run.

"""


_DOUBLES = """
## Tested with doubles only

These are implemented. No provider here asks for them or grants them.

| | |
|---|---|
"""


def _cell(run: dict[str, Any], offer: str, check: str) -> str:
    """One text if all loops agree; otherwise the text of each loop."""
    if offer not in run["cells"]:
        return NOT_ASKED if offer in run["modes"] else ABSENT
    answers: dict[str, str] = run["cells"][offer][check]
    said: dict[str, list[str]] = {}
    for loop in LOOPS:
        said.setdefault(answers[loop], []).append(loop)
    if len(said) == 1:
        return _escaped(next(iter(said)))
    return "; ".join(f"{', '.join(loops)}: {_escaped(text)}" for text, loops in said.items())


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _asked(recorded: dict[str, Any], bit: int) -> str:
    """The providers that ask for a registration mode."""
    found = {
        offer: None
        for run in recorded.values()
        for offer, modes in run["modes"].items()
        if any(mode & bit for mode in modes)
    }
    return ", ".join(_title(offer) for offer in found) or UNRUN


def _title(offer: str) -> str:
    name, kind = offer.split()
    return f"{name} ({EndpointType[kind]})"


def text() -> str:
    """The page."""
    recorded: dict[str, Any] = json.loads(RECORDED.read_text())
    versions, loops = list(recorded), list(LOOPS)
    head = _HEAD.format(
        versions=" and ".join(versions),
        loops=f"{', '.join(loops[:-1])} and {loops[-1]}",
        timeout=USUAL,
        emulated=EMULATED,
    )
    lines = [head]
    for offer in sorted({offer for run in recorded.values() for offer in run["cells"]}):
        lines.append(f"## {_title(offer)}\n\n{_EMULATED * offer.startswith('verbs')}")
        lines.append(f"| | {' | '.join(versions)} |\n|---{'|---' * len(versions)}|\n")
        for check, (_, kinds) in CHECKS.items():
            if EndpointType[offer.split()[1]] in kinds:
                cells = (_cell(run, offer, check) for run in recorded.values())
                lines.append(f"| {check} | {' | '.join(cells)} |\n")
        lines.append("\n")
    left = sorted(
        f"{_title(offer)} of {version}"
        for version, run in recorded.items()
        for offer in run["modes"]
        if offer not in run["cells"]
    )
    if left:
        lines.append(f"## Not run yet\n\nThese offers exist here and were not run: {', '.join(left)}.\n\n")
    lines.append(f"{_MODES}| mode | providers that require it |\n|---|---|\n")
    lines += [f"| FI_MR_{name} | {_asked(recorded, getattr(constants, f'FI_MR_{name}'))} |\n" for name in MODES]
    lines.append(_DOUBLES)
    lines += [f"| FI_{name} | {UNRUN} |\n" for name in UNRUN_MODES]
    lines += [f"| FI_{name} | {UNRUN.replace('asks for', 'grants')} |\n" for name in UNRUN_CAPS]
    return "".join(lines)
