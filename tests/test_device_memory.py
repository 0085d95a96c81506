"""Device memory: the interfaces of arrays, and errors for registrations that are not possible."""

from typing import Any

import numpy as np
import pytest

import aiofabric
from aiofabric import Access, Caps, Domain, EndpointType, EpAttr, FabricAttr, Hints, HmemIface, NotSupportedError
from aiofabric.device_memory import device_memory
from tests.fixtures.internals import handle_of


class CudaArray:
    """The interface of a CUDA array; no code reads its memory here."""

    def __init__(self, shape: tuple[int, ...] = (4, 8), strides: Any = None, *, readonly: bool = False) -> None:
        self.__cuda_array_interface__ = {
            "data": (0x7F0000001000, readonly),
            "typestr": "<f4",
            "shape": shape,
            "strides": strides,
            "version": 3,
        }


class OnlyDlpack:
    """An array without the buffer protocol, as other libraries' are."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


def open_domain(provider: str, caps: Caps, kind: EndpointType = EndpointType.RDM) -> Domain:
    hints = Hints(caps=caps, fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind))
    return Domain(aiofabric.getinfo(hints=hints)[0])


def test_cuda_s_array_interface() -> None:
    array = CudaArray()
    found = device_memory(array)
    assert found is not None
    assert (found.iface, found.device, found.address, found.size) == (HmemIface.CUDA, 0, 0x7F0000001000, 128)
    assert found.owner is array


def test_contiguous_strides_are_no_matter() -> None:
    found = device_memory(CudaArray((4, 8), (32, 4)))
    assert found is not None
    assert found.size == 128
    with pytest.raises(BufferError, match="must be contiguous"):
        device_memory(CudaArray((4, 8), (64, 4)))


def test_dlpack_of_host_memory() -> None:
    array = np.arange(10, dtype=np.int32)
    found = device_memory(OnlyDlpack(array))
    assert found is not None
    assert (found.iface, found.address, found.size) == (HmemIface.SYSTEM, array.ctypes.data, 40)
    with pytest.raises(BufferError, match="must be contiguous"):
        device_memory(OnlyDlpack(array.reshape(2, 5).T))


def test_anything_else_is_no_device_s() -> None:
    assert device_memory(b"bytes") is None
    assert device_memory(object()) is None


def test_host_memory_by_dlpack_is_registered_and_kept() -> None:
    array = np.arange(10, dtype=np.int32)
    import sys

    before = sys.getrefcount(array)
    with open_domain("tcp", Caps.MSG | Caps.RMA, EndpointType.MSG) as domain:
        with domain.register(OnlyDlpack(array), access=Access.REMOTE_READ) as region:
            assert len(region) == 40
            assert sys.getrefcount(array) > before
        del region
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize("provider", ["tcp", "sockets"])
def test_a_provider_without_device_memory_refuses_it(provider: str) -> None:
    """sockets would take the address for one of the host's, and crash when a peer reads it."""
    with open_domain(provider, Caps.MSG | Caps.RMA, EndpointType.MSG) as domain:
        with pytest.raises(NotSupportedError, match=rf"FI_HMEM.*{provider}.*does not have it"):
            domain.register(CudaArray(), access=Access.REMOTE_READ)
        assert len(handle_of(domain).regions) == 0


def test_a_library_without_cuda_refuses_it() -> None:
    with open_domain("shm", Caps.MSG | Caps.RMA | Caps.HMEM) as domain:
        with pytest.raises(NotSupportedError, match="was built without support for the memory of FI_HMEM_CUDA"):
            domain.register(CudaArray(), access=Access.REMOTE_READ)
        with domain.register(OnlyDlpack(np.zeros(4)), access=Access.REMOTE_READ) as region:
            assert len(region) == 32


def test_read_only_device_memory_is_not_written() -> None:
    with (
        open_domain("shm", Caps.MSG | Caps.RMA | Caps.HMEM) as domain,
        pytest.raises(BufferError, match="read-only"),
    ):
        domain.register(CudaArray(readonly=True), access=Access.REMOTE_WRITE)


def test_a_device_that_libfabric_does_not_know() -> None:
    import ctypes
    import struct

    tensor = struct.pack("=QiiiBBHQQQ", 0x1000, 8, 0, 0, 2, 32, 1, 0, 0, 0)  # 8: Metal
    room = ctypes.create_string_buffer(tensor, 128)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Metal:
        def __dlpack__(self) -> Any:
            return new(ctypes.addressof(room), b"dltensor", None)

    with pytest.raises(TypeError, match="device type 8"):
        device_memory(Metal())
