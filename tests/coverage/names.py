"""The names on libfabric's pages, and the part of aiofabric that stands for each."""

# Privates: `_prefix` of a family of constants is what the page puts before its names.

import json
from functools import cache
from pathlib import Path

from aiofabric import flags
from aiofabric.flags import attributes
from aiofabric.flags.family import Choice, Flags

HERE = Path(__file__).parent
PAGES: dict[str, list[str]] = json.loads((HERE / "names.json").read_text())
HOW = ("called", "had", "error", "refused", "ours", "worded")
"""How a test exercises a name, the strongest first; docs/coverage.md explains."""


def spelled(family: type[Flags] | type[Choice], name: str) -> str:
    """libfabric's spelling of a member."""
    return f"{family._prefix}{name}"


@cache
def members() -> dict[str, list[str]]:
    """The members that carry each constant, those included that the headers at hand lack."""
    found: dict[str, list[str]] = {}
    for module in (flags, attributes):
        for family in vars(module).values():
            if not (isinstance(family, type) and issubclass(family, Flags | Choice)) or family in (Flags, Choice):
                continue
            for name in vars(family):
                if name.isupper() and not name.startswith("_"):
                    path = f"{family.__module__}.{family.__qualname__}.{name}"
                    if path not in found.setdefault(spelled(family, name), []):
                        found[spelled(family, name)].append(path)
    return found
