"""A provider whose queue opens with a descriptor, but has no fi_trywait (ucx): the queue is polled."""

from __future__ import annotations

import pytest

from aiofabric import Domain, Fabric, FabricAttr, Hints, getinfo
from aiofabric._ffi import constants
from aiofabric.cq.queue import CompletionQueue
from tests.fixtures.broken_fabric import broken_trywait
from tests.fixtures.internals import handle_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("code", "waits"), [(0, True), (-constants.FI_EAGAIN, True), (-constants.FI_ENOSYS, False)])
async def test_such_a_descriptor_is_not_used(code: int, waits: bool) -> None:
    info = getinfo("127.0.0.1", 0, hints=Hints(fabric_attr=FabricAttr(prov_name="tcp")))[0]
    with Fabric(info) as fabric, Domain(info, fabric) as domain, broken_trywait(handle_of(fabric).fid) as answer:
        answer(code)
        with CompletionQueue(domain) as queue:
            assert (queue.fileno() is not None) is waits
