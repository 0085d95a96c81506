"""Providers that write no tags (verbs until 1.18, efa-direct): their completions are read all the same."""

# Doubles: fi_cq_open refuses FI_CQ_FORMAT_TAGGED, as these providers do.

from __future__ import annotations

from typing import Any

import pytest

from aiofabric import Access
from aiofabric._ffi import constants, lib
from aiofabric.cq import queue
from tests.fixtures.providers import connected_pair

pytestmark = pytest.mark.anyio


class WithoutTags:
    """The library, of which fi_cq_open refuses entries with a tag."""

    def __init__(self) -> None:
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)

    def fi_cq_open(self, domain: Any, attr: Any, out: Any, context: Any) -> int:
        if attr.format == constants.FI_CQ_FORMAT_TAGGED:
            self.refused += 1
            return -int(constants.FI_ENOSYS)
        return int(lib.fi_cq_open(domain, attr, out, context))


async def test_messages_and_memory_arrive_over_such_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    library = WithoutTags()
    monkeypatch.setattr(queue, "lib", library)
    async with connected_pair("tcp", {}) as (one, other):
        assert library.refused
        for number in range(200):  # more than the entries of one read
            await one.send(bytes([number]) * number, remote_data=number)
        for number in range(200):
            message = await other.recv()
            assert (message, message.remote_data) == (bytes([number]) * number, number)
        memory = bytearray(100_000)
        with other.domain.register(memory, access=Access.REMOTE_WRITE | Access.REMOTE_READ) as region:
            await one.write(b"x" * len(memory), region.remote)
            assert await one.read(region.remote) == b"x" * len(memory)
