"""Messages as bytes."""

from __future__ import annotations

from ..._core import serialized

__all__ = ["serialized"]
