"""Arrays of a collective: checks of arguments, and packing of several arrays into one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _check
from .._core import CallError, NdArray, Variable
from ..context import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "by_type",
    "dtype_of",
    "listed",
    "name_and_ranks",
    "names_of",
    "one",
    "parameters_of",
    "run_packed",
    "several",
    "summed_in",
    "variables",
]


def name_and_ranks(op: str, given: Any) -> tuple[str, list[int]]:
    """A name and whole numbers, as `new_group` takes them."""
    name, ranks = _pair(op, "name_ranks", given, "a name and a list of ranks")
    if not isinstance(ranks, (list, tuple, range, np.ndarray)):
        raise CallError(f"{op}: expected the ranks to be a list, got {ranks!r}")
    return _check.text(op, "name", name), [_check.whole(op, "rank", rank) for rank in ranks]


def parameters_of(op: str, given: Any) -> tuple[Context, dict[str, Variable]]:
    """A context and variables by their names."""
    context, parameters = _context_and(op, given, "variables by their names")
    return context, variables(op, parameters)


def names_of(op: str, given: Any) -> tuple[Context, list[str]]:
    """A context and names of parameters."""
    context, names = _context_and(op, given, "names of parameters")
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        raise CallError(f"{op}: expected a list of names of parameters, got {names!r}")
    return context, [_check.text(op, "name", name) for name in _check.items(op, "names", names)]


def variables(op: str, given: Any) -> dict[str, Variable]:
    """Variables by their names."""
    if not isinstance(given, Mapping):
        raise CallError(f"{op}: expected variables by their names, got {given!r}")
    for name, variable in given.items():
        if not isinstance(name, str) or not isinstance(variable, Variable):
            raise CallError(f"{op}: expected variables by their names, got {variable!r} as {name!r}")
    return dict(given)


def _context_and(op: str, given: Any, what: str) -> tuple[Context, Any]:
    """Returns `given` as a pair of a context and another value. Raises CallError for anything else."""
    context, rest = _pair(op, "ctx_param_dict", given, f"a context and {what}")
    if not isinstance(context, Context):
        raise CallError(f"{op}: expected a Context, got {context!r}")
    return context, rest


def _pair(op: str, name: str, given: Any, what: str) -> tuple[Any, Any]:
    """Returns `given` as a pair. Raises CallError, with `what` as the expected value, for anything else."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return given[0], given[1]
    raise CallError(f"{op}: expected `{name}` to be {what}, got {given!r}")


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
