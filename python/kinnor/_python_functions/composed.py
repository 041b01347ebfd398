"""Functions that are composed of several operations, or accept more kinds of arguments than their operation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import _core
from .._check import arrays, as_whole, flag, is_truth
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
    """Raises ArgumentError if running statistics would be overwritten but are computed by a function of the graph."""
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
    """A slice of the array: for each axis, every `step`-th element from `start` up to but not including `stop`.

    As in Python, negative positions count from the end, positions beyond the ends are clipped, and a negative step
    runs backward. None means the end of the axis, even if `x` gets another shape later. `x[...]` is a shorter form.

    Args:
        x: Input of any shape.
        start: First position along each axis. None, for all axes or for one, is the start (the end if `step` is
            negative). Here and below, fewer entries than axes apply to the last axes.
        stop: Position along each axis to stop before; None is the end (the start if `step` is negative).
        step: Step along each axis; None is 1.
        n_outputs: No effect.
        outputs: Array to write to.

    Returns:
        Array with as many axes as `x`.

    Raises:
        ArgumentError: If a step is zero, or there are more entries than axes.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        >>> F.slice(x, start=(0, 1), stop=(2, 3)).data
        array([[2., 3.],
               [5., 6.]], dtype=float32)
        >>> F.slice(x, start=(0, 0), stop=(1, 3), step=(1, 2)).data
        array([[1., 3.]], dtype=float32)
    """
    if not isinstance(x, (Variable, NdArray)):
        arrays("slice", x=x)
    given = [entries(name, each) for name, each in (("start", start), ("stop", stop), ("step", step))]
    result: T = f.slice(x, *(of_last_axes(len(x.shape), each) for each in given), outputs=outputs)
    return result


def of_last_axes(ndim: int, given: Sequence[int | None] | None) -> list[int | None] | None:
    """The entries `given` for the last axes, with None in front for each other axis."""
    return None if given is None else [*([None] * (ndim - len(given))), *given]


def entries(name: str, given: int | Iterable[int | None] | None) -> list[int | None] | None:
    """The argument `start`, `stop` or `step` of `slice` as a checked list."""
    if given is None:
        return None
    found = list(given) if isinstance(given, (list, tuple, Iterable)) else [given]
    whole = [entry if entry is None or type(entry) is int else as_whole(entry) for entry in found]
    if all((entry is None) == (n is None) for entry, n in zip(found, whole, strict=True)):
        return whole
    raise CallError(f"slice: expected `{name}` to be integers or None, got {given!r}")


def forget(
    func: Callable[..., Any], *xs: Any, preserve_rng_state: bool = True, determinism_check: str = "default"
) -> Any:
    """Calls a function without saving its intermediate results. They are recomputed for the backward run.

    This trades time for memory (activation checkpointing): only inputs and outputs of `func(*xs)` are saved. In eager
    execution (`auto_forward`), `func` is called once without a graph, and again with a graph in each backward run. In a
    static graph `func` is called once, and its values are recomputed as with `kinnor.recompute`. Parameters and other
    outer variables that `func` reads get ordinary gradients, of any order.

    `func` must be deterministic. Random functions draw the same numbers in each call, and batch normalization updates
    its statistics once. `kinnor.config.in_recomputing` is True in later calls.

    Args:
        func: A function from variables to a variable or a tuple of variables.
        xs: The arguments of `func`; arrays become variables.
        preserve_rng_state: Whether later calls draw the same random numbers.
        determinism_check: Comparison of later calls with the first: `"default"` compares number, shapes and types of
            the outputs, `"values"` also a hash of their values, `"none"` only number and shapes.

    Returns:
        The result of `func`; a tuple of one becomes a single variable.

    Raises:
        TypeError: If `func` is not callable.
        RuntimeError: If `func` returns anything but variables.
        RecomputeError: In a backward run, if the result of `func` differs from the first call.
        ShapeError: If an input has another shape in a later forward run.
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
    """Indices as a Variable or NdArray."""
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
        TypeError: If a bound is not a number, Variable or NdArray.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([-2.0, 0.5, 2.0])
        >>> F.clip_by_value(x, -1.0, 1.0).data
        array([-1. ,  0.5,  1. ], dtype=float32)
    """
    for name, bound in (("min", min), ("max", max)):
        is_known = isinstance(bound, (float, int, np.number, Variable, NdArray))
        if not is_known or (type(bound) is bool and is_truth(bound)):
            raise CallError(f"clip_by_value: expected `{name}` to be a number, a Variable or an NdArray, got {bound!r}")
    arrays = (Variable, NdArray)
    above = f.maximum2(x, min) if isinstance(min, arrays) else f.maximum_scalar(x, float(min))
    result: T = f.minimum2(above, max) if isinstance(max, arrays) else f.minimum_scalar(above, float(max))
    return result


def clip_by_norm(x: T, clip_norm: T | float, axis: int | Sequence[int] | None = None) -> T:
    """Clip the norm: `y = clip_norm * x / norm(x)` where the norm is larger than `clip_norm`, else `y = x`.

    Args:
        x: Input of any shape.
        clip_norm: Largest Euclidean norm, a positive number or an array that broadcasts.
        axis: Axis or axes of the norm, all by default.

    Returns:
        Array of the shape of `x`.

    Raises:
        ValueError: If `clip_norm` is a number that is not positive.
        TypeError: If `clip_norm` is not a number, Variable or NdArray.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([3.0, 4.0])
        >>> F.clip_by_norm(x, 1.0).data.round(3)
        array([0.6, 0.8], dtype=float32)
        >>> F.clip_by_norm(x, 10.0).data
        array([3., 4.], dtype=float32)
    """
    if not isinstance(x, (Variable, NdArray)):
        arrays("clip_by_norm", x=x)
    # The norm is compared but never squared or multiplied, so that no intermediate result overflows.
    result: T
    if isinstance(clip_norm, (int, float, np.number)) and not is_truth(clip_norm):
        if not clip_norm > 0:
            raise ArgumentError(f"clip_by_norm: expected `clip_norm` to be positive, got {clip_norm}")
        ndim = len(x.shape)
        axes = range(ndim) if axis is None else [int(axis)] if isinstance(axis, (int, np.integer)) else axis
        # `where` broadcasts a condition that lacks the last axes.
        are_last = {k % ndim for k in axes} == set(range(ndim - len(axes), ndim))
        norm = f.norm(x, 2.0, axis, not are_last)
        # No element is larger than the norm. The maximum repeats the norm along `x`, also if the shape of `x` changes.
        norm = norm if are_last else f.maximum2(norm, x)
        is_inside = without_gradient(f.less_equal_scalar(norm, float(clip_norm)))
        clipped = f.norm_normalization(x, 2.0, axis, 0.0)
        result = f.where(is_inside, x, clipped if clip_norm == 1 else f.mul_scalar(clipped, float(clip_norm)))
    elif isinstance(clip_norm, (Variable, NdArray)):
        shape: tuple[int, ...] = np.broadcast_shapes(tuple(x.shape), tuple(clip_norm.shape))
        if shape != tuple(x.shape):
            x = f.broadcast(f.reshape(x, (*(1,) * (len(shape) - len(x.shape)), *x.shape)), shape)
        is_inside = without_gradient(f.less_equal(f.maximum2(f.norm(x, 2.0, axis, True), x), clip_norm))
        result = f.where(is_inside, x, clip_norm * f.norm_normalization(x, 2.0, axis, 0.0))
    else:
        expected = "`clip_norm` to be a number, a Variable or an NdArray"
        raise CallError(f"clip_by_norm: expected {expected}, got {clip_norm!r}")
    return result


def without_gradient(condition: T) -> T:
    """The condition, marked so that backward runs do not visit the functions that made it."""
    if isinstance(condition, Variable):
        condition.need_grad = False
    return condition


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """The product of arrays, like `numpy.dot`: the last axis of `a` with the second to last of `b`.

    Args:
        a: An array of any shape, or a number.
        b: An array of any shape, or a number; two vectors give a scalar, a scalar multiplies.
        out: Array to write the result to, of the same class, shape and element type. A Variable becomes the result in
            the graph. It is ignored if the result is a NumPy number.

    Returns:
        The product, which is `out` if given. It is a NumPy array or number if neither `a` nor `b` is a Variable or
        NdArray.

    Raises:
        ShapeError: If the lengths of these axes differ.
        ValueError: If `out` does not fit.
        TypeError: If one operand is a Variable or NdArray, and the other a NumPy array.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
        >>> y = nn.NdArray.from_numpy_array([1.0, 10.0])
        >>> F.dot(x, y).data
        array([21., 43.], dtype=float32)
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
    """The element type of a variable or an array; float32 if it has no values yet, or is anything else."""
    array = x.data if isinstance(x, Variable) else x
    try:
        return np.dtype(array.dtype if isinstance(array, NdArray) else np.float32)
    except GraphError:
        return np.dtype(np.float32)


