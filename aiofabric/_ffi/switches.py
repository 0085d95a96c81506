"""The environment variable that switches workarounds on and off; the table is in ``aiofabric/workarounds.py``.

It is read here because one workaround acts before libfabric is loaded.
"""

from __future__ import annotations

import os

__all__ = ["VARIABLE", "asked_for"]

VARIABLE = "AIOFABRIC_WORKAROUNDS"


def asked_for(name: str) -> bool | None:
    """Whether the environment switches a workaround on (True) or off (False); None if it does not name it.

    The variable is a list such as ``no-pacing,orphaned_entries``. ``none`` switches off all that are not named.
    """
    words = [word.strip() for word in os.environ.get(VARIABLE, "").split(",")]
    if f"no-{name}" in words:
        return False
    if name in words:
        return True
    return False if "none" in words else None
