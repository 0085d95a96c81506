"""A completion queue that cannot be opened, that has no wait descriptor, or that cannot be read."""

# Privates: a queue is read as a source reads it, and through its own pointer.
# Doubles: the provider refuses a call, and reports of the driver are collected; on trio they go to a log only.

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import CompletionQueue, EndpointType, EpAttr, FabricAttr, FabricError, Hints, Waiting
from aiofabric._ffi import address_of, constants, lib
from tests.fixtures.broken_fabric import broken_read
from tests.fixtures.internals import source_of
from tests.fixtures.providers import Pair, over
from tests.fixtures.through_python import ask_queues_through_python

provider = over(["tcp"])

BROKEN = ("fi_cq_read", constants.FI_EIO)


@pytest.fixture
def domain() -> Iterator[aiofabric.Domain]:
    info = aiofabric.getinfo(
        hints=Hints(fabric_attr=FabricAttr(prov_name="tcp"), ep_attr=EpAttr(type=EndpointType.MSG))
    )[0]
    with aiofabric.Fabric(info) as fabric, aiofabric.Domain(info, fabric) as opened:
        yield opened


def test_a_queue_that_cannot_be_opened_is_an_error_of_the_call(
    domain: aiofabric.Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[int] = []

    def refuse(_: Any, attr: Any, *rest: Any) -> int:
        wanted.append(attr.wait_obj)
        return -constants.FI_ENOMEM

    monkeypatch.setattr(lib, "fi_cq_open", refuse)
    with pytest.raises(FabricError) as caught:
        CompletionQueue(domain)
    assert (caught.value.call, caught.value.errno) == ("fi_cq_open", constants.FI_ENOMEM)
    assert wanted == [constants.FI_WAIT_FD, constants.FI_WAIT_NONE]


def test_a_queue_without_its_promised_descriptor_is_closed_and_opened_without_one(
    domain: aiofabric.Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    closed: list[Any] = []
    open_queue, close = lib.fi_cq_open, lib.fi_close

    def note(*arguments: Any) -> Any:
        rc = open_queue(*arguments)
        opened.append(arguments[2][0])
        return rc

    def close_and_note(fid: Any) -> Any:
        closed.append(fid)
        return close(fid)

    monkeypatch.setattr(lib, "fi_cq_open", note)
    monkeypatch.setattr(lib, "fi_close", close_and_note)
    monkeypatch.setattr(lib, "fi_control", lambda *_: -constants.FI_ENOSYS)
    with CompletionQueue(domain) as queue:
        assert queue.fileno() is None
        assert len(opened) == 2
        assert list(map(address_of, closed)) == [address_of(opened[0])]
        assert queue.read() == ()
        assert queue.read_error() is None
    assert repr(queue).endswith("fd=None closed>")


def test_a_read_that_fails_is_an_error_of_the_call(domain: aiofabric.Domain) -> None:
    with CompletionQueue(domain) as queue:
        assert queue.read() == ()
        with broken_read(queue._cq) as answer:
            answer(-constants.FI_EIO)
            with pytest.raises(FabricError) as caught:
                queue.read()
            assert (caught.value.call, caught.value.errno) == BROKEN
            answer(-constants.FI_EAVAIL)
            assert queue.read() is None


@pytest.mark.anyio
@pytest.mark.parametrize("native", [True, False])
async def test_a_connection_goes_on_after_reads_that_failed(
    pair: Pair, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        ask_queues_through_python(monkeypatch)
    async with pair(waiting=Waiting.FD) as (one, other), anyio.create_task_group() as tasks:
        source = source_of(one)
        reported: list[Any] = []
        monkeypatch.setattr(source.driver, "report", lambda _, error: reported.append(error))
        got: list[Any] = []

        async def receive() -> None:
            got.append(await one.recv())

        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        with broken_read(source.queue._cq) as answer:
            answer(-constants.FI_EIO)
            source.touch()
            with anyio.fail_after(5):
                while len(reported) < 3:  # each pass is followed by another one
                    await anyio.lowlevel.checkpoint()
        assert {(error.call, error.errno) for error in reported} == {BROKEN}
        assert got == []
        await other.send(b"afterwards")
    assert got == [b"afterwards"]


def test_a_queue_of_a_closed_domain_is_not_opened(domain: aiofabric.Domain) -> None:
    domain.close()
    with pytest.raises(anyio.ClosedResourceError, match="this Domain is closed"):
        CompletionQueue(domain)
