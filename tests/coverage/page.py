"""Writes docs/coverage.md from the names, the parts that stand for them, and the calls of recorded runs."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from aiofabric._ffi import constants
from tests.coverage.carriers import ARTEFACTS, CARRIERS, GAPS, KFI_MACROS, NOT_YET, REASONS, UNRECORDED
from tests.coverage.names import HERE, HOW, PAGES, members
from tests.coverage.ran import RAN, ran_on
from tests.coverage.statements import STATEMENTS, State

ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "coverage.md"
RECORDED = HERE / "recorded.json"

_HEAD = """\
# What of libfabric is covered

<!-- Written by python -m tests.coverage: change that, not this. -->

*For maintainers.* [The reference](reference/endpoints.md) is for programs.

This page has two tables: the statements of the manual pages, and their names. A statement is a rule of a manual page,
in words of this project. Its state is one of these:

- holds: the test shows it, and fails without it. The column `ran on` has the providers that the test opened, and the
  versions of libfabric: both are {generations}. A test with `getinfo` asks for offers and opens nothing. A test with
  `-` does neither.
- provider decides: the page leaves it to the provider. The note describes the providers here.
- refused: aiofabric refuses it on purpose. The note gives the reason.
- not observable here: no provider or device on the machines that run the tests shows it. The test, if there is one,
  has a double of a provider, or shows what aiofabric does instead.

{states}

"""

_NAMES = """\
## Names

The table has every name on the manual pages fi_getinfo(3), fi_endpoint(3), fi_fabric(3) and kfi_getinfo(3), its carrier
in Python, and a test that exercises it. The tests are recorded while the suite runs, on libfabric {generations}. An
import is no exercise. The column `how` has one of these words:

- called: the test called the function.
- had: the constant was an argument of a call that succeeded, or hints asked for it and the answer of fi_getinfo has it.
- error: a call returned it, or a completion queue or an event queue reported it.
- refused: no provider here has it. The same request without it succeeded, or the provider refused this very option.
  aiofabric raises an error that names it.
- ours: the effect is in aiofabric. A double of a provider asked for it, or aiofabric refuses it with a reason before it
  calls libfabric.
- worded: no call of these providers returns it. It was raised with libfabric's words for it.

Calls in a test's child processes are not recorded. Of several tests, the table lists the one with the strongest effect
and the fewest other names.

{counts}

### The kernel's flavour

kfi_getinfo is the same call for kernel modules; aiofabric runs in user space. The column `kfi` names the twin. A row
applies to both names. These are the differences:

- One more rule: at least one of node, service and hints has to be given, and hints with src_addr or dest_addr if node
  and service are not. fi_getinfo may be given none of them, and then lists everything.
- One more bit, KFI_CANCEL. In user space fi_cancel may always be called.
- KFI_EBADFLAGS: a capability of the endpoint or the domain, or an operation flag, is not valid; as in user space.
- KFI_ENOMEM: there was not enough memory; as in user space.
- KFI_ENODATA: no provider supports the request; as in user space, where it becomes
  `aiofabric.NoProviderError`, which names the hint to drop.
- KFI_ENOSYS: there is no provider at all. In user space FI_ENOSYS says that the version asked for is newer than the
  library.
- The page prints KKFI_VERSION once where it means KFI_VERSION, the twin of FI_VERSION.

"""


@dataclass(frozen=True)
class Row:
    """One name of the pages."""

    name: str
    kind: str
    python: tuple[str, ...]
    test: str | None
    how: str
    kernel: str | None
    reason: str


def count_names() -> int:
    """How many different names the pages have; a misprint is none."""
    return len({name for page in PAGES.values() for name in page} - set(ARTEFACTS) - set(KFI_MACROS))


def twin(name: str) -> str:
    """The user-space name of a kernel one."""
    return KFI_MACROS.get(name) or name.removeprefix("K").removeprefix("k")


def rows() -> list[Row]:
    """All names that are not artefacts of the pages' text."""
    names = {name for page in PAGES.values() for name in page} - set(ARTEFACTS)
    kernel = {twin(name): name for name in names if name.lower().startswith("k")}
    recorded: dict[str, dict[str, tuple[str, str]]] = json.loads(RECORDED.read_text())
    listed = {name if name in REASONS else twin(name) for name in names}
    return [
        _row(name, [run[name] for run in recorded.values() if name in run], kernel.get(name)) for name in sorted(listed)
    ]


