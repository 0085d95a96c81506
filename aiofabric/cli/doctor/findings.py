"""What the doctor finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Level"]


class Level(Enum):
    """How bad it is, in the word that is shown."""

    OK = "ok"
    WARNING = "warn"
    """Something will not work, or not well, that not everybody needs."""
    FAILURE = "FAIL"
    """aiofabric does not work here."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; what is not well has a cure."""

    level: Level
    subject: str
    text: str
    cure: str = ""
