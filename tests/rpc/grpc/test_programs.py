"""Programs for grpc.aio see the same on `aiofabric.rpc.grpc`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aiofabric.rpc import grpc as ours
from tests.fixtures.children import Child
from tests.rpc.grpc.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.children import Parent

pytestmark = pytest.mark.anyio

TIMEOUT = 45.0


async def run_on_grpc(parent: Parent) -> dict[str, Any]:
    """Run all programs on the real grpc.aio."""
    import grpc.aio

    found = {}
    for name, program in PROGRAMS.items():
        with anyio.fail_after(30):
            found[name] = await program(grpc.aio)
    return found


@pytest.fixture(scope="module")
def of_grpc() -> Iterator[dict[str, Any]]:
    """The results on the real grpc.aio, from a process of its own."""
    child = Child(run_on_grpc, backend=("asyncio", {"use_uvloop": False}))
    yield child.result(TIMEOUT)
    child.close()


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_sees_the_same_as_on_grpc(name: str, of_grpc: dict[str, Any]) -> None:
    with anyio.fail_after(30):
        assert await PROGRAMS[name](ours) == of_grpc[name]
