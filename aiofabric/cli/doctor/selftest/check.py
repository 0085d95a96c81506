"""One check: its measuring side in a process with a time limit, and its result."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aiofabric import __version__
from aiofabric.cli.doctor.findings import Finding, Level
from aiofabric.cli.doctor.probe import ENDED_BY, Report, ask
from aiofabric.cli.doctor.selftest.options import DESCRIBE, CheckOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CheckResult", "describe_peer", "run_check"]

_SIDE = "aiofabric.cli.doctor.selftest.side"
_CONNECT, _ANSWER = 10.0, 30.0  # seconds
_UNITS = (("MiB", 1 << 20), ("KiB", 1 << 10))


@dataclass(frozen=True)
class CheckResult:
    """The outcome is ``ok``, ``failed``, ``crashed``, ``timed out`` or ``not supported``."""

    options: CheckOptions
    outcome: str
    text: str = ""
    seconds: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The result as in the report."""
        return {
            "provider": self.options.provider,
            "kind": self.options.kind,
            "check": self.options.check,
            "outcome": self.outcome,
            "text": self.text,
            "seconds": round(self.seconds, 3),
            "figures": dict(self.figures),
        }

    def finding(self) -> Finding:
        """The result as a line."""
        level = Level.OK if self.outcome in ("ok", "not supported") else Level.FAILURE
        parts = [", ".join(_words(name, value) for name, value in self.figures.items())]
        if self.outcome != "ok":
            parts.append(f"{self.outcome}: {self.text}")
        return Finding(level, self.options.check, "; ".join(filter(None, parts)))


def run_check(options: CheckOptions, host: str, port: int, limit: float) -> CheckResult:
    """Run one check with the server at this address."""
    start = perf_counter()
    arguments = (options.provider, options.kind, options.check, json.dumps(options.sizes), str(options.idle))
    try:
        # Connected here, so that the two sides start at the same time.
        with socket.create_connection((host, port), _CONNECT) as connection:
            report = ask("lead", *arguments, module=_SIDE, timeout=limit, stdin=connection.fileno())
    except OSError as error:
        report = Report(failure=f"no connection to {host}, port {port}: {error.strerror or error}")
    seconds, figures = perf_counter() - start, report.answer.get("figures", {})
    if unsupported := report.answer.get("unsupported"):
        return CheckResult(options, "not supported", unsupported, seconds, figures)
    if report.failure:
        by_signal = report.crashed or f"the other side failed: {ENDED_BY}" in report.failure
        outcome = "crashed" if by_signal else "timed out" if report.silent else "failed"
        return CheckResult(options, outcome, report.failure, seconds, figures)
    return CheckResult(options, "ok", "", seconds, figures)


def describe_peer(host: str, port: int) -> dict[str, Any]:
    """The other host's part of the report.

    Raises:
        ConnectionError: no self-test is served there; the text says how to start it.
    """
    where = f"{host}, port {port}"
    start_it = f"run there: aiofabric doctor --serve -P {port}"
    try:
        with socket.create_connection((host, port), _CONNECT) as connection:
            connection.settimeout(_ANSWER)
            options = CheckOptions("", "", DESCRIBE, [], 0.0)
            connection.sendall(json.dumps(options._asdict()).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline())
    except TimeoutError:
        raise ConnectionError(f"no answer from {where}; {start_it}") from None
    except OSError as error:
        raise ConnectionError(f"no self-test is served at {where}: {error.strerror or error}; {start_it}") from None
    except ValueError:
        raise ConnectionError(f"the answer from {where} is not one of a self-test; {start_it}") from None
    if isinstance(answer, dict) and "failure" in answer:
        raise ConnectionError(f"{where} cannot serve a self-test: {answer['failure']}")
    try:
        theirs = answer["versions"]["aiofabric"]
        answer["offers"]
    except (KeyError, TypeError):
        raise ConnectionError(f"the answer from {where} is not one of a self-test; {start_it}") from None
    if theirs != __version__:
        raise ConnectionError(f"{where} has aiofabric {theirs}, and this host {__version__}: they must be the same")
    return dict(answer)


def _words(name: str, value: Any) -> str:
    if name.isdecimal():
        return f"{_size(int(name))} {_duration(value)}"
    if name.endswith("_us"):
        return f"{name.removesuffix('_us')} {'not supported' if value is None else _duration(value)}"
    if name.endswith("_ms"):
        return f"{name.removesuffix('_ms')} {value} ms"
    return f"{name.removesuffix('_s')} {value}{' s' if name.endswith('_s') else ''}"


def _size(count: int) -> str:
    for unit, size in _UNITS:
        if count >= size:
            return f"{count // size} {unit}"
    return f"{count} B"


def _duration(microseconds: float) -> str:
    return f"{microseconds:.0f} us" if microseconds < 1000 else f"{microseconds / 1000:.1f} ms"
