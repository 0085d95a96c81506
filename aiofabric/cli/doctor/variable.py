"""The environment variables of a report. The values of those that authorize are left out."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["LEFT_OUT", "environment", "remove", "secrets"]

LEFT_OUT = "left out"

_OF_INTEREST = re.compile(
    # libfabric and its providers, the devices' own libraries, and what launchers say about the job
    r"(FI|AIOFABRIC|SLINGSHOT|CXI|RDMAV|IBV|MLX[45]|EFA|PSM[23]?|HFI|OPX|UCX|NCCL|RDMA)_"
    r"|(SLURM|OMPI|PMI|PMIX|PRTE|PALS|MPI|MPICH|I_MPI|HYDRA|FLUX|PBS|LSB|JSM)_"
    r"|LD_(LIBRARY_PATH|PRELOAD)$|PYTHONASYNCIODEBUG$|PYTHONMALLOC$|CUDA_VISIBLE_DEVICES$|OMP_NUM_THREADS$"
)
_AUTHORIZES = re.compile(
    # On Slingshot, service ids and VNIs are the authorization. PSM's and OPX's UUID, and Open MPI's transport key in
    # precondition_transports, keep jobs apart.
    r"KEY|TOKEN|CRED|AUTH|VNI|SVC|SECRET|PASSW|COOKIE|JWT|UUID|NONCE|PRECONDITION_TRANSPORTS",
    re.IGNORECASE,
)
_LONG_ENOUGH = 4  # characters: a shorter value is part of too many other texts


def environment(variables: dict[str, str]) -> dict[str, str]:
    """The variables that matter, by name."""
    return {
        name: LEFT_OUT if _AUTHORIZES.search(name) else value
        for name, value in sorted(variables.items())
        if _OF_INTEREST.match(name)
    }


def secrets(variables: dict[str, str]) -> list[str]:
    """The values that must not be in a report, also if another text quotes one. The longest come first."""
    whole = {value for name, value in variables.items() if _AUTHORIZES.search(name)}
    parts = {part for value in whole for part in re.split(r"[,;:\s]", value)}  # a list of VNIs
    return sorted((value for value in whole | parts if len(value) >= _LONG_ENOUGH), key=len, reverse=True)


def remove(values: list[str], item: Any) -> Any:
    """A copy of JSON values without these texts, and without the authorization keys of offers."""
    match item:
        case str():
            for value in values:
                item = item.replace(value, LEFT_OUT)
            return item
        case list():
            return [remove(values, each) for each in item]
        case dict():
            return {
                name: LEFT_OUT if name == "auth_key" and each else remove(values, each) for name, each in item.items()
            }
        case _:
            return item
