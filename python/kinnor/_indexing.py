"""Indexing: `x[key]` and `x[key] = value` in terms of slice, gather_nd and scatter_nd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from ._core import NdArray, Variable

f = _core.functions
Arrays = (np.ndarray, NdArray, Variable, list)


@dataclass
class Basic:
    """A key of integers and slices: what to cut out, and the shape of what is left."""

    start: list[int]
    stop: list[int]
    step: list[int]
    shape: list[int]


def getitem(x: Any, key: Any) -> Any:
    """The part of `x` that `key` names."""
    keys = expand(x, key)
    if any(isinstance(k, Arrays) for k in keys):
        index, shape = advanced(x, keys)
        part = f.gather_nd(x, index)
    else:
        cut = basic(x, keys)
        part, shape = f.slice(x, cut.start, cut.stop, cut.step), tuple(cut.shape)
    return part if part.shape == shape else f.reshape(part, shape)


def setitem(x: Any, key: Any, value: Any) -> None:
    """Puts `value` at the part of `x` that `key` names; in a graph `x` denotes the new array from then on.

    What took `x` before goes on taking the old array. Where something did, the new one has memory of its own.
    """
    keys = expand(x, key)
    if any(isinstance(k, Arrays) for k in keys):
        index, shape = advanced(x, keys)
    else:
        cut = basic(x, keys)
        index, shape = positions(x, cut), tuple(cut.shape)
    value = as_value(x, value, shape)
    inner = index.shape[1:] + x.shape[index.shape[0] :]
    if value.shape != inner:
        value = f.reshape(value, inner)
    if isinstance(x, NdArray):
        source = value if isinstance(value, NdArray) else value.data
        if np.may_share_memory(x.get_data("r"), source.get_data("r")):
            value = f.identity(value)
        f.scatter_nd(value, index, out=x)
        return
    at_once = _core.auto_forward_mode() and not _core.grad_mode()
    is_kept = x.parent is None and x.need_grad and _core.grad_mode() and not _core.leaves_in_place()
    if at_once or is_kept:
        # Without a graph it is the memory that changes. A leaf that requires grad is refused.
        f.scatter_nd(value, index, out=x)
    elif x == value or not x._may_be_overwritten():
        result = f.scatter_nd(value, index, out=f.identity(x))
        x._split_off()
        x.rewire_on(result)
    else:
        old = result = x._split_off()
        try:
            result = f.scatter_nd(value, index, out=old)
        finally:
            # One that was refused leaves `x` where it was.
            if result.parent is not None:
                x.rewire_on(result)


def expand(x: Any, key: Any) -> list[Any]:
    """One entry for each axis: Ellipsis and missing axes become full slices, a mask over several axes stays one."""
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [k.item() if isinstance(k, np.ndarray) and k.ndim == 0 else k for k in keys]
    # A tuple inside of a key is a list of positions, as in NumPy.
    keys = [list(k) if isinstance(k, tuple) else k for k in keys]
    for k in keys:
        fits = k is None or k is Ellipsis or isinstance(k, (int, np.integer, slice, *Arrays))
        if not fits or isinstance(k, bool):
            raise _core.CallError(f"index: expected integers, slices, None, Ellipsis or arrays, got {type(k).__name__}")
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
    """Number of axes that an entry of a key takes."""
    if k is None or k is Ellipsis:
        return 0
    return np.ndim(k) if is_mask(k) else 1


def is_mask(k: Any) -> bool:
    """Whether an entry chooses elements by truth."""
    if isinstance(k, (NdArray, Variable)):
        data = k if isinstance(k, NdArray) else k.data
        try:
            return bool(data.dtype == np.bool_)
        except RuntimeError:
            return False
    return isinstance(k, (list, np.ndarray)) and np.asarray(k).dtype == np.bool_


def basic(x: Any, keys: list[Any]) -> Basic:
    """A key of integers, slices and None."""
    cut = Basic([], [], [], [])
    axis = 0
    for k in keys:
        if k is None:
            cut.shape.append(1)
            continue
        n = x.shape[axis]
        axis += 1
        if isinstance(k, (int, np.integer)):
            i = int(k)
            if not -n <= i < n:
                raise _core.IndexRangeError(
                    f"index: expected an index from {-n} to {n - 1} on axis {axis - 1}, got {i}"
                )
            i %= n
            start, stop, step = i, i + 1, 1
        else:
            try:
                start, stop, step = k.indices(n)
            except TypeError:
                raise _core.CallError(f"index: expected a slice of whole numbers, got {k!r}") from None
            except ValueError:
                raise _core.RangeError(f"index: expected a slice with another step than zero, got {k!r}") from None
            length = len(range(start, stop, step))
            if stop < 0:
                stop = -(n + 1)  # before the first element, not counted from the end
            if length == 0:
                start, stop, step = 0, 0, 1
            cut.shape.append(length)
        cut.start.append(start)
        cut.stop.append(stop)
        cut.step.append(step)
    return cut


def positions(x: Any, cut: Basic) -> Variable:
    """The indices that a cut names: one row for each axis of `x` up to the last that is not taken whole."""
    whole = [(0, n, 1) for n in x.shape]
    axes = list(zip(cut.start, cut.stop, cut.step, strict=True))
    while axes and axes[-1] == whole[len(axes) - 1]:
        axes.pop()
    ranges = [np.arange(n)[slice(a, None if b < 0 else b, s)] for n, (a, b, s) in zip(x.shape, axes, strict=False)]
    grid = np.stack(np.meshgrid(*ranges, indexing="ij")) if ranges else np.zeros((0,), np.int64)
    return Variable.from_numpy_array(grid)


def advanced(x: Any, keys: list[Any]) -> tuple[Any, tuple[int, ...]]:
    """A key with arrays: the indices, one row for each axis that arrays and integers name, and the shape of the result.

    Indices that are arrays of this library stay inputs of the function, so that they may change from run to run; masks
    are looked at now, for the shape of the result follows from them.
    """
    chosen = [i for i, k in enumerate(keys) if isinstance(k, (int, np.integer, *Arrays))]
    if any(isinstance(k, slice) and (k != slice(None) or i < chosen[-1]) for i, k in enumerate(keys)):
        raise _core.UnsupportedError("index: arrays together with slices before or between them are not supported")
    own = [keys[i] for i in chosen]
    live = all(isinstance(k, (NdArray, Variable)) and not is_mask(k) and k.shape == own[0].shape for k in own)
    index = f.stack(*[leaf(x, k) for k in own]) if live else Variable.from_numpy_array(known(x, own))
    picked, rest = index.shape[1:], iter(x.shape[index.shape[0] :])
    before = [1] * chosen[0]  # only None can stand there
    behind = [k for k in keys[chosen[0] :] if k is None or isinstance(k, slice)]
    after = [1 if k is None else next(rest) for k in behind]
    # As in NumPy, what indices choose comes first where they do not stand side by side.
    apart = any(k is None for k in keys[chosen[0] : chosen[-1]])
    return index, (*picked, *before, *after) if apart else (*before, *picked, *after)


def known(x: Any, keys: list[Any]) -> Any:
    """Indices whose values are known, one row for each axis."""
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
    """An entry of a key as a NumPy array, now."""
    if isinstance(k, Variable):
        return np.asarray(k.d)
    if isinstance(k, NdArray):
        return np.asarray(k.data)
    return np.asarray(k)


def leaf(x: Any, given: Any) -> Any:
    """An array as an input of a function of `x`: a variable over it where `x` is one, to stay in the graph."""
    if isinstance(x, NdArray) or isinstance(given, Variable):
        return given
    variable = Variable(given.shape)
    variable.data = given
    return variable


def as_value(x: Any, value: Any, shape: tuple[int, ...]) -> Any:
    """What is assigned, repeated to a shape."""
    if not isinstance(value, (NdArray, Variable)):
        plain = np.asarray(value)
        try:
            plain = np.broadcast_to(plain, shape)
        except ValueError as error:
            raise _core.ShapeError(f"index: expected a value that broadcasts to {shape}, got {plain.shape}") from error
        kind = NdArray if isinstance(x, NdArray) else Variable
        return kind.from_numpy_array(np.ascontiguousarray(plain))
    value = leaf(x, value)
    if value.shape == shape:
        return value
    own = list(value.shape)
    while len(own) > len(shape) and own[0] == 1:
        own.pop(0)
    own = [1] * (len(shape) - len(own)) + own
    return f.broadcast(f.reshape(value, own), shape)
