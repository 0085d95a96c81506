"""Runs every check of every offer, on every libfabric and every loop, and stores the answers in recorded.json."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aiofabric import EndpointType
from tests.fixtures.libraries import CHOICE, libraries
from tests.fixtures.providers import RDMA_HOST
from tests.matrix.checks import CHECKS
from tests.matrix.loops import LOOPS
from tests.matrix.probe import BROKEN, HANGS, NO_ANSWER, ask

RECORDED = Path(__file__).parent / "recorded.json"
AT_ONCE = 2 if RDMA_HOST else 6  # most of a cell is waiting

_OFFERS = """
import json, aiofabric
kinds = (aiofabric.EndpointType.MSG, aiofabric.EndpointType.RDM, aiofabric.EndpointType.DGRAM)
found = {}
for info in aiofabric.getinfo():
    name, kind = info.fabric_attr.prov_name, info.ep_attr.type
    if kind in kinds:
        found.setdefault(f"{name} {kind.name}", []).append(int(info.domain_attr.mr_mode))
print(json.dumps([str(aiofabric.library_version()), {key: sorted(set(modes)) for key, modes in found.items()}]))
"""


def offers(library: str | None) -> tuple[str, dict[str, list[int]]]:
    """Version of a libfabric; what its providers offer, with the registration modes that they ask for."""
    environment = os.environ | ({CHOICE: library} if library else {})
    ended = subprocess.run([sys.executable, "-c", _OFFERS], env=environment, capture_output=True, text=True, check=True)
    version, found = json.loads(ended.stdout)
    return version, found


def record(only: Sequence[str] = ()) -> None:
    """Ask every offer, or ``only`` some ("tcp MSG"), and keep the answers, offer by offer.

    A probe that fails of its own accord stops it, for it says nothing about a provider.
    """
    recorded: dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    here = [(library, *offers(library)) for library in libraries().values()]
    wanted = only or sorted({offer for _, _, found in here for offer in found})
    for offer in wanted:
        for library, version, found in here:
            run = recorded.setdefault(version, {"modes": {}, "cells": {}})
            run["modes"].update(found)
            if offer in found:
                run["cells"][offer] = _asked(library, offer)
                RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")


def _asked(library: str | None, offer: str) -> dict[str, dict[str, str]]:
    provider, kind = offer.split()
    jobs = [(check, loop) for check, (_, kinds) in CHECKS.items() if EndpointType[kind] in kinds for loop in LOOPS]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda job: ask(library, provider, kind, job[1], job[0]), jobs))
    cells: dict[str, dict[str, str]] = {}
    for (check, loop), answer in zip(jobs, answers, strict=True):
        # On a busy machine an answer may come too late: who gave none is asked again, alone.
        final = ask(library, provider, kind, loop, check) if answer in (NO_ANSWER, HANGS) else answer
        if final.startswith(BROKEN):
            raise SystemExit(f"{offer} on {loop}, {check}: {final}")
        print(f"{offer} on {loop}, {check}: {final}", flush=True)
        cells.setdefault(check, {})[loop] = final
    return cells
