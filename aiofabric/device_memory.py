"""Device memory by DLPack and CUDA's array interface (FI_HMEM; man page: fi_mr).

Neither copies the memory. Both give its address. DLPack also names the device, and can describe host memory. Memory
that is not contiguous cannot be registered as one piece and is refused.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from math import prod
from typing import Any

from ._ffi import ffi
from .flags import HmemIface

__all__ = ["DeviceMemory", "device_memory", "memory_kind"]

# DLPack's device types: host memory (plain, or pinned by CUDA or ROCm), and the devices that libfabric knows.
_DLPACK_HOST = {1, 3, 11}
_DLPACK_DEVICES = {2: HmemIface.CUDA, 13: HmemIface.CUDA, 10: HmemIface.ROCR, 14: HmemIface.ZE}

# DLTensor: data, device (type, id), ndim, dtype (code, bits, lanes), shape, strides, byte_offset
_TENSOR = struct.Struct("=QiiiBBHQQQ")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """``size`` bytes at ``address`` on ``device`` of ``iface``; ``owner`` keeps the memory alive."""

    iface: HmemIface
    device: int
    address: int
    size: int
    readonly: bool
    owner: Any

    def pin(self) -> Any:
        """A ``char[]`` cdata that keeps the owner alive; its bytes cannot be read by the CPU."""
        owner = [self.owner]
        return ffi.gc(ffi.cast(f"char(*)[{self.size}]", self.address)[0], lambda _: owner.clear())


def device_memory(buffer: Any) -> DeviceMemory | None:
    """The memory of ``buffer`` by DLPack or CUDA's array interface; None if it has neither.

    Raises:
        BufferError: it is not contiguous.
        TypeError: it is on a device that libfabric does not know.
    """
    if hasattr(buffer, "__cuda_array_interface__"):
        return _from_cuda(buffer)
    if hasattr(buffer, "__dlpack__"):
        return _from_dlpack(buffer)
    return None


def memory_kind(buffer: Any) -> str:
    """The memory that DLPack or CUDA's array interface gives: "" if it has neither, "host", or the device's name.

    It asks for no capsule: a producer that makes one may wait for the device.
    """
    if hasattr(buffer, "__cuda_array_interface__"):
        return str(HmemIface.CUDA)
    if not hasattr(buffer, "__dlpack__"):
        return ""
    kind = int(buffer.__dlpack_device__()[0]) if hasattr(buffer, "__dlpack_device__") else 1
    if kind in _DLPACK_HOST:
        return "host"
    return str(_DLPACK_DEVICES.get(kind, f"DLPack's device type {kind}"))


def _from_cuda(buffer: Any) -> DeviceMemory:
    interface = buffer.__cuda_array_interface__
    address, readonly = interface["data"]
    itemsize = int(interface["typestr"][2:])
    shape, strides = interface["shape"], interface.get("strides")
    _check_contiguous(shape, strides, itemsize)
    device = buffer.__dlpack_device__()[1] if hasattr(buffer, "__dlpack_device__") else 0
    return DeviceMemory(HmemIface.CUDA, device, address, itemsize * prod(shape), readonly, buffer)


def _from_dlpack(buffer: Any) -> DeviceMemory:
    capsule = buffer.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = get(capsule, b"dltensor")
    data, kind, device, ndim, _, bits, lanes, shape_at, strides_at, offset = _TENSOR.unpack(
        ctypes.string_at(tensor, _TENSOR.size)
    )
    shape = _integers(shape_at, ndim)
    itemsize = (bits * lanes + 7) // 8
    strides = tuple(itemsize * n for n in _integers(strides_at, ndim)) if strides_at else None
    _check_contiguous(shape, strides, itemsize)
    if kind in _DLPACK_HOST:
        iface = HmemIface.SYSTEM
    elif (known := _DLPACK_DEVICES.get(kind)) is not None:
        iface = known
    else:
        raise TypeError(f"libfabric does not support memory of DLPack's device type {kind}")
    # The capsule frees the tensor when it is collected, as long as no consumer has taken it over.
    return DeviceMemory(iface, device, data + offset, itemsize * prod(shape), False, capsule)


def _integers(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"={count}q", ctypes.string_at(address, 8 * count)) if count else ()


def _check_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> None:
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if length > 1 and stride != expected:
            raise BufferError("cannot use this array: it must be contiguous")
        expected *= length
