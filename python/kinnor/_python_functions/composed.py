"""Functions that one declaration cannot express: composed of several operations, or with arguments of a wider kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import _core
from .._check import as_whole
from .._core import ArgumentError, CallError, GraphError, NdArray, RangeError, Variable
from ..context import Context, context_scope
from . import matmul

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

__all__ = [
    "batch_normalization",
    "bit_shift",
    "clip_by_norm",
    "clip_by_value",
    "dot",
    "forget",
    "gather_nd",
    "istft",
    "mod2",
    "reduce",
    "scatter_nd",
    "slice",
    "stft",
    "tensor_normalization",
]

T = TypeVar("T", Variable, NdArray)

f = _core.functions


def check_statistics(op: str, mean: Any, variance: Any, batch_stat: bool) -> None:
    """Refuses running statistics that a function of the graph computes, if they are to be overwritten."""
    for name, statistic in (("mean", mean), ("variance", variance)):
        if batch_stat and isinstance(statistic, Variable) and statistic.parent is not None:
            by = statistic.parent.info.type_name
            raise ArgumentError(
                f"{op}: expected `{name}` not to be computed where batch_stat is True, which overwrites it, got the "
                f"output of {by}"
            )


def batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    n_outputs: int | None = None,
) -> Any:
    check_statistics("batch_normalization", mean, variance, batch_stat)
    return f.batch_normalization(
        x, beta, gamma, mean, variance, axes, decay_rate, eps, batch_stat, output_stat, n_outputs=n_outputs
    )


batch_normalization.__doc__ = f.batch_normalization.__doc__


def tensor_normalization(
    x: T,
    axes: int | Sequence[int],
    beta: T | None = None,
    gamma: T | None = None,
    eps: float = 1e-5,
    output_stat: bool = False,
) -> Any:
    return f.tensor_normalization(x, beta, gamma, axes, eps, output_stat)


tensor_normalization.__doc__ = f.tensor_normalization.__doc__


def slice(
    x: T,
    start: int | Iterable[int | None] | None = None,
    stop: int | Iterable[int | None] | None = None,
    step: int | Iterable[int | None] | None = None,
    n_outputs: int = -1,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """A part of the array: of each axis, the elements from `start` up to but not including `stop`, every `step`-th.

    As in Python, negative positions count from the end, positions beyond the ends mean the ends, and a negative step
    runs backward. What is None stays open: when `x` gets another shape, it is the end of that. `x[...]` says the same
    more shortly.

    Args:
        x: Input of any shape.
        start: First position along each axis; None, for all axes or for one, is the start (the end where `step` is
            negative). Fewer entries than axes, here and below, are those of the last axes; the others stay whole.
        stop: Position along each axis to stop before; None is the end (the start where `step` is negative).
        step: Distance between positions along each axis; None is 1.
        n_outputs: Accepted as by every function.
        outputs: Array to write to.

    Returns:
        Array with as many axes as `x`.

    Raises:
        ArgumentError: If a step is zero, or if there are more entries than axes.
    """
    if not isinstance(x, (Variable, NdArray)):
        raise CallError(f"slice: expected `x` to be a Variable or an NdArray, got {type(x).__name__}")
    given = [entries(name, each) for name, each in (("start", start), ("stop", stop), ("step", step))]
    result: T = f.slice(x, *(of_last_axes(len(x.shape), each) for each in given), outputs=outputs)
    return result


def of_last_axes(ndim: int, given: Sequence[int | None] | None) -> list[int | None] | None:
    """Entries for all axes: those that are given are of the last ones."""
    return None if given is None else [*([None] * (ndim - len(given))), *given]


def entries(name: str, given: int | Iterable[int | None] | None) -> list[int | None] | None:
    """What is given for each axis."""
    if given is None:
        return None
    found = list(given) if isinstance(given, Iterable) else [given]
    whole = [None if entry is None else as_whole(entry) for entry in found]
    if all((entry is None) == (n is None) for entry, n in zip(found, whole, strict=True)):
        return whole
    raise CallError(f"slice: expected `{name}` to be integers or None, got {given!r}")


def forget(
    func: Callable[..., Any], *xs: Any, preserve_rng_state: bool = True, determinism_check: str = "default"
) -> Any:
    """Calls a function, and keeps nothing of what it computes on the way: it is run again for the backward run.

    Memory for time: of `func(*xs)` only inputs and outputs stay. Where functions run as soon as they are built
    (`auto_forward`), `func` is called once now, without a graph (nothing in it requires a gradient, and memory goes as
    soon as nobody holds a value), and once more, with one, for each backward run; in a static graph it is called
    once, and what it builds is dropped and computed again as with `kinnor.recompute`. Parameters and other variables
    that `func` reads from outside get their gradients as if it were not there, of any order.

    Random functions draw the same numbers again, batch normalization updates its statistics once, and
    `kinnor.config.in_recomputing` tells `func` that it is run again. It has to compute the same each time.

    Args:
        func: Takes variables, and returns a variable or a tuple of variables.
        xs: What it takes; arrays become variables.
        preserve_rng_state: Draw the same random numbers when it is run again.
        determinism_check: What is compared when it is run again: `"default"` number, shapes and types of the outputs,
            `"values"` a hash of their values too, `"none"` number and shapes only.

    Returns:
        What `func` returns; a variable by itself for a tuple of one.

    Raises:
        TypeError: If `func` cannot be called.
        RuntimeError: If it returns something else than variables.
        RecomputeError: In a backward run, if `func` gave something else than the first time.
        ShapeError: If it is run forward again after an input was given another shape.
    Source:
        `chainer.functions.forget`.

        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.Variable.from_numpy_array([0.5, 1.0], need_grad=True)
        >>> with nn.auto_forward():
        ...     y = F.sum(F.forget(lambda x: F.exp(F.sin(x)), x))
        >>> y.backward()
        >>> [f"{v:.4f}" for v in x.g.tolist()]
        ['1.4174', '1.2534']
    """
    from .forget import forget

    return forget(func, xs, preserve_rng_state, determinism_check)


def gather_nd(data: T, indices: T | ArrayLike) -> T:
    result: T = f.gather_nd(data, indices_of(indices))
    return result


gather_nd.__doc__ = f.gather_nd.__doc__


def scatter_nd(
    data: T,
    indices: T | ArrayLike,
    shape: Sequence[int] | None = None,
    out: T | None = None,
    add: bool = False,
) -> T:
    if out is not None and shape is not None:
        raise ArgumentError("scatter_nd: expected `shape` or `out`, got both")
    if out is not None and not isinstance(out, (Variable, NdArray)):
        raise CallError(f"scatter_nd: expected `out` to be a Variable or an NdArray, got {type(out).__name__}")
    result: T = f.scatter_nd(data, indices_of(indices), out, out.shape if out is not None else shape, add)
    return result


scatter_nd.__doc__ = f.scatter_nd.__doc__


def indices_of(given: Variable | NdArray | ArrayLike) -> Variable | NdArray:
    """Indices as an input of a function."""
    if isinstance(given, (Variable, NdArray)):
        return given
    return Variable.from_numpy_array(np.asarray(given, dtype=None if isinstance(given, np.ndarray) else np.int64))


def clip_by_value(x: T, min: T | float, max: T | float) -> T:
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
            raise CallError(f"clip_by_value: expected `{name}` to be a number, a Variable or an NdArray, got {bound!r}")
    arrays = (Variable, NdArray)
    above = f.maximum2(x, min) if isinstance(min, arrays) else f.maximum_scalar(x, float(min))
    result: T = f.minimum2(above, max) if isinstance(max, arrays) else f.minimum_scalar(above, float(max))
    return result


def clip_by_norm(x: T, clip_norm: T | float, axis: int | Sequence[int] | None = None) -> T:
    """Scale down to a norm: `y = clip_norm * x / norm(x)` where the norm is larger than `clip_norm`, else `x` as it is.

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
    # No number on the way is larger than what is clipped, so that any type holds it: not the square of the norm, nor
    # the norm, which is compared only.
    result: T
    if isinstance(clip_norm, (int, float, np.number)):
        if not clip_norm > 0:
            raise ArgumentError(f"clip_by_norm: expected `clip_norm` to be positive, got {clip_norm}")
        is_inside = f.less_equal_scalar(norm_for_where(x, axis), float(clip_norm))
        clipped = f.norm_normalization(x, 2.0, axis, 0.0)
        result = f.where(is_inside, x, clipped if clip_norm == 1 else f.mul_scalar(clipped, float(clip_norm)))
    elif isinstance(clip_norm, (Variable, NdArray)):
        shape: tuple[int, ...] = np.broadcast_shapes(tuple(x.shape), tuple(clip_norm.shape))
        if shape != tuple(x.shape):
            x = f.broadcast(f.reshape(x, (*(1,) * (len(shape) - len(x.shape)), *x.shape)), shape)
        is_inside = f.less_equal(f.maximum2(f.norm(x, 2.0, axis, True), x), clip_norm)
        result = f.where(is_inside, x, clip_norm * f.norm_normalization(x, 2.0, axis, 0.0))
    else:
        raise CallError(f"clip_by_norm: expected a number, a Variable or an NdArray as clip_norm, got {clip_norm!r}")
    return result


