"""Indexing: `x[key]` and `x[key] = value` by slices, `gather_nd` and `scatter_nd`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core import NdArray, Variable
from . import with_constant

f = _core.functions
Arrays = (np.ndarray, NdArray, Variable, list)
TRUTH = ("Equal", "Greater", "Less", "Logical", "NotEqual", "IsInf", "IsNaN")
"""First words of the types of functions with boolean results."""


def getitem(x: Any, key: Any) -> Any:
    """`x[key]`."""
    keys = expand(x, key)
    if not any(isinstance(k, Arrays) for k in keys):
        return _core.part(x, keys)
    index, laid_out = advanced(x, keys)
    part = with_constant(f.gather_nd(x, index), 1)
    return _core.part(part, laid_out) if None in laid_out else part


def setitem(x: Any, key: Any, value: Any) -> None:
    """`x[key] = value`. In a graph, `x` denotes the new array from then on.

    Functions that were built before keep reading the old array. If there are any, the new array has its own memory.
    """
    keys = expand(x, key)
    value = as_value(x, value)
    if any(isinstance(k, Arrays) for k in keys):
        index, laid_out = advanced(x, keys)
        value = repeated(value, index, x.shape[index.shape[0] :], laid_out)

        def put(out: Any, in_place: bool) -> Any:
            """Stores the value at array indices, in place or in a copy."""
            return with_constant(f.scatter_nd(value, index, out=out if in_place else f.identity(out)), 1)
    else:

        def put(out: Any, in_place: bool) -> Any:
            """Stores the value at slices, in place or in a copy."""
            return _core.put(out, value, keys, in_place)

    if isinstance(x, NdArray):
        put(x, True)
        return
    at_once = _core.auto_forward_mode() and not _core.grad_mode()
    notes = _core.noting()  # in the first run of `forget`, which runs again with a graph
    is_kept = x.parent is None and x.need_grad and (_core.grad_mode() or notes) and not _core.is_nnabla()
    if at_once and notes and not is_kept:
        x.data = put(x, False).data
    elif at_once or is_kept:
        # Without a graph the memory changes. Raises an error for a leaf that requires grad.
        put(x, True)
    elif x == value or not x._may_be_overwritten():
        result = put(x, False)
        x._split_off()
        x.rewire_on(result)
    else:
        old = result = x._split_off()
        try:
            result = put(old, True)
            result._may_take_copy()
        finally:
            # After an error, `x` stays at its old function.
            if result.parent is not None:
                x.rewire_on(result)


def expand(x: Any, key: Any) -> list[Any]:
    """A key as a checked list of entries. Ellipsis and missing axes become full slices.

    A mask over several axes is one entry.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [k.item() if isinstance(k, np.ndarray) and k.ndim == 0 else k for k in keys]
    # A tuple inside of a key is a list of positions, as in NumPy.
    keys = [list(k) if isinstance(k, tuple) else k for k in keys]
    for k in keys:
        fits = k is None or k is Ellipsis or isinstance(k, (int, np.integer, slice, *Arrays))
        if not fits or isinstance(k, bool):
            raise _core.CallError(f"index: expected integers, slices, None, Ellipsis or arrays, got {type(k).__name__}")
        if isinstance(k, Variable) and not is_mask(k) and (name := comparison(k)) and not _core.is_nnabla():
            raise _core.CallError(
                f"index: expected positions, got the truth values of {name}, which are the numbers 0 and 1 "
                "(F.bool_gather and F.bool_scatter take them)"
            )
    dots = sum(k is Ellipsis for k in keys)
    if dots > 1:
        raise _core.IndexRangeError("index: expected at most one Ellipsis")
    named = sum(width(k) for k in keys)
    if named > x.ndim:
        raise _core.IndexRangeError(f"index: expected at most {x.ndim} axes, got {named}")
    full = [slice(None)] * (x.ndim - named)
    at = next((i for i, k in enumerate(keys) if k is Ellipsis), None)
    if at is None:
        return keys + full
    return keys[:at] + full + keys[at + 1 :]


def width(k: Any) -> int:
    """The number of axes of the array that an entry of a key indexes."""
    if k is None or k is Ellipsis:
        return 0
    return np.ndim(k) if is_mask(k) else 1


def is_mask(k: Any) -> bool:
    """True if an entry is a boolean mask."""
    if isinstance(k, (NdArray, Variable)):
        data = k if isinstance(k, NdArray) else k.data
        try:
            return bool(data.dtype == np.bool_)
        except RuntimeError:
            return False
    return isinstance(k, (list, np.ndarray)) and np.asarray(k).dtype == np.bool_


