"""Inputs and outputs of a session that are bound before a run."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .ort_value import OrtValue, check_device, element_type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .session import InferenceSession
    from .settings import RunOptions

__all__ = ["IOBinding"]


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
        """
        self._given[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value to an input.

        Args:
            name: The input.
            ortvalue: The value, which is read in each run.
        """
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
        """
        check_device(device_type)
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
        """
        check_device(device_type)
        is_given = buffer_ptr is not None and shape is not None and element_type is not None
        self._wanted[name] = _array_at(buffer_ptr, shape, element_type_of(element_type)) if is_given else None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written into a value.

        Args:
            name: The output.
            ortvalue: The value, of the type and shape of the output.
        """
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

    def _run(self, run_options: RunOptions | None) -> None:
        """Runs the session on the bound inputs, and stores the outputs in the bound arrays."""
        found = self._session.run(list(self._wanted), self._given, run_options) if self._wanted else []
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
