"""The server of the interoperability cases, in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiofabric.rpc import grpc as aio
from tests.rpc.grpc.service import started

if TYPE_CHECKING:
    from tests.fixtures.children import Parent

__all__ = ["serve"]


async def serve(parent: Parent, provider: str) -> None:
    """Send the target; any message ends the server."""
    async with started(aio, options=[("aiofabric.provider", provider)]) as (_, target):
        parent.tell(target)
        await parent.areceive()
