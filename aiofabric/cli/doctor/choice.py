"""The provider that `connect` and `listen` choose for each address of this host, and the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aiofabric.cli.doctor.findings import Finding, Level
from aiofabric.cli.doctor.interfaces import interfaces
from aiofabric.cli.doctor.probe import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["choices", "found", "reached"]

_ADDRESS = "{address}"  # stands in a text until it is known which addresses share it


def choices() -> dict[str, dict[str, Any]]:
    """The answer for each local address. A crash loses only the answer of its address."""
    addresses = [each.address for each in interfaces()]
    together = ask("choice", *addresses)
    if not together.failure:
        return dict(together.answer["choices"])
    return {address: _alone(address) for address in addresses}


def _alone(address: str) -> dict[str, Any]:
    report = ask("choice", address)
    return {"failure": report.failure} if report.failure else report.answer["choices"][address]


def found(answers: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    """A finding for all local addresses with the same answer."""
    alike: dict[Finding, list[str]] = {}
    for address, answer in answers.items():
        alike.setdefault(_finding(answer), []).append(address)
    for finding, addresses in alike.items():
        yield replace(finding, text=finding.text.replace(_ADDRESS, ", ".join(addresses)))


def reached(host: str) -> tuple[dict[str, Any], Finding]:
    """The answer for connections to another host, and its finding."""
    report = ask("reach", host)
    answer = report.answer if not report.failure else {"failure": report.failure}
    finding = _finding(answer)
    where = f"{host} (from {answer['source']})" if answer.get("source") else host
    return answer, replace(finding, text=finding.text.replace(_ADDRESS, where))


def _finding(answer: dict[str, Any]) -> Finding:
    name = answer.get("provider")
    if name is None:
        text = f"no connection for {_ADDRESS}: {answer['failure']}"
        return Finding(Level.WARNING, "connect", text, "aiofabric info lists the addresses that providers have")
    text = f"chooses {name} for {_ADDRESS}: {_reason(answer)}"
    if answer.get("failure"):
        text += f"; but no connection over it: {answer['failure']}"
        cure = f"name another provider on both sides, connect(..., provider=...); fi_{name}(7) has its requirements"
        return Finding(Level.WARNING, "connect", text, cure)
    failed = [other for other, why in answer["left_out"].items() if why]
    if failed:
        cure = f"the man page fi_{failed[0]}(7) lists the requirements of that provider"
        return Finding(Level.WARNING, "connect", text, cure)
    return Finding(Level.OK, "connect", text)


def _reason(answer: dict[str, Any]) -> str:
    if not answer["connected"]:
        reason = "no provider has connected endpoints here, and this is the first with reliable datagrams"
    elif answer["device"] and answer["after"]:
        others = ", ".join(answer["after"])
        reason = f"it belongs to the device {answer['domain']}, which libfabric offers before {others}"
    else:
        reason = "libfabric's first offer of connected endpoints"
    for other, why in answer["left_out"].items():
        reason += f"; {other} is " + (f"left out: {why}" if why else "used only if a program names it")
    return reason