def _row(name: str, tests: list[tuple[str, str]], kernel: str | None) -> Row:
    how, test = min(tests, key=lambda each: HOW.index(each[0]), default=("", None))
    if not name.startswith(("fi_", "kfi_")):
        kind = "error" if _is_error(name) else "constant"
    else:
        kind = "other" if name in REASONS else "function"
    if name in CARRIERS:
        python: tuple[str, ...] = (CARRIERS[name],)
    elif kind == "error":
        python = ("aiofabric.FabricError",)
    else:
        python = tuple(path.replace("aiofabric.flags.attributes", "aiofabric") for path in members().get(name, ()))
        python = tuple(f"aiofabric.{'.'.join(path.split('.')[-2:])}" for path in python)
    if name in REASONS:
        how, test = "", None  # a function of that name may have been called, but the page speaks of something else
    reason = REASONS.get(name) or ("" if test else NOT_YET if not python else UNRECORDED)
    return Row(name, kind, python, test, how, kernel, reason)


def _is_error(name: str) -> bool:
    return name.startswith("FI_E") and not name.startswith("FI_EP_") and hasattr(constants, name)


def text() -> str:
    """The page."""
    found = rows()
    count = Counter("test" if row.test else "gap" if row.reason in GAPS else "reason" for row in found)
    generations = " and ".join(json.loads(RECORDED.read_text()))
    how = Counter(row.how for row in found if row.test)
    counts = (
        f"{count_names()} names stand on the pages. The kernel's twins share the rows of the others, which makes "
        f"{len(found)} rows:\n{count['test']} exercised by a recorded test "
        f"({', '.join(f'{how[word]} {word}' for word in HOW)}), {count['reason']} with a reason why not"
        f"{', and ' + str(count['gap']) + ' open' if count['gap'] else ''}."
    )
    states = Counter(each.state for each in STATEMENTS)
    lines = [
        _HEAD.format(
            generations=generations,
            states=f"{len(STATEMENTS)} statements: {', '.join(f'{states[each]} {each}' for each in State)}.",
        ),
        *_statements(),
        _NAMES.format(generations=generations, counts=counts),
    ]
    for kind, title in (("function", "Functions"), ("constant", "Constants"), ("error", "Errors"), ("other", "Others")):
        lines.append(f"### {title}\n\n| name | Python | how | test or reason | kfi |\n|---|---|---|---|---|\n")
        for row in (row for row in found if row.kind == kind):
            python = ", ".join(f"`{path}`" for path in row.python)
            shown = f"`{row.test}`" if row.test else row.reason
            lines.append(f"| {row.name} | {python} | {row.how} | {shown} | {row.kernel or ''} |\n")
        lines.append("\n")
    lines.append(
        "### Not names\n\nThe text of the pages makes these look like names:\n\n| word | what it is |\n|---|---|\n"
    )
    lines += [f"| {word} | {reason} |\n" for word, reason in sorted(ARTEFACTS.items())]
    return "".join(lines)


def _statements() -> Iterator[str]:
    ran = json.loads(RAN.read_text())
    for page, of_page in groupby(STATEMENTS, lambda each: each.page):
        yield f"## {page}\n\n"
        for section, rows in groupby(of_page, lambda each: each.section):
            yield f"### {section}\n\n| statement | state | ran on | test, note |\n|---|---|---|---|\n"
            for row in rows:
                shown = [f"`{row.node}`" if row.test else "no test", row.note]
                where = ran_on(row.node, ran) if row.state is State.HOLDS else ""
                yield f"| {row.text} | {row.state} | {where} | {'; '.join(filter(None, shown))} |\n"
            yield "\n"


def merge(runs: list[Path]) -> None:
    """Take over what recorded runs saw of the names on the pages, one run of each generation and part of the suite."""
    wanted = {twin(name) for page in PAGES.values() for name in page}
    kept: dict[str, dict[str, list[str]]] = json.loads(RECORDED.read_text())
    for run in runs:
        seen = {name: found for name, found in json.loads(run.read_text()).items() if name in wanted}
        kept[run.stem] = dict(sorted({**kept.get(run.stem, {}), **seen}.items()))
    RECORDED.write_text(json.dumps(kept, indent=1) + "\n")
