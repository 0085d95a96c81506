"""The object of a program that a command serves or runs, named as ``module:attribute``."""

from __future__ import annotations

from importlib import import_module
from traceback import extract_tb
from typing import Any

__all__ = ["load"]


def load(name: str) -> Any:
    """Import the module, and return its attribute, which may have dots.

    Raises:
        ImportError: there is no such module or attribute, or the module raised an error; the text has its line.
    """
    module, _, attribute = name.partition(":")
    try:
        found = import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise  # the module itself is not there
        where = extract_tb(error.__traceback__)[-1]
        text = f"{module} cannot be imported: {type(error).__name__}: {error} ({where.filename}, line {where.lineno})"
        raise ImportError(text) from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ImportError(f"no {attribute!r} in {module!r}") from error
    return found
