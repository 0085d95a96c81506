"""Writes docs/coverage.md from the names, their carriers and what the recorded runs saw."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from aiofabric._ffi import constants
from tests.coverage.carriers import ARTEFACTS, CARRIERS, GAPS, KFI_MACROS, NOT_YET, REASONS, UNRECORDED
from tests.coverage.names import HERE, PAGES, members

ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "coverage.md"
RECORDED = HERE / "recorded.json"

_HEAD = """\
# What of libfabric is covered

<!-- Written by python -m tests.coverage: change that, not this. -->

Every name on the manual pages fi_getinfo(3), fi_endpoint(3), fi_fabric(3) and kfi_getinfo(3), what carries it in
Python, and a test that exercises it. The tests are recorded while the suite runs, on libfabric {generations}: of a
function, that it was called; of a constant, that it was an argument of a call that succeeded, that hints asked for it
and the answer of fi_getinfo has it, or that a call returned it as its error. What happens in a test's child processes
is not seen, and a flag inside a structure mostly is not either, so a constant without a recorded test may still be in
use. A name that several tests exercise is listed with the one that calls least besides.

{counts}

The kernel's kfi_getinfo is the same call with another first letter, and aiofabric runs in user space: the column `kfi`
tells which names have a twin there. The kernel's page adds one rule, that at least one of node, service and hints is
given (and hints with an address, if node and service are not), where fi_getinfo then lists everything; and one bit,
KFI_CANCEL. Of its four errors KFI_EBADFLAGS, KFI_ENODATA and KFI_ENOMEM mean what they mean here; KFI_ENOSYS says that
no provider was found, where FI_ENOSYS says that the version asked for is newer than the library.

"""


@dataclass(frozen=True)
class Row:
    """One name of the pages."""

    name: str
    kind: str
    python: tuple[str, ...]
    test: str | None
    kernel: str | None
    reason: str


def twin(name: str) -> str:
    """The user-space name of a kernel one."""
    return KFI_MACROS.get(name) or name.removeprefix("K").removeprefix("k")


def rows() -> list[Row]:
    """All names that are not artefacts of the pages' text."""
    names = {name for page in PAGES.values() for name in page} - set(ARTEFACTS)
    kernel = {twin(name): name for name in names if name.lower().startswith("k")}
    recorded: dict[str, dict[str, str]] = json.loads(RECORDED.read_text())
    tests = {name: test for run in recorded.values() for name, test in run.items()}
    listed = {name if name in REASONS else twin(name) for name in names}
    return [_row(name, tests.get(name), kernel.get(name)) for name in sorted(listed)]


def _row(name: str, test: str | None, kernel: str | None) -> Row:
    if not name.startswith(("fi_", "kfi_")):
        kind = "error" if _is_error(name) else "constant"
    else:
        kind = "other" if name in REASONS and name != "fi_tostr" else "function"
    if name in CARRIERS:
        python: tuple[str, ...] = (CARRIERS[name],)
    elif kind == "error":
        python = ("aiofabric.FabricError",)
    else:
        python = tuple(path.replace("aiofabric.flags.attributes", "aiofabric") for path in members().get(name, ()))
        python = tuple(f"aiofabric.{'.'.join(path.split('.')[-2:])}" for path in python)
    reason = REASONS.get(name) or ("" if test else NOT_YET if not python else UNRECORDED)
    return Row(name, kind, python, test, kernel, reason)


def _is_error(name: str) -> bool:
    return name.startswith("FI_E") and not name.startswith("FI_EP_") and hasattr(constants, name)


def text() -> str:
    """The page."""
    found = rows()
    count = Counter("test" if row.test else "gap" if row.reason in GAPS else "reason" for row in found)
    generations = " and ".join(json.loads(RECORDED.read_text()))
    counts = (
        f"{len(found)} names: {count['test']} exercised by a recorded test, {count['reason']} with a reason why not, "
        f"{count['gap']} open (not yet carried, or no recorded test)."
    )
    lines = [_HEAD.format(generations=generations, counts=counts)]
    for kind, title in (("function", "Functions"), ("constant", "Constants"), ("error", "Errors"), ("other", "Others")):
        lines.append(f"## {title}\n\n| name | Python | test or reason | kfi |\n|---|---|---|---|\n")
        for row in (row for row in found if row.kind == kind):
            python = ", ".join(f"`{path}`" for path in row.python)
            shown = f"`{row.test}`" if row.test else row.reason
            lines.append(f"| {row.name} | {python} | {shown} | {row.kernel or ''} |\n")
        lines.append("\n")
    lines.append("## Not names\n\nWhat the pages' text makes look like one:\n\n| word | what it is |\n|---|---|\n")
    lines += [f"| {word} | {reason} |\n" for word, reason in sorted(ARTEFACTS.items())]
    return "".join(lines)


def merge(runs: list[Path]) -> None:
    """Keep what recorded runs saw, of the names on the pages, one run of each generation."""
    wanted = {twin(name) for page in PAGES.values() for name in page}
    kept = {}
    for run in runs:
        seen = json.loads(run.read_text())
        kept[run.stem] = {name: test for name, test in sorted(seen.items()) if name in wanted}
    RECORDED.write_text(json.dumps(kept, indent=1) + "\n")
