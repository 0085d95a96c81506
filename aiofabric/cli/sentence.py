"""Errors as users want them: a sentence, no traceback."""

from __future__ import annotations

__all__ = ["reason", "sentence"]


def reason(error: BaseException) -> BaseException:
    """The first error of a task group, which the others followed from."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def sentence(error: BaseException) -> str:
    """What went wrong. The errors that are made for people speak for themselves; others say their kind, too."""
    error = reason(error)
    text = str(error)
    return text if text and isinstance(error, OSError | ImportError | ValueError) else f"{type(error).__name__}: {text}"
