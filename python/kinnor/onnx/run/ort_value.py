"""Values of a session with the methods that they have in ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import ShapeError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["OrtValue", "check_device", "element_type_of", "type_of"]


class OrtValue:
    """An input or output of a session: an array, a list of arrays for a sequence, or None for an absent value.

    Args:
        content: The array. It is not copied.

    Example:
        >>> import numpy as np
        >>> import kinnor as nn
        >>> x = nn.onnx.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
        >>> x.shape(), x.data_type(), x.device_name()
        ([2, 3], 'tensor(float)', 'cpu')
    """

    def __init__(self, content: Any) -> None:
        self._content = content

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Any, device_type: str = "cpu", device_id: int = 0, *_: Any) -> OrtValue:
        """Returns an array as a value.

        Args:
            numpy_obj: The array.
            device_type: `cpu`.
            device_id: Ignored.

        Raises:
            UnsupportedError: If the device is not the CPU.
        """
        check_device(device_type)
        return cls(np.asarray(numpy_obj))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0, *_: Any
    ) -> OrtValue:
        """Returns a value of zeros.

        Args:
            shape: Its shape.
            element_type: The type of its elements: NumPy's, or the number that ONNX gives it.
            device_type: `cpu`.
            device_id: Ignored.

        Raises:
            UnsupportedError: If the device is not the CPU.
        """
        check_device(device_type)
        return cls(np.zeros(tuple(shape), element_type_of(element_type)))

    def numpy(self) -> Any:
        """Returns the array."""
        return self._content

    def shape(self) -> list[int]:
        """Returns its shape."""
        return list(np.shape(self._content))

    def data_type(self) -> str:
        """Returns its type as ONNX writes it."""
        if isinstance(self._content, list):
            return f"seq({OrtValue(self._content[0] if self._content else np.zeros(0, np.float32)).data_type()})"
        return type_of(self._content)

    def element_type(self) -> int:
        """Returns the number that ONNX gives the type of its elements."""
        from ..read.tensors import onnx_package

        helper = onnx_package("OrtValue.element_type").helper
        return int(helper.np_dtype_to_tensor_dtype(np.asarray(self._content).dtype))

    def device_name(self) -> str:
        """Returns `cpu`."""
        return "cpu"

    def data_ptr(self) -> int:
        """Returns the address of the first element."""
        return int(np.asarray(self._content).ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Returns the bytes of its elements."""
        return int(np.asarray(self._content).nbytes)

    def has_value(self) -> bool:
        """True if it is not absent."""
        return self._content is not None

    def is_tensor(self) -> bool:
        """True if it is an array."""
        return isinstance(self._content, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """True if it is a sequence of arrays."""
        return isinstance(self._content, list)

    def is_sparse_tensor(self) -> bool:
        """False: there are no sparse arrays."""
        return False

    def update_inplace(self, np_arr: NDArray[Any]) -> None:
        """Write an array into its memory.

        Args:
            np_arr: The array, of the same shape and type.

        Raises:
            ShapeError: If it has another shape.
        """
        held = np.asarray(self._content)
        if held.shape != np_arr.shape:
            raise ShapeError(f"OrtValue.update_inplace: expected shape {held.shape}, got {np_arr.shape}")
        held[...] = np_arr


def check_device(device: str) -> None:
    """Raises UnsupportedError if a device is not the CPU.

    Args:
        device: Its name in ONNX Runtime.

    Raises:
        UnsupportedError: If it is another one.
    """
    if device.lower() != "cpu":
        raise UnsupportedError(f"kinnor.onnx: expected the device 'cpu', got {device!r}")


def element_type_of(element_type: Any) -> Any:
    """Returns NumPy's type of elements, which may be given by the number that ONNX gives it.

    Args:
        element_type: The type, or its number.
    """
    if isinstance(element_type, int):
        from ..read.tensors import dtype_of

        return dtype_of(element_type)
    return np.dtype(element_type)


_TYPE_NAMES = {"float32": "float", "float64": "double"}
"""ONNX's names of element types, where NumPy has others."""


def type_of(x: Any) -> str:
    """Returns the type of an array as ONNX writes it.

    Args:
        x: The array.
    """
    dtype = np.asarray(x).dtype
    return f"tensor({'string' if dtype.kind in 'OUST' else _TYPE_NAMES.get(dtype.name, dtype.name)})"