def norm_for_where(x: T, axis: int | Sequence[int] | None) -> T:
    """The Euclidean norm in a shape that a condition of `where` may have: the shape of `x`, or its first axes."""
    ndim = len(x.shape)
    axes = range(ndim) if axis is None else [int(axis)] if isinstance(axis, (int, np.integer)) else axis
    result: T
    if {k % ndim for k in axes} == set(range(ndim - len(axes), ndim)):
        result = f.norm(x, 2.0, axis)
    else:
        # The norm is no less than any element, so that their maximum is the norm.
        result = f.maximum2(f.norm(x, 2.0, axis, True), x)
    return result


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Product of arrays as `numpy.dot` has it: of the last axis of `a` with the last but one of `b`.

    Args:
        a: An array of any shape, or a number.
        b: An array of any shape, or a number; two vectors give a scalar, a scalar multiplies.
        out: Array that the result goes to, of its kind, shape and type of elements; a Variable takes the result's place
            in the graph. Where the result is a NumPy number, there is nothing to write to.

    Returns:
        The product: `out` if that is given, and is an array. It is NumPy's own if neither `a` nor `b` is an array of
        this library.

    Raises:
        ShapeError: If the lengths of these axes differ.
        ValueError: If `out` does not fit.
        TypeError: If an array of this library meets one of NumPy's.
    """
    arrays = (Variable, NdArray)
    ours = [isinstance(x, arrays) for x in (a, b)]
    if all(ours):
        result = matmul.dot(a, b)
    elif not any(ours):
        result = np.dot(a, b)
    else:
        x, factor = (a, b) if ours[0] else (b, a)
        if np.ndim(factor) != 0:
            raise CallError(f"dot: expected two arrays of this library or a number, got {type(factor).__name__}")
        result = x * float(factor)
    if out is None:
        return result
    if type(out) is not type(result) or out.shape != result.shape:
        got = f"{type(out).__name__} of shape {getattr(out, 'shape', '()')}"
        expected = f"{type(result).__name__} of shape {result.shape}"
        raise RangeError(f"dot: expected `out` to be {expected}, got {got}")
    if isinstance(out, arrays) and (out if isinstance(out, NdArray) else out.data).data.dtype.kind != "f":
        raise RangeError("dot: expected `out` to hold real numbers")
    if isinstance(out, Variable):
        out.rewire_on(result)
    elif isinstance(out, NdArray):
        out.copy_from(result)
    elif isinstance(out, np.ndarray):
        out[...] = result
    else:
        return result
    return out


def type_of(x: Any) -> np.dtype[Any]:
    """Type of the elements of a variable or an array.

    `float32` where there are none yet, and for anything else, which is refused elsewhere.
    """
    array = x.data if isinstance(x, Variable) else x
    try:
        return np.dtype(array.dtype if isinstance(array, NdArray) else np.float32)
    except GraphError:
        return np.dtype(np.float32)


def mod2(x0: T, x1: T, fmod: bool = False) -> T:
    result: T
    if type_of(x0).kind in "iub":
        with context_scope(Context(["cpu:double"])):  # float64 holds all whole numbers of 32 bits
            result = f.mod2(x0, x1, fmod)
    else:
        result = f.mod2(x0, x1, True)
    return result


mod2.__doc__ = f.mod2.__doc__


def bit_shift(x: T, shift: T, direction: str = "LEFT") -> T:
    """Whole numbers with their bits shifted, elementwise: `y = x * 2^shift`, or `y = x / 2^shift` rounded down.

    Its gradient is zero. What is shifted beyond the bits of the type of `x` is lost, where that is unsigned; otherwise
    a number has 63 bits.

    Args:
        x: Whole numbers, none of them negative, of any shape.
        shift: By how many bits, zero or more; its shape broadcasts against that of `x`.
        direction: `LEFT` or `RIGHT`.

    Returns:
        Whole numbers, of the shape that the two broadcast to.

    Raises:
        ArgumentError: If there is no such direction.
        ShapeError: If the shapes do not broadcast together.
        IndexError: If an element is not a whole number.
        ValueError: If an element is negative.
    """
    bits = min(63, 8 * type_of(x).itemsize) if type_of(x).kind == "u" else 63
    result: T = f.bit_shift(x, shift, direction, bits)
    return result


def stft(
    x: T,
    window_size: int,
    stride: int,
    fft_size: int,
    window_type: str | None = "hanning",
    center: bool = True,
    pad_mode: str = "reflect",
    as_istft_backward: bool = False,
) -> tuple[T, T]:
    window_type = "rectangular" if window_type is None else window_type
    re, im = f.stft(x, window_size, stride, fft_size, window_type, center, pad_mode, as_istft_backward)
    return re, im


stft.__doc__ = f.stft.__doc__


def istft(
    y_r: T,
    y_i: T,
    window_size: int,
    stride: int,
    fft_size: int,
    window_type: str | None = "hanning",
    center: bool = True,
    pad_mode: str = "reflect",
    as_stft_backward: bool = False,
) -> T:
    window_type = "rectangular" if window_type is None else window_type
    result: T = f.istft(y_r, y_i, window_size, stride, fft_size, window_type, center, pad_mode, as_stft_backward)
    return result


istft.__doc__ = f.istft.__doc__


def reduce(x: T, op: str = "sum") -> T:
    """Sum or mean of all elements. `sum` and `mean` say the same, and take axes too.

    Args:
        x: Input of any shape.
        op: `sum` or `mean`.

    Returns:
        A scalar.

    Raises:
        ArgumentError: If `op` is something else.
    """
    if op not in ("sum", "mean"):
        raise ArgumentError(f"reduce: expected `op` to be sum or mean, got {op!r}")
    result: T = f.sum(x) if op == "sum" else f.mean(x)
    return result
