"""Arrays with DLPack or CUDA's array interface as local memory: used if they are registered, refused with a sentence
otherwise.

No GPU is here. shm has FI_HMEM, and moves the bytes of registered arrays in host memory. Recorded offers stand for
devices; no byte is moved over these.
"""

# Privates: the memory of a read or write is made by a function of the module.

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aiofabric
from aiofabric import (
    Access,
    Caps,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
    Info,
    NotSupportedError,
    OpFlags,
    RdmEndpoint,
)
from aiofabric._ffi import constants, ffi
from aiofabric.device_memory import memory_kind
from aiofabric.memory import pin
from aiofabric.regions import RegionTable
from aiofabric.transport.buffers import acquire_rma_parts
from aiofabric.transport.rma.rma import RegisteredArray, _local
from tests.fixtures.internals import handle_of
from tests.test_device_memory import CudaArray, OnlyDlpack
from tests.transport.opening.recorded import Fabrics, Offer, cxi, efa, opx, psm, tcp, verbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.providers import Pair

BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE
HMEM = Caps.MSG | Caps.RMA | Caps.HMEM
anyio_test = pytest.mark.anyio


class OnMetal(OnlyDlpack):
    def __dlpack_device__(self) -> tuple[int, int]:
        return 8, 0


@asynccontextmanager
async def two() -> AsyncIterator[tuple[RdmEndpoint, RdmEndpoint, Any]]:
    """Two endpoints of shm with FI_HMEM, and the peer of the first one."""
    hints = Hints(caps=HMEM, fabric_attr=FabricAttr(prov_name="shm"), ep_attr=EpAttr(type=EndpointType.RDM))
    async with (
        aiofabric.open_endpoint(EndpointType.RDM, hints=hints) as near,
        aiofabric.open_endpoint(EndpointType.RDM, hints=hints) as far,
    ):
        yield near, far, await near.add_peer(far.local_address)


# -- the bytes of registered arrays


@anyio_test
@pytest.mark.parametrize("size", [8, 65536, 1 << 20])
async def test_a_registered_array_is_written_and_read(size: int) -> None:
    source, room, target = np.arange(size, dtype=np.uint8), np.zeros(size, np.uint8), bytearray(size)
    async with two() as (near, far, peer):
        with (
            far.domain.register(target, access=BOTH) as region,
            near.domain.register(OnlyDlpack(source)),
            near.domain.register(OnlyDlpack(room)),
        ):
            assert await near.write(OnlyDlpack(source), region.remote, to=peer) == size
            assert await near.read_into(OnlyDlpack(room), region.remote, to=peer) == size
    assert target == source.tobytes() == room.tobytes()


@anyio_test
async def test_a_part_of_a_registered_array_is_enough() -> None:
    source, target = np.arange(100, dtype=np.uint8), bytearray(100)
    async with two() as (near, far, peer):
        with far.domain.register(target, access=BOTH) as region, near.domain.register(OnlyDlpack(source)):
            assert await near.write(OnlyDlpack(source[10:20]), region.remote[:10], to=peer) == 10
            flags = OpFlags.DELIVERY_COMPLETE
            assert await near.write(OnlyDlpack(source[20:30]), region.remote[10:20], to=peer, flags=flags) == 10
            await near.read(region.remote, to=peer)
    assert target[:20] == source[10:30].tobytes()


@anyio_test
async def test_a_region_that_is_not_large_enough_or_is_closed_does_not_count() -> None:
    source, target = np.arange(100, dtype=np.uint8), bytearray(100)
    async with two() as (near, far, peer):
        with far.domain.register(target, access=BOTH) as region:
            half = near.domain.register(OnlyDlpack(source[:50]))
            with pytest.raises(TypeError, match=r"not OnlyDlpack; numpy\.from_dlpack"):
                await near.write(OnlyDlpack(source), region.remote, to=peer)
            half.close()
            with pytest.raises(TypeError, match=r"numpy\.from_dlpack"):
                await near.write(OnlyDlpack(source[:50]), region.remote[:50], to=peer)
        assert near.statistics().sends == 0


@anyio_test
async def test_injection_of_an_array_is_refused() -> None:
    array = OnlyDlpack(np.arange(8, dtype=np.uint8))
    async with two() as (near, far, peer):
        with (
            far.domain.register(bytearray(8), access=BOTH) as region,
            near.domain.register(array),
            pytest.raises(NotSupportedError, match="FI_INJECT copies host memory at once, and OnlyDlpack"),
        ):
            await near.write(array, region.remote, to=peer, flags=OpFlags.INJECT)


@anyio_test
async def test_the_descriptor_of_the_region_is_passed() -> None:
    array = OnlyDlpack(np.arange(8, dtype=np.uint8))
    async with two() as (near, far, _):
        with far.domain.register(bytearray(8), access=BOTH) as region, near.domain.register(array) as own:
            handle = handle_of(near)
            memory = _local(handle, array, Access.WRITE)
            _, [descriptor], [held] = acquire_rma_parts(handle, [(memory.pins[0], Access.WRITE)], region.remote)
            held.end_use()
            assert descriptor == handle_of(own).descriptor != ffi.NULL


# -- refusals before C is reached


@anyio_test
async def test_device_memory_without_hmem_names_the_provider(pair: Pair) -> None:
    async with pair() as (active, passive), passive.domain.register(bytearray(128), access=BOTH) as region:
        for transfer in (active.write, active.read_into):
            with pytest.raises(NotSupportedError) as found:
                await transfer(CudaArray(), region.remote)
            text = str(found.value)
            assert (
                f"FI_HMEM: Function not implemented [FI_ENOSYS]. The provider {active.info.fabric_attr.prov_name}"
                in text
            )
            assert "have it, if the hints ask for it" in text or "no provider on this machine has it" in text
            assert "copy the array to host memory first" in text
            assert found.value.__context__ is None


