"""Imports of grpcio: only interfaces and plain values are used, and no channel, server or event loop of grpcio."""

from __future__ import annotations

from ..protocol.status import StatusCode

try:
    import grpc
    import grpc.aio
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError(
        "aiofabric.rpc.grpc uses grpcio's status codes, handlers and base classes, and grpcio cannot be imported"
        f" ({error}). Install it in a clone of aiofabric: pip install '.[rpc-grpc]'"
    ) from error

__all__ = ["CODES", "EOF", "aio", "code_number", "grpc"]

aio = grpc.aio
EOF = aio.EOF

CODES = {code.value[0]: code for code in grpc.StatusCode}
"""The members of StatusCode by their numbers."""


def code_number(code: object) -> int:
    """The number of a status code that may be a member of StatusCode or a number; UNKNOWN for anything else."""
    if isinstance(code, int):
        return code if code in CODES else StatusCode.UNKNOWN
    value = getattr(code, "value", None)
    if isinstance(value, tuple) and value and value[0] in CODES:
        return int(value[0])
    return StatusCode.UNKNOWN
