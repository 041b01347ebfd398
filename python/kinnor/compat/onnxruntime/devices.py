"""The devices and kinds of memory of `onnxruntime`. Kinnor computes on the CPU, and ignores kinds of memory."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from .errors import InvalidArgument

__all__ = [
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
]


class OrtAllocatorType(IntEnum):
    """Kinds of allocators of ONNX Runtime. Kinnor ignores them."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """Kinds of memory of ONNX Runtime. Kinnor ignores them."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(IntEnum):
    """Kinds of memory of a device. Kinnor ignores them."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(IntEnum):
    """Kinds of devices that have memory. Kinnor uses the CPU only."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtDeviceVendorId(IntEnum):
    """Makers of devices, by the numbers that they have on the PCI bus."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


_DEVICES = {
    "cpu": (0, OrtDeviceVendorId.NONE),
    "cuda": (1, OrtDeviceVendorId.NVIDIA),
    "dml": (1, OrtDeviceVendorId.MICROSOFT),
    "webgpu": (1, OrtDeviceVendorId.NONE),
    "gpu": (1, OrtDeviceVendorId.NONE),
    "fpga": (2, OrtDeviceVendorId.NONE),
    "npu": (3, OrtDeviceVendorId.NONE),
    "cann": (3, OrtDeviceVendorId.HUAWEI),
}
"""The numbers of kinds of devices, and their makers, by the names that ONNX Runtime gives them."""


def _number_of(name: str) -> Any:
    """Returns a static method that returns the number of a kind of device."""
    return staticmethod(lambda: _DEVICES[name][0])


class OrtDevice:
    """A device. Arrays can be on the CPU only.

    Args:
        device_type: The number of its kind.
        mem_type: The number of the kind of its memory.
        device_id: Its number.
        vendor_id: The number of its maker.
    """

    cpu = _number_of("cpu")
    cuda = _number_of("cuda")
    dml = _number_of("dml")
    webgpu = _number_of("webgpu")
    gpu = _number_of("gpu")
    fpga = _number_of("fpga")
    npu = _number_of("npu")
    cann = _number_of("cann")

    def __init__(self, device_type: int, mem_type: int = 0, device_id: int = 0, vendor_id: int = 0) -> None:
        self._type, self._memory, self._id, self._vendor = device_type, mem_type, device_id, vendor_id

    @property
    def name(self) -> str:
        """The name of its kind."""
        return "cpu" if self._type == 0 else f"device of kind {self._type}"

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Returns the device of a name.

        Args:
            ort_device_name: The name of its kind, such as `cpu`.
            device_id: Its number.
            vendor_id: The number of its maker.
        """
        if ort_device_name.lower() not in _DEVICES:
            raise InvalidArgument(f"OrtDevice: expected one of {sorted(_DEVICES)}, got {ort_device_name!r}")
        kind, vendor = _DEVICES[ort_device_name.lower()]
        return OrtDevice(kind, 0, device_id, vendor if vendor_id < 0 else vendor_id)

    @staticmethod
    def default_memory() -> int:
        """Returns the number of the kind of memory."""
        return 0

    def device_id(self) -> int:
        """Returns its number."""
        return self._id

    def device_type(self) -> int:
        """Returns the number of its kind."""
        return self._type

    def device_mem_type(self) -> int:
        """Returns the number of the kind of its memory."""
        return self._memory

    mem_type = device_mem_type

    def device_vendor_id(self) -> int:
        """Returns the number of its maker."""
        return self._vendor

    vendor_id = device_vendor_id


class OrtMemoryInfo:
    """A kind of memory. Kinnor ignores it.

    Args:
        name: Its name.
        allocator_type: The kind of its allocator.
        device_id: The number of its device.
        mem_type: Its kind.
    """

    def __init__(self, name: str, allocator_type: Any, device_id: int, mem_type: Any) -> None:
        self.name, self.allocator_type, self.device_id, self.mem_type = name, allocator_type, device_id, mem_type
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = 0

    @staticmethod
    def create_v2(
        name: str,
        device_type: Any,
        vendor_id: int,
        device_id: int,
        device_mem_type: Any,
        alignment: int,
        allocator_type: Any,
    ) -> OrtMemoryInfo:
        """Returns a kind of memory.

        Args:
            name: Its name.
            device_type: The kind of its device.
            vendor_id: The maker of its device.
            device_id: The number of its device.
            device_mem_type: Its kind on the device.
            alignment: Its alignment.
            allocator_type: The kind of its allocator.
        """
        found = OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT)
        found.device_mem_type, found.device_vendor_id = device_mem_type, vendor_id
        return found


class OrtArenaCfg:
    """Settings of ONNX Runtime's allocator. Kinnor ignores them.

    Args:
        settings: The settings by name, or the first of four numbers.
        others: The other numbers.
    """

    _NAMES = ("max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk")
    _MORE = ("initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes")

    def __init__(self, settings: Any, *others: int) -> None:
        numbers = zip(self._NAMES, (settings, *others), strict=False)
        given = dict(settings if hasattr(settings, "items") else numbers)
        if unknown := set(given) - {*self._NAMES, *self._MORE}:
            raise InvalidArgument(f"OrtArenaCfg: expected {[*self._NAMES, *self._MORE]}, got {sorted(unknown)}")
        for name in (*self._NAMES, *self._MORE):
            setattr(self, name, given.get(name, -1))
