"""Arrays of a collective: checks of arguments, and packing of several arrays into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import CallError, NdArray

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["by_type", "dtype_of", "listed", "one", "run_packed", "several", "summed_in"]


def one(op: str, name: str, value: Any) -> NdArray:
    """The argument, unchanged. Raises CallError unless it is an NdArray."""
    if isinstance(value, NdArray):
        return value
    raise CallError(f"{op}: expected `{name}` to be an NdArray, got {value!r}")


def several(op: str, name: str, value: Any) -> list[NdArray]:
    """The argument as a list. Raises CallError unless it is a list or tuple of NdArrays."""
    if isinstance(value, (list, tuple)) and all(isinstance(each, NdArray) for each in value):
        return list(value)
    raise CallError(f"{op}: expected `{name}` to be a list of NdArrays, got {value!r}")


def listed(op: str, name: str, value: NdArray | Sequence[NdArray]) -> list[NdArray]:
    """An NdArray, or a list or tuple of them, as a list. Raises CallError for other types."""
    return [value] if isinstance(value, NdArray) else several(op, name, value)


def dtype_of(array: NdArray) -> np.dtype[Any]:
    """The element type; float32 if nothing was written yet."""
    return np.dtype(array.get_data("r").dtype)


def by_type(arrays: list[NdArray]) -> list[list[NdArray]]:
    """Arrays grouped by element type, so that each group can be packed."""
    types: dict[Any, list[NdArray]] = {}
    for array in arrays:
        types.setdefault(dtype_of(array), []).append(array)
    return list(types.values())


def summed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which MPI sums values of `dtype` without loss: float32 for 16-bit floats, int32 for bool."""
    known = np.dtype(dtype)
    if known.kind == "b":
        return np.dtype(np.int32)
    return known if known.kind in "iu" or known.itemsize >= 4 else np.dtype(np.float32)


def run_packed(arrays: list[NdArray], run: Callable[[NDArray[Any]], None], divisor: int, write: bool) -> None:
    """Runs a collective on arrays of one element type, packed into one array.

    Args:
        arrays: The arrays.
        run: The collective, in place on a NumPy array.
        divisor: Divisor of the result.
        write: Whether to copy the result back to the arrays.
    """
    views = [array.get_data("rw" if write else "r") for array in arrays]
    dtype = views[0].dtype
    wide = summed_in(dtype)
    is_direct = len(views) == 1 and wide == dtype and views[0].flags.c_contiguous and write
    packed = views[0] if is_direct else np.concatenate([view.ravel() for view in views]).astype(wide, copy=False)
    run(packed)
    if not write:
        return
    if divisor > 1:
        if packed.dtype.kind == "f":
            packed /= divisor
        else:
            packed //= divisor
    if not is_direct:
        start = 0
        for view in views:
            view[...] = packed[start : start + view.size].reshape(view.shape)
            start += view.size
