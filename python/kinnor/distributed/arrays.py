"""Arrays of a collective: what may be given as them, and how several become one. Knows no processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import CallError, NdArray

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["by_type", "dtype_of", "listed", "one", "run_packed", "several", "summed_in"]


def one(op: str, name: str, value: Any) -> NdArray:
    """Refuse what is no array."""
    if isinstance(value, NdArray):
        return value
    raise CallError(f"{op}: expected `{name}` to be an NdArray, got {value!r}")


def several(op: str, name: str, value: Any) -> list[NdArray]:
    """Refuse what is no list or tuple of arrays."""
    if isinstance(value, (list, tuple)) and all(isinstance(each, NdArray) for each in value):
        return list(value)
    raise CallError(f"{op}: expected `{name}` to be a list of NdArrays, got {value!r}")


def listed(op: str, name: str, value: NdArray | Sequence[NdArray]) -> list[NdArray]:
    """An array or several; refuse everything else."""
    return [value] if isinstance(value, NdArray) else several(op, name, value)


def dtype_of(array: NdArray) -> np.dtype[Any]:
    """The type of the values: float32, if nothing was written yet."""
    return np.dtype(array.get_data("r").dtype)


def by_type(arrays: list[NdArray]) -> list[list[NdArray]]:
    """Arrays that can be packed together."""
    types: dict[Any, list[NdArray]] = {}
    for array in arrays:
        types.setdefault(dtype_of(array), []).append(array)
    return list(types.values())


def summed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which values are summed: one that MPI knows, and that loses nothing.

    Half precision is summed in float32; truth values are counted, and are true if one is.
    """
    known = np.dtype(dtype)
    if known.kind == "b":
        return np.dtype(np.int32)
    return known if known.kind in "iu" or known.itemsize >= 4 else np.dtype(np.float32)


def run_packed(arrays: list[NdArray], run: Callable[[NDArray[Any]], None], divisor: int, write: bool) -> None:
    """Run a collective over arrays of one type, in one array where there are several."""
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
