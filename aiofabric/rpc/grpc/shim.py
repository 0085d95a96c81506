"""stand_in: let programs that import `grpc.aio` by name use this package instead."""

from __future__ import annotations

import sys
from types import ModuleType

from .. import grpc as ours
from .grpcio import aio, grpc

__all__ = ["stand_in"]


def stand_in() -> None:
    """Replace `grpc.aio` and `grpc.experimental.aio` in this process. Call it before modules that import from them.

    Names that this package does not have, such as gRPC's private modules with base classes, stay gRPC's.
    """
    import grpc.experimental as experimental

    module = ModuleType("grpc.aio", aio.__doc__)
    module.__dict__.update({name: value for name, value in vars(aio).items() if name != "__name__"})
    module.__dict__.update({name: getattr(ours, name) for name in aio.__all__})
    sys.modules["grpc.aio"] = sys.modules["grpc.experimental.aio"] = module
    grpc.aio = experimental.aio = module
