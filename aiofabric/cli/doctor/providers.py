"""Tests of all providers: messages back and forth over loopback, each provider in a process of its own.

They run one after the other, because parallel tests would slow each other down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiofabric.cli.doctor.findings import Finding, Level
from aiofabric.cli.doctor.probe import Report, ask
from aiofabric.errors import NoProviderError
from aiofabric.features import Quirk, quirks
from aiofabric.flags import EndpointType
from aiofabric.info import Info, getinfo

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SPEED", "providers"]

SPEED = (
    "Round trips are between two endpoints of one process. They show that a provider works, not how fast it is between "
    "two: aiofabric bench measures that, for example with -p shm."
)
_SLOW = 1000  # microseconds

_KINDS = (EndpointType.MSG, EndpointType.RDM, EndpointType.DGRAM)


def providers() -> Iterator[Finding]:
    """One finding for each provider and type of endpoint, in libfabric's order."""
    try:
        found = getinfo()
    except NoProviderError as error:
        yield Finding(
            Level.FAILURE, "providers", str(error),
            "unset FI_PROVIDER if it is set; otherwise install a libfabric with the tcp provider",
        )  # fmt: skip
        return
    offers = {(info.fabric_attr.prov_name, info.ep_attr.type): info for info in reversed(found)}
    offers = {key: info for key, info in reversed(offers.items()) if key[1] in _KINDS}
    for (name, kind), info in offers.items():
        yield _finding(info, ask("echo", name, kind.name))


def _finding(info: Info, report: Report) -> Finding:
    name, kind = info.fabric_attr.prov_name, info.ep_attr.type.name.lower()
    subject = f"{name} {kind}"
    if report.failure:
        # A failure of a provider that aiofabric never chooses by itself is only a warning.
        level = Level.WARNING if Quirk.NO_WAIT_FD in quirks(info) else Level.FAILURE
        cure = (
            f"choose another provider; the man page fi_{name.rpartition('ofi_')[2]}(7) lists the requirements of "
            "this provider"
        )
        return Finding(level, subject, f"no echo over loopback: {report.failure}", cure)
    time = f"64 B round trip {_duration(report.answer['microseconds'])}"
    waits = "polled (has no descriptor)" if report.answer["waiting"] == "poll" else "waits on a descriptor"
    if taken := report.answer["signals"]:
        return Finding(
            Level.WARNING,
            subject,
            f"{waits}; {time}; its first endpoint takes over {' '.join(taken)}",
            "open the first endpoint of this provider before you install signal handlers (loop.add_signal_handler)",
        )
    if report.answer["microseconds"] >= _SLOW and Quirk.NO_WAIT_FD in quirks(info):
        time += ", because it is polled every few milliseconds; it is used only if a program names it"
    return Finding(Level.OK, subject, f"{waits}; {time}")


def _duration(microseconds: float) -> str:
    return f"{microseconds:.0f} us" if microseconds < 1000 else f"{microseconds / 1000:.1f} ms"