@anyio_test
async def test_messages_of_device_memory_are_refused_everywhere(pair: Pair) -> None:
    async with pair() as (active, passive):
        arrays: tuple[Any, ...] = (CudaArray(), CudaArray((1,)), [CudaArray(), b"bytes"])
        for array in arrays:
            for send in (active.send, passive.recv_into):
                with pytest.raises(NotSupportedError, match=r"FI_HMEM_CUDA\).* Copy it to host memory first"):
                    await send(array)
            for post in (active.try_send, active.send_nowait):
                with pytest.raises(NotSupportedError, match=r"CudaArray is in the memory of a device"):
                    post(array)
        with pytest.raises(NotSupportedError, match="DLPack's device type 8"):
            await active.send(OnMetal(np.zeros(1)))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"numpy\.from_dlpack\(\) makes one of its memory, without a copy"):
            await active.send(OnlyDlpack(np.zeros(1)))  # type: ignore[arg-type]
        await active.send(b"works")
        assert await passive.recv() == b"works"


@anyio_test
async def test_an_array_of_python_objects_stays_a_type_error(pair: Pair) -> None:
    async with pair() as (active, passive), passive.domain.register(bytearray(64), access=BOTH) as region:
        for wrong in (np.array([None]), object()):
            with pytest.raises(TypeError):
                await active.write(wrong, region.remote)  # type: ignore[arg-type]


def test_the_kind_of_memory_asks_for_no_capsule() -> None:
    class Array:
        device = 1

        def __dlpack__(self) -> None:
            raise AssertionError("it would wait for the device")

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.device, 0

    array = Array()
    for device, kind in ((1, "host"), (3, "host"), (2, "FI_HMEM_CUDA"), (10, "FI_HMEM_ROCR"), (14, "FI_HMEM_ZE")):
        array.device = device
        assert memory_kind(array) == kind
    assert memory_kind(b"") == ""
    assert memory_kind(CudaArray()) == "FI_HMEM_CUDA"


# -- recorded offers


def with_hmem(offer: Offer) -> Info:
    """The offer as its provider makes it on a host with a GPU."""
    [info] = Fabrics(replace(offer, caps=offer.caps | Caps.HMEM))(hints=Hints(caps=HMEM))
    return info


def handle_with(info: Info, *covered: Any) -> Any:
    """The parts of an endpoint's handle that the choice of local memory reads, with regions of these arrays."""
    table = RegionTable(None, info)  # type: ignore[arg-type]
    for memory, access in covered:
        start = memory.__cuda_array_interface__["data"][0]
        region = SimpleNamespace(start=start, stop=start + 128, access=int(access), endpoint=None)
        table.add(region)  # type: ignore[arg-type]
    return SimpleNamespace(info=info, regions=table, tx_flags=0)


USE = Access.READ | Access.WRITE
OFFERS = {"efa": efa()[1], "opx": opx()[0], "psm3": psm()[0], "verbs": verbs()[0]}


@pytest.mark.parametrize("name", OFFERS)
def test_registered_device_memory_is_used_by_its_region(name: str) -> None:
    array = CudaArray()
    handle = handle_with(with_hmem(OFFERS[name]), (array, USE))
    for access in (Access.READ, Access.WRITE):
        found = _local(handle, array, access)
        assert type(found) is RegisteredArray
        assert (len(found), int(found.iov[0].iov_len)) == (128, 128)
        found.check(0)
        with pytest.raises(NotSupportedError, match="FI_INJECT"):
            found.check(constants.FI_INJECT)


@pytest.mark.parametrize("name", OFFERS)
def test_device_memory_outside_of_regions_is_refused(name: str) -> None:
    array = CudaArray()
    for covered in ((), ((array, Access.SEND),)):
        handle = handle_with(with_hmem(OFFERS[name]), *covered)
        with pytest.raises(ValueError, match=r"no open region .* CudaArray and permits FI_WRITE: register it first"):
            _local(handle, array, Access.WRITE).check(0)


def test_read_only_device_memory_is_not_filled() -> None:
    array = CudaArray(readonly=True)
    handle = handle_with(with_hmem(OFFERS["efa"]), (array, USE))
    with pytest.raises(BufferError, match="read-only"):
        _local(handle, array, Access.READ)
    assert len(_local(handle, array, Access.WRITE)) == 128


def test_regions_of_an_endpoint_serve_peers_only() -> None:
    handle = handle_with(with_hmem(cxi()[0]))
    with pytest.raises(NotSupportedError, match=r"cxi binds regions to an endpoint .* Copy it to host memory first"):
        _local(handle, CudaArray(), Access.WRITE)


@pytest.mark.parametrize("offers", [tcp(), verbs(), efa()], ids=["tcp", "verbs", "efa"])
def test_an_offer_without_hmem_is_refused_by_its_name(offers: list[Offer]) -> None:
    info = Fabrics(offers)(hints=Hints(caps=Caps.MSG | Caps.RMA))[0]
    with pytest.raises(NotSupportedError, match=rf"The provider {info.fabric_attr.prov_name} .*does not have it"):
        _local(handle_with(info), CudaArray(), Access.WRITE)


def test_host_memory_is_pinned_as_before() -> None:
    handle = handle_with(with_hmem(OFFERS["efa"]))
    assert _local(handle, b"bytes", Access.WRITE) == pin(b"bytes")
