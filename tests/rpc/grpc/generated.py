"""The modules that protoc generates of interop.proto, with grpcio's plugin."""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from grpc_tools import protoc

__all__ = ["pb2", "pb2_grpc"]


def _compiled() -> tuple[Any, Any]:
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{here}", f"--python_out={folder}", f"--grpc_python_out={folder}", "interop.proto"]
        assert protoc.main(arguments) == 0
        sys.path.insert(0, folder)
        try:
            return importlib.import_module("interop_pb2"), importlib.import_module("interop_pb2_grpc")
        finally:
            sys.path.remove(folder)


pb2, pb2_grpc = _compiled()
