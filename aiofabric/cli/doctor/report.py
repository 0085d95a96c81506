"""A report for the project, in one JSON file: this host, its peer, and the results of a self-test between them.

The keys are stable: a later version may add some. ``format`` changes if one gets another meaning.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiofabric.cli.doctor import choice
from aiofabric.cli.doctor.findings import Finding, Level
from aiofabric.cli.doctor.host import describe_system, variables
from aiofabric.cli.doctor.output import show
from aiofabric.cli.doctor.probe import ask
from aiofabric.cli.doctor.selftest.check import describe_peer, run_check
from aiofabric.cli.doctor.selftest.selection import checks, providers_of
from aiofabric.cli.doctor.selftest.server import in_thread
from aiofabric.cli.doctor.variable import remove, secrets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["make_report"]

_FORMAT = 1


def make_report(options: argparse.Namespace, examine: Callable[[], Iterable[Finding]]) -> int:
    """Examine this host, run the self-test, and write the file; return the exit status.

    Args:
        examine: yields the findings about this host. They use libfabric in this process.
    """
    peer = describe_peer(options.peer, options.port) if options.peer else None
    described = ask("describe")
    failure = described.failure
    host = described.answer if not failure else describe_system() | {"offers": [], "failure": failure}
    providers = providers_of(host["offers"], options.provider, None if peer is None else peer["offers"])
    report: dict[str, Any] = {
        "format": _FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": {"peer": options.peer, "providers": providers, "idle": options.idle, "limit": options.limit},
        "host": host,
        "peer": peer,
        "choices": {},
        "findings": [],
        "checks": [],
    }
    failures = 0
    with _written(options.report, report):
        for finding in _findings(report, options.peer, examine):
            show(finding)
            failures += finding.level is Level.FAILURE
            report["findings"].append(_as_json(finding))
        for finding in _self_test(report, providers, options):
            show(finding)
            failures += finding.level is Level.FAILURE
    count = len(report["checks"])
    print(f"\n{options.report}: {count} checks, {failures or 'no'} failure{'' if failures == 1 else 's'}")
    return 1 if failures else 0


@contextmanager
def _written(path: str, report: dict[str, Any]) -> Iterator[None]:
    """Check first that the file can be written, and write it at the end, also if Ctrl-C ends the checks."""
    with _sentence(path):
        Path(path).touch()
    try:
        yield
    finally:
        text = json.dumps(remove(secrets(variables()), report), indent=1)
        with _sentence(path), open(path, "w", encoding="utf-8") as file:
            print(text, file=file)


@contextmanager
def _sentence(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(f"cannot write the report to {path}: {error.strerror}") from error


def _findings(report: dict[str, Any], peer: str | None, examine: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    if failure := report["host"].get("failure"):
        # libfabric crashed or stopped the probe, and would do the same to this process.
        yield Finding(Level.FAILURE, "fi_getinfo", failure, "FI_LOG_LEVEL=info aiofabric info shows the last step")
        return
    yield from examine()
    report["choices"] = choice.choices()
    yield from choice.found(report["choices"])
    if peer is not None:
        report["choices"][peer], finding = choice.reached(peer)
        yield finding


def _self_test(report: dict[str, Any], providers: list[str], options: argparse.Namespace) -> Iterator[Finding]:
    with ExitStack() as stack:
        if options.peer:
            host, port = options.peer, options.port
        else:
            host, port = "127.0.0.1", stack.enter_context(in_thread())
        kind = ""
        for provider in providers:
            for check in checks(report["host"]["offers"], provider, options.check, options.idle):
                if kind != (kind := f"{check.provider}, {check.kind}"):
                    print(f"\n{kind}:", flush=True)
                result = run_check(check, host, port, options.limit)
                report["checks"].append(result.as_json())
                yield result.finding()


def _as_json(finding: Finding) -> dict[str, str]:
    return {
        "level": finding.level.value,
        "subject": finding.subject,
        "text": finding.text,
        "cure": finding.cure,
    }
