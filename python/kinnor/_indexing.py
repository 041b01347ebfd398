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
        part = f.gather_nd(x, as_operand(x, index))
        return part if tuple(part.shape) == shape else f.reshape(part, shape)
    cut = basic(x, keys)
    part = f.slice(x, cut.start, cut.stop, cut.step)
    return part if list(part.shape) == cut.shape else f.reshape(part, cut.shape)


def setitem(x: Any, key: Any, value: Any) -> None:
    """Puts `value` at the part of `x` that `key` names; in a graph `x` denotes the new array from then on."""
    keys = expand(x, key)
    if any(isinstance(k, Arrays) for k in keys):
        index, shape = advanced(x, keys)
    else:
        cut = basic(x, keys)
        index, shape = positions(x, cut), tuple(cut.shape)
    value = as_value(x, value, shape)
    inner = tuple(index.shape[1:]) + tuple(x.shape[index.shape[0] :])
    if tuple(value.shape) != inner:
        value = f.reshape(value, inner)
    if isinstance(x, NdArray):
        f.scatter_nd(value, as_operand(x, index), out=x)
        return
    old = x._split_off()
    try:
        result = f.scatter_nd(value, as_operand(x, index), out=old)
    except Exception:
        if old.parent is not None:
            x.rewire_on(old)
        raise
    x.rewire_on(result)


def expand(x: Any, key: Any) -> list[Any]:
    """One entry for each axis: Ellipsis and missing axes become full slices, a mask over several axes stays one."""
    keys = list(key) if isinstance(key, tuple) else [key]
    # A tuple inside of a key is a list of positions, as in NumPy.
    keys = [list(k) if isinstance(k, tuple) else k for k in keys]
    keys = [k.item() if isinstance(k, np.ndarray) and k.ndim == 0 and k.dtype.kind in "iu" else k for k in keys]
    for k in keys:
        if not (k is None or k is Ellipsis or isinstance(k, (int, np.integer, slice, *Arrays))):
            raise TypeError(f"index: expected integers, slices, None, Ellipsis or arrays, got {type(k).__name__}")
    dots = sum(k is Ellipsis for k in keys)
    if dots > 1:
        raise IndexError("index: expected at most one Ellipsis")
    named = sum(width(k) for k in keys)
    if named > x.ndim:
        raise IndexError(f"index: expected at most {x.ndim} axes, got {named}")
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
                raise IndexError(f"index: expected an index from {-n} to {n - 1} on axis {axis - 1}, got {i}")
            i %= n
            start, stop, step = i, i + 1, 1
        else:
            start, stop, step = k.indices(n)
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


def positions(x: Any, cut: Basic) -> Any:
    """The indices that a cut names, one row for each axis of `x`."""
    ranges = [
        np.arange(n)[slice(a, None if b < 0 else b, s)]
        for n, a, b, s in zip(x.shape, cut.start, cut.stop, cut.step, strict=True)
    ]
    grid = np.meshgrid(*ranges, indexing="ij") if ranges else []
    return np.stack(grid) if grid else np.zeros((0,), np.int64)


def advanced(x: Any, keys: list[Any]) -> tuple[Any, tuple[int, ...]]:
    """A key with arrays: the indices, one row for each axis that arrays name, and the shape of the result."""
    arrays = [k for k in keys if isinstance(k, Arrays)]
    if any(isinstance(k, slice) and k != slice(None) for k in keys) or any(
        isinstance(k, slice) for k in keys[: last_array(keys)]
    ):
        raise NotImplementedError("index: arrays together with slices before or between them are not supported")
    if len(arrays) == 1 and is_mask(arrays[0]):
        mask = values(arrays[0])
        if any(isinstance(k, (int, np.integer)) for k in keys):
            raise NotImplementedError("index: a mask together with integers is not supported")
        if mask.shape != tuple(x.shape[: mask.ndim]):
            raise IndexError(f"index: expected a mask of shape {tuple(x.shape[: mask.ndim])}, got {mask.shape}")
        index: Any = np.stack(np.nonzero(mask)).astype(np.int64)
        picked: tuple[int, ...] = (index.shape[1],)
    elif len(arrays) == 1 and isinstance(arrays[0], (NdArray, Variable)) and not has_integers(keys):
        index = f.reshape(arrays[0], (1, *arrays[0].shape))
        picked = tuple(arrays[0].shape)
    else:
        if any(is_mask(k) for k in arrays):
            raise NotImplementedError("index: several masks, or masks together with arrays, are not supported")
        rows = [values(k) for k in keys if isinstance(k, (int, np.integer, *Arrays))]
        if any(row.size and row.dtype.kind not in "iuf" for row in rows):
            raise TypeError("index: expected arrays of integers")
        index = np.stack(np.broadcast_arrays(*[row.astype(np.int64) for row in rows]))
        picked = tuple(index.shape[1:])
    named = index.shape[0]
    shape: list[int] = []
    rest = list(x.shape[named:])
    placed = False
    for k in keys:
        if k is None:
            shape.append(1)
        elif isinstance(k, slice):
            shape.append(rest.pop(0))
        elif not placed:
            shape.extend(picked)
            placed = True
    return index, tuple(shape)


def has_integers(keys: list[Any]) -> bool:
    """Whether a key names an axis by one integer."""
    return any(isinstance(k, (int, np.integer)) for k in keys)


def last_array(keys: list[Any]) -> int:
    """Position of the last array of a key."""
    return max(i for i, k in enumerate(keys) if isinstance(k, Arrays))


def values(k: Any) -> Any:
    """An entry of a key as a NumPy array, now."""
    if isinstance(k, Variable):
        return np.asarray(k.d)
    if isinstance(k, NdArray):
        return np.asarray(k.data)
    return np.asarray(k)


def as_operand(x: Any, index: Any) -> Any:
    """Indices as an input of a function of `x`."""
    if isinstance(index, (NdArray, Variable)):
        return in_graph_of(x, index)
    kind = NdArray if isinstance(x, NdArray) else Variable
    return kind.from_numpy_array(index)


def in_graph_of(x: Any, array: Any) -> Any:
    """An array, as a variable where `x` is one: a function of variables belongs to the graph."""
    if isinstance(x, NdArray) or isinstance(array, Variable):
        return array
    variable = Variable(array.shape)
    variable.data = array
    return variable


def as_value(x: Any, value: Any, shape: tuple[int, ...]) -> Any:
    """What is assigned, repeated to a shape."""
    if not isinstance(value, (NdArray, Variable)):
        plain = np.asarray(value, dtype=np.float32 if np.asarray(value).dtype.kind == "f" else None)
        try:
            plain = np.broadcast_to(plain, shape)
        except ValueError as error:
            raise _core.ShapeError(f"index: expected a value that broadcasts to {shape}, got {plain.shape}") from error
        kind = NdArray if isinstance(x, NdArray) else Variable
        return kind.from_numpy_array(np.ascontiguousarray(plain))
    value = in_graph_of(x, value)
    if tuple(value.shape) == shape:
        return value
    own = [n for n in value.shape]
    while len(own) > len(shape) and own[0] == 1:
        own.pop(0)
    own = [1] * (len(shape) - len(own)) + own
    lifted = value if list(value.shape) == own else f.reshape(value, own)
    return f.broadcast(lifted, shape)