def comparison(k: Any) -> str | None:
    """The name of the comparison that computes a variable, or None."""
    return k.parent.name if k.parent is not None and k.parent.name.startswith(TRUTH) else None


def advanced(x: Any, keys: list[Any]) -> tuple[Any, list[Any]]:
    """The indices for `gather_nd` of a key with arrays, and the axes of the result.

    Indices have one row for each axis that an array or integer indexes. The axes of the result are None for a new axis
    of length one, and a slice for any other axis.

    Variables and NdArrays stay inputs of the function, so that they may change between runs. Masks are evaluated
    immediately, because the shape of the result depends on them.
    """
    chosen = [i for i, k in enumerate(keys) if isinstance(k, (int, np.integer, *Arrays))]
    if any(isinstance(k, slice) and (k != slice(None) or i < chosen[-1]) for i, k in enumerate(keys)):
        raise _core.UnsupportedError("index: expected slices only after arrays, got one before or between them")
    own = [keys[i] for i in chosen]
    live = all(isinstance(k, (NdArray, Variable)) and not is_mask(k) and k.shape == own[0].shape for k in own)
    index = f.stack(*[leaf(x, k) for k in own]) if live else Variable.from_numpy_array(known(x, own))
    picked = [slice(None)] * (index.ndim - 1)
    before = [None] * chosen[0]  # all entries before the first array are None
    after = [k for k in keys[chosen[0] :] if k is None or isinstance(k, slice)]
    # As in NumPy, the indexed axes come first if the arrays are not adjacent.
    apart = any(k is None for k in keys[chosen[0] : chosen[-1]])
    return index, [*picked, *before, *after] if apart else [*before, *picked, *after]


def known(x: Any, keys: list[Any]) -> Any:
    """Checked constant indices as an int64 array, one row for each axis."""
    rows: list[Any] = []
    for k in keys:
        row = values(k)
        if is_mask(k):
            expected = x.shape[len(rows) : len(rows) + row.ndim]
            if row.shape != expected:
                raise _core.IndexRangeError(f"index: expected a mask of shape {expected}, got {row.shape}")
            rows += np.nonzero(row)
            continue
        if row.size and row.dtype.kind not in "iu" and isinstance(k, (list, np.ndarray)):
            raise _core.IndexRangeError(f"index: expected arrays of integers or truth values, got {row.dtype}")
        n = x.shape[len(rows)]
        row = row.astype(np.int64)
        if row.size and not -n <= row.min() <= row.max() < n:
            wrong = row.min() if row.min() < -n else row.max()
            raise _core.IndexRangeError(
                f"index: expected indices from {-n} to {n - 1} on axis {len(rows)}, got {wrong}"
            )
        rows.append(row)
    try:
        return np.stack(np.broadcast_arrays(*rows))
    except ValueError as error:
        shapes = ", ".join(str(row.shape) for row in rows)
        raise _core.IndexRangeError(f"index: expected arrays that broadcast together, got shapes {shapes}") from error


def values(k: Any) -> Any:
    """The current values of an entry as a NumPy array."""
    if isinstance(k, Variable):
        return np.asarray(k.d)
    if isinstance(k, NdArray):
        return np.asarray(k.data)
    return np.asarray(k)


def leaf(x: Any, given: Any) -> Any:
    """An array as an input of a function of `x`: as a variable if `x` is one."""
    if isinstance(x, NdArray) or isinstance(given, Variable):
        return given
    variable = Variable(given.shape)
    variable.data = given
    return variable


def as_value(x: Any, value: Any) -> Any:
    """The assigned value as an array of the kind of `x`."""
    if isinstance(x, NdArray) and isinstance(value, Variable):
        return value.data
    if isinstance(value, (NdArray, Variable)):
        return leaf(x, value)
    kind = NdArray if isinstance(x, NdArray) else Variable
    return kind.from_numpy_array(np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value))


def repeated(value: Any, index: Any, rest: tuple[int, ...], laid_out: list[Any]) -> Any:
    """The assigned value broadcast to the indexed shape: the axes of `index`, then `rest`."""
    inner = index.shape[1:] + rest
    lengths = iter(inner)
    shape = tuple(1 if k is None else next(lengths) for k in laid_out)
    own = list(value.shape)
    while len(own) > len(shape) and own[0] == 1:
        own.pop(0)
    own = [1] * (len(shape) - len(own)) + own
    if len(own) != len(shape) or any(n not in (1, length) for n, length in zip(own, shape, strict=True)):
        raise _core.ShapeError(f"index: expected a value that broadcasts to {shape}, got {value.shape}")
    if value.shape != shape:
        value = f.broadcast(f.reshape(value, own), shape)
    return value if shape == inner else f.reshape(value, inner)
