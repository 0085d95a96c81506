"""Programs that run on grpc.aio and on `aiofabric.rpc.grpc` without a change, and return their observations.

Each is an async function of the module that stands for grpc.aio. Its result can be pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.rpc.grpc.programs import calls, interceptors, mistakes, packages, servers, streams

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["PROGRAMS"]


def _of(module: ModuleType) -> dict[str, Any]:
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": function
        for name, function in vars(module).items()
        if getattr(function, "__module__", "") == module.__name__ and getattr(function, "program", False)
    }


PROGRAMS: dict[str, Any] = {
    name: function
    for module in (calls, streams, interceptors, servers, packages, mistakes)
    for name, function in _of(module).items()
}
