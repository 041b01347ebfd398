"""Functions: each connects an operation to variables, or computes it at once where an NdArray is among its inputs.

Those that are one operation are declared in `src/ops/` and made from the declaration; the others are here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._core import NdArray, PythonFunction, Variable

globals().update({name: value for name, value in vars(_core.functions).items() if not name.startswith("_")})

__all__ = [
    *sorted(name for name in vars(_core.functions) if not name.startswith("_")),
    "PythonFunction",
    "clip_by_norm",
    "clip_by_value",
    "dot",
]


def clip_by_value(x: Any, min: Any, max: Any) -> Any:
    """Clip to a range, elementwise: `y = min(max(x, min), max)`.

    Args:
        x: Input of any shape.
        min: Lower bound, a number or an array of the shape of `x`.
        max: Upper bound, a number or an array of the shape of `x`.

    Returns:
        Array of the shape of `x`.

    Raises:
        TypeError: If a bound is neither a number nor an array of this library.
    """
    for name, bound in (("min", min), ("max", max)):
        if not isinstance(bound, (int, float, np.number, Variable, NdArray)):
            raise TypeError(f"clip_by_value: expected `{name}` to be a number, a Variable or an NdArray, got {bound!r}")
    arrays = (Variable, NdArray)
    f = _core.functions
    above = f.maximum2(x, min) if isinstance(min, arrays) else f.maximum_scalar(x, float(min))
    return f.minimum2(above, max) if isinstance(max, arrays) else f.minimum_scalar(above, float(max))


def clip_by_norm(x: Any, clip_norm: Any, axis: Any = None) -> Any:
    """Scale down to a norm: `y = clip_norm * x / max(norm(x), clip_norm)`.

    Args:
        x: Input of any shape.
        clip_norm: Largest Euclidean norm, a positive number or an array that broadcasts.
        axis: Axis or axes of the norm, all by default.

    Returns:
        Array of the shape of `x`.

    Raises:
        ValueError: If `clip_norm` is a number that is not positive.
        TypeError: If it is neither a number nor an array of this library.
    """
    f = _core.functions
    norm = f.pow_scalar(f.sum(f.pow_scalar(x, 2.0), axis, True), 0.5)
    if isinstance(clip_norm, (int, float, np.number)):
        if clip_norm <= 0:
            raise ValueError(f"clip_by_norm: expected clip_norm to be positive, got {clip_norm}")
        return clip_norm * x / f.maximum_scalar(norm, float(clip_norm))
    if isinstance(clip_norm, (Variable, NdArray)):
        return clip_norm * x / f.maximum2(norm, clip_norm)
    raise TypeError(f"clip_by_norm: expected a number, a Variable or an NdArray as clip_norm, got {clip_norm!r}")


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Product of arrays as `numpy.dot` has it: of the last axis of `a` with the last but one of `b`.

    Args:
        a: An array of any shape, or a number.
        b: An array of any shape, or a number; two vectors give a scalar, a scalar multiplies.
        out: Array that the result goes to, of its kind, shape and type of elements; a Variable takes the result's place
            in the graph.

    Returns:
        The product: `out` if that is given. It is NumPy's own if neither `a` nor `b` is an array of this library.

    Raises:
        ShapeError: If the lengths of these axes differ.
        ValueError: If `out` does not fit.
        TypeError: If an array of this library meets one of NumPy's.
    """
    from ._matmul import dot as product

    arrays = (Variable, NdArray)
    ours = [isinstance(x, arrays) for x in (a, b)]
    if all(ours):
        result = product(a, b)
    elif not any(ours):
        result = np.dot(a, b)
    else:
        x, factor = (a, b) if ours[0] else (b, a)
        if np.ndim(factor) != 0:
            raise TypeError(f"dot: expected two arrays of this library or a number, got {type(factor).__name__}")
        result = x * float(factor)
    if out is None:
        return result
    if type(out) is not type(result) or out.shape != result.shape:
        got = f"{type(out).__name__} of shape {getattr(out, 'shape', '()')}"
        expected = f"{type(result).__name__} of shape {result.shape}"
        raise _core.RangeError(f"dot: expected `out` to be {expected}, got {got}")
    if isinstance(out, arrays) and (out if isinstance(out, NdArray) else out.data).data.dtype.kind != "f":
        raise _core.RangeError("dot: expected `out` to hold real numbers")
    if isinstance(out, Variable):
        out.rewire_on(result)
    elif isinstance(out, NdArray):
        out.copy_from(result)
    else:
        out[...] = result
    return out
