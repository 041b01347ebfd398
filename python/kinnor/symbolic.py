"""Gradients as graphs: `grad` returns variables that can be differentiated again."""

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
    """Gradients of `outputs` by `inputs` as variables of the graph; they can be differentiated again, to any order.

    Nothing runs: forward what comes out (in dynamic mode it is there at once).

    Args:
        outputs: What to differentiate. They are made persistent.
        inputs: What to differentiate by.
        grad_outputs: The gradients to start from, ones by default: a number or an array for every output, or a list
            with one entry for each, of None, numbers, arrays, NdArrays or Variables.
        persistent_outputs: For each output, whether to make it persistent.
        bind_grad_output: Share each result with the `.grad` of its input.

    Returns:
        One variable for each input; zeros of the input's shape where no output depends on it.

    Raises:
        ValueError: If an argument is of another type or number, or a shape does not fit.

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
    """A list of variables from one or several."""
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
    """The gradients to start from as variables, one for each output."""
    if given is None or isinstance(given, (int, float, np.ndarray, np.generic, NdArray, Variable)):
        each = [given] * len(outputs)
    else:
        each = _check.items("grad", "grad_outputs", given)
        if len(each) != len(outputs):
            raise RangeError(f"grad: expected {len(outputs)} grad_outputs, got {len(each)}")
    return [starting_gradient(y, g) for y, g in zip(outputs, each, strict=True)]


def starting_gradient(y: Variable, given: Any) -> Variable:
    """The gradient to start from for one output."""
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
    """The gradient that was found for `x` as the result of a function, so that it can be forwarded in any case."""
    from . import functions as F

    if g is None:
        return F.constant(0.0, x.shape)
    # What was given to start from may have come through as it is.
    return g if g.parent is not None else F.identity(g)
