"""Symbolic gradients: `grad` extends the graph by gradients, which can be differentiated again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _check, _core
from ._core import NdArray, RangeError, ShapeError, Variable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["grad"]


def grad(
    outputs: Variable | Iterable[Variable],
    inputs: Variable | Iterable[Variable],
    grad_outputs: Any = None,
    persistent_outputs: Sequence[bool] = (),
    bind_grad_output: bool = False,
) -> list[Variable]:
    """Gradients of `outputs` with respect to `inputs` as variables of the graph, differentiable to any order.

    In a static graph, call `forward` on the results. With `auto_forward` they have values immediately.

    Args:
        outputs: Variables to differentiate.
        inputs: Variables with respect to which to differentiate.
        grad_outputs: The gradients of the outputs, ones by default: a number or an array for all outputs, or a list
            with one entry for each output. Entries are None, numbers, arrays, NdArrays or Variables.
        persistent_outputs: For each output, whether to make it persistent; by default all are.
        bind_grad_output: Whether each result shares its array with the `.grad` of its input.

    Returns:
        One variable for each input; zeros of the input's shape if no output depends on it.

    Raises:
        ValueError: If an argument has another type or length, or a shape does not fit.

        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.Variable((1,), need_grad=True)
        >>> x.d = 3
        >>> (dx,) = nn.grad(x ** 3, x)
        >>> (ddx,) = nn.grad(dx, x)
        >>> ddx.forward()
        >>> ddx.d.tolist()
        [18.0]
    """
    ys, xs = variables("outputs", outputs), variables("inputs", inputs)
    keep = list(persistent_outputs) or [True] * len(ys)
    if len(keep) != len(ys):
        raise RangeError(f"grad: expected persistent_outputs for {len(ys)} outputs, got {len(keep)}")
    for y in ys:
        if y.parent is None:
            raise RangeError("grad: expected outputs that functions compute, got a variable without parent")
    seeds = starting_gradients(ys, grad_outputs)
    for y, persistent in zip(ys, keep, strict=True):
        y.persistent = persistent
    found = _core.grad_graph(ys, xs, seeds)
    results = [computed(g, x) for g, x in zip(found, xs, strict=True)]
    if bind_grad_output:
        for x, g in zip(xs, results, strict=True):
            x.grad = g.data
    return results


def variables(what: str, given: Any) -> list[Variable]:
    """A list of one or several variables. Raises RangeError for other types; `what` is the argument's name."""
    if isinstance(given, Variable):
        return [given]
    if not isinstance(given, Iterable):
        raise RangeError(f"grad: expected {what} to be a Variable or several, got {given!r}")
    many = _check.items("grad", what, given)
    for one in many:
        if not isinstance(one, Variable):
            raise RangeError(f"grad: expected {what} to be Variables, got {type(one).__name__}")
    return many


def starting_gradients(outputs: list[Variable], given: Any) -> list[Variable]:
    """The argument `grad_outputs` as variables, one for each output."""
    if given is None or isinstance(given, (int, float, np.ndarray, np.generic, NdArray, Variable)):
        each = [given] * len(outputs)
    else:
        each = _check.items("grad", "grad_outputs", given)
        if len(each) != len(outputs):
            raise RangeError(f"grad: expected {len(outputs)} grad_outputs, got {len(each)}")
    return [starting_gradient(y, g) for y, g in zip(outputs, each, strict=True)]


def starting_gradient(y: Variable, given: Any) -> Variable:
    """The gradient of one output as a variable of its shape."""
    if isinstance(given, Variable):
        seed = given
    elif isinstance(given, NdArray):
        seed = Variable(given.shape)
        seed.data = given
    elif isinstance(given, np.ndarray):
        seed = Variable.from_numpy_array(given)
    elif given is None or isinstance(given, (int, float, np.generic)):
        seed = Variable(y.shape)
        seed.d = 1.0 if given is None else float(given)
    else:
        raise RangeError(f"grad: expected a number, an array or a Variable in grad_outputs, got {type(given).__name__}")
    if seed.shape != y.shape:
        raise ShapeError(f"grad: expected grad_outputs of shape {y.shape}, got {seed.shape}")
    return seed


def computed(g: Variable | None, x: Variable) -> Variable:
    """The gradient `g` of `x` as the output of a function, so that `forward` works on it. None becomes zeros."""
    from . import functions as F

    if g is None:
        return F.constant(0.0, x.shape)
    # A variable from `grad_outputs` may come through unchanged.
    return g if g.parent is not None else F.identity(g)