def mod2(x0: T, x1: T, fmod: bool = False) -> T:
    result: T
    fmod = flag("mod2", "fmod", fmod)
    if type_of(x0).kind in "iub":
        with context_scope(Context(["cpu:double"])):  # float64 is exact for 32-bit integers
            result = f.mod2(x0, x1, fmod)
    else:
        result = f.mod2(x0, x1, True)
    return result


mod2.__doc__ = f.mod2.__doc__


def bit_shift(x: T, shift: T, direction: str = "LEFT") -> T:
    """Bit shift of integers, elementwise: `y = x * 2^shift`, or `y = x / 2^shift` rounded down.

    The gradient is zero. For unsigned types, bits beyond the width of the type of `x` are lost. Other types have 63
    bits.

    Args:
        x: Non-negative integers of any shape.
        shift: Number of bits, zero or more; broadcasts with `x`.
        direction: `LEFT` or `RIGHT`.

    Returns:
        Integers of the broadcast shape.

    Raises:
        ArgumentError: If `direction` is unknown.
        ShapeError: If the shapes do not broadcast.
        IndexError: If an element is not an integer.
        ValueError: If an element is negative.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x, bits = nn.NdArray.from_numpy_array([1, 2, 12]), nn.NdArray.from_numpy_array([3, 1, 2])
        >>> F.bit_shift(x, bits).data
        array([ 8,  4, 48])
        >>> F.bit_shift(x, bits, direction="RIGHT").data
        array([0, 1, 3])
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
    """Sum or mean of all elements. `sum` and `mean` do the same, and accept axes.

    Args:
        x: Input of any shape.
        op: `sum` or `mean`.

    Returns:
        A scalar.

    Raises:
        ArgumentError: If `op` is neither.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
        >>> F.reduce(x, op="mean").data
        array(2.5, dtype=float32)
    """
    if op not in ("sum", "mean"):
        raise ArgumentError(f"reduce: expected `op` to be sum or mean, got {op!r}")
    result: T = f.sum(x) if op == "sum" else f.mean(x)
    return result
