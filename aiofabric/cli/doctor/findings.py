"""Findings of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Level"]


class Level(Enum):
    """The severity, with the word that is shown."""

    OK = "ok"
    WARNING = "warn"
    """Something that only some programs need will not work, or not well."""
    FAILURE = "FAIL"
    """aiofabric does not work here."""


@dataclass(frozen=True)
class Finding:
    """The result of one check; a problem has a remedy."""

    level: Level
    subject: str
    text: str
    cure: str = ""
