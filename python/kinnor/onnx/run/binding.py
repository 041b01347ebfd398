"""Inputs and outputs of a session that are bound before a run."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import ArgumentError, DTypeError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..read.reading import NodeArg
    from .options import RunOptions
    from .session import InferenceSession

__all__ = ["IOBinding", "OrtValue", "check_device", "element_type_of", "type_of"]


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

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Any, onnx_element_type: int) -> OrtValue:
        """Returns an array as a value of a type that NumPy may lack. The memory is shared.

        Args:
            data: The array, whose elements have the size of the type.
            onnx_element_type: The number that ONNX gives the type.

        Raises:
            DTypeError: If the elements have another size.
        """
        array, wanted = np.asarray(data), element_type_of(onnx_element_type)
        if array.dtype.itemsize != wanted.itemsize:
            raise DTypeError(f"OrtValue: expected elements of the size of {wanted}, got {array.dtype}")
        return cls(array.view(wanted))

    @classmethod
    def from_dlpack(cls, data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """Returns an array of another library, or a DLPack capsule, as a value. The memory is shared.

        Args:
            data: The object with `__dlpack__`, or the capsule.
            is_bool_tensor: Whether bytes are truth values.
        """
        array = np.from_dlpack(data if hasattr(data, "__dlpack__") else _Capsule(data))
        return cls(array.view(np.bool_) if is_bool_tensor and array.dtype == np.uint8 else array)

    def __dlpack__(self, **named: Any) -> Any:
        """Returns the array for other libraries, as the DLPack protocol says."""
        return np.asarray(self._content).__dlpack__(**named)

    to_dlpack = __dlpack__

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the numbers that DLPack gives the CPU."""
        return (1, 0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Returns the array for NumPy."""
        found = np.asarray(self._content)
        if dtype is not None and found.dtype != dtype:
            return found.astype(dtype)
        return found.copy() if copy else found

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


class _Capsule:
    """A DLPack capsule of the CPU as an object that NumPy takes."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        """Returns the capsule."""
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the numbers that DLPack gives the CPU."""
        return (1, 0)


def check_device(device: Any) -> None:
    """Raises UnsupportedError if a device is not the CPU.

    Args:
        device: Its name in ONNX Runtime, or an object with this name.

    Raises:
        UnsupportedError: If it is another one.
    """
    device = getattr(device, "name", device)
    if str(device).lower() != "cpu":
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


class IOBinding:
    """Inputs and outputs of a session that are bound before a run. `InferenceSession.io_binding` makes it.

    Args:
        session: The session.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._given: dict[str, Any] = {}
        # Arrays to write outputs to. None lets each run make the array.
        self._wanted: dict[str, Any] = {}
        self._made: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an array to an input.

        Args:
            name: The input.
            arr_on_cpu: The array, which is read in each run.

        Raises:
            ArgumentError: If there is no such input.
        """
        self._check(name, self._session.get_inputs(), "input")
        self._given[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value to an input.

        Args:
            name: The input.
            ortvalue: The value, which is read in each run.

        Raises:
            ArgumentError: If there is no such input.
        """
        self._check(name, self._session.get_inputs(), "input")
        self._given[name] = ortvalue

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind memory to an input.

        Args:
            name: The input.
            device_type: `cpu`.
            device_id: Ignored.
            element_type: The type of its elements.
            shape: Its shape.
            buffer_ptr: The address of the first element. The memory must exist until the last run.

        Raises:
            UnsupportedError: If the device is not the CPU.
            ArgumentError: If there is no such input.
        """
        check_device(device_type)
        self._check(name, self._session.get_inputs(), "input")
        self._given[name] = _array_at(buffer_ptr, shape, element_type_of(element_type))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output.

        Args:
            name: The output.
            device_type: `cpu`.
            device_id: Ignored.
            element_type: The type of its elements, if it is written to memory of the caller.
            shape: Its shape, likewise.
            buffer_ptr: The address of that memory. By default each run makes an array.

        Raises:
            UnsupportedError: If the device is not the CPU.
            ArgumentError: If there is no such output.
        """
        check_device(device_type)
        self._check(name, self._session.get_outputs(), "output")
        is_given = buffer_ptr is not None and shape is not None and element_type is not None
        self._wanted[name] = _array_at(buffer_ptr, shape, element_type_of(element_type)) if is_given else None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written into a value.

        Args:
            name: The output.
            ortvalue: The value, of the type and shape of the output.

        Raises:
            ArgumentError: If there is no such output.
        """
        self._check(name, self._session.get_outputs(), "output")
        self._wanted[name] = ortvalue

    def clear_binding_inputs(self) -> None:
        """Bind no input."""
        self._given.clear()

    def clear_binding_outputs(self) -> None:
        """Ask for no output."""
        self._wanted.clear()
        self._made.clear()

    def synchronize_inputs(self) -> None:
        """Does nothing: there is one device."""

    def synchronize_outputs(self) -> None:
        """Does nothing: there is one device."""

    def get_outputs(self) -> list[OrtValue]:
        """Returns the outputs of the last run, in the order in which they were bound."""
        return list(self._made)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Returns the arrays of the last run."""
        return [value.numpy() for value in self._made]

    def _check(self, name: str, among: Sequence[NodeArg], kind: str) -> None:
        """Raises ArgumentError if no input or output has a name."""
        if name not in [held.name for held in among]:
            raise ArgumentError(f"IOBinding: expected the name of an {kind}, got {name!r}")

    def _run(self, run_options: RunOptions | None) -> None:
        """Runs the session on the bound inputs, and stores the outputs in the bound arrays."""
        if not self._wanted:
            raise ArgumentError("IOBinding: expected an output that is bound, got none")
        found = self._session.run(list(self._wanted), self._given, run_options)
        made = []
        for target, y in zip(self._wanted.values(), found, strict=True):
            if target is None:
                made.append(OrtValue(y))
                continue
            value = target if isinstance(target, OrtValue) else OrtValue(target)
            value.update_inplace(y)
            made.append(value)
        self._made = made


def _array_at(address: Any, shape: Any, dtype: Any) -> NDArray[Any]:
    """Returns the array at an address, without a copy."""
    size = math.prod(shape)
    if size == 0:
        return np.zeros(tuple(shape), dtype)
    memory = (ctypes.c_byte * (size * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(tuple(shape))
