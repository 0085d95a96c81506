"""grpc.aio's interface runs on the loops of asyncio."""

from typing import Any

import pytest

from tests.fixtures.loops import LOOPS


@pytest.fixture(params=LOOPS[:2])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """asyncio and uvloop."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend
