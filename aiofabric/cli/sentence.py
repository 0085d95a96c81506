"""Errors as one sentence, without a traceback."""

from __future__ import annotations

__all__ = ["reason", "sentence"]


def reason(error: BaseException) -> BaseException:
    """The first error of a task group; the others followed from it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def sentence(error: BaseException) -> str:
    """The text of an error, with its class unless the text is made for users."""
    error = reason(error)
    text = str(error)
    return text if text and isinstance(error, OSError | ImportError | ValueError) else f"{type(error).__name__}: {text}"
