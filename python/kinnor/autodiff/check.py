"""`gradcheck` and `gradgradcheck`: compare gradients with finite differences, in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import NdArray, Variable
from ..context import Context, context_scope
from .engine import grad
from .functional import at_once

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["gradcheck", "gradgradcheck"]

Function = Callable[..., Any]
"""A function of variables."""


def gradcheck(
    func: Function,
    inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Compares gradients of `func` with central finite differences.

    It checks gradients by kernels and gradients built as graphs. Everything runs eagerly and in double precision.

    Args:
        func: A deterministic function from variables to one or several variables.
        inputs: A variable or an array, or a tuple of them. Variables that do not require grad are constants.
        eps: Step of the differences.
        atol: Largest absolute error.
        rtol: Largest relative error.
        raise_exception: Whether to raise an error for a wrong gradient instead of returning False.

    Returns:
        True if all gradients are right.

    Raises:
        RuntimeError: If a gradient is wrong.
        ValueError: If no input requires grad.

        >>> from kinnor import autodiff, functions as F
        >>> import numpy as np
        >>> autodiff.gradcheck(F.tanh, np.array([0.5, -2.0]))
        True
    """
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    with context_scope(Context(["cpu:double"])), at_once():
        xs = [in_double(x) for x in given]
        wanted = differentiable(xs)
        problem = first_problem(func, xs, wanted, eps, atol, rtol)
    if problem and raise_exception:
        raise RuntimeError(f"gradcheck: {problem}")
    return not problem


def gradgradcheck(
    func: Function,
    inputs: Any,
    grad_outputs: Any = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Compares second derivatives of `func` with finite differences of its first derivatives.

    Args:
        func: A deterministic function from variables to one or several variables.
        inputs: A variable or an array, or a tuple of them.
        grad_outputs: The gradients of the outputs, a tuple; random numbers by default. Derivatives with respect to
            them are checked, too.
        eps: Step of the differences.
        atol: Largest absolute error.
        rtol: Largest relative error.
        raise_exception: Whether to raise an error for a wrong derivative instead of returning False.

    Returns:
        True if all second derivatives are right.

        >>> from kinnor import autodiff, functions as F
        >>> import numpy as np
        >>> autodiff.gradgradcheck(lambda x, y: x * F.exp(y), (np.array([0.5, -2.0]), np.array([1.0, 0.1])))
        True
    """
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    with context_scope(Context(["cpu:double"])), at_once():
        xs = [in_double(x) for x in given]
        ys = outputs_of(func, xs)
        if grad_outputs is None:
            numbers = np.random.RandomState(0)
            grad_outputs = tuple(numbers.uniform(-1, 1, y.shape) for y in ys)
        wanted = differentiable(xs)

    def gradient(*arguments: Variable) -> tuple[Any, ...]:
        """The first derivatives of `func` for its inputs and output gradients."""
        xs, gs = arguments[: len(given)], arguments[len(given) :]
        ys = outputs_of(func, xs)
        return grad(ys, [xs[i] for i in wanted], gs, create_graph=True, materialize_grads=True)

    return gradcheck(gradient, (*xs, *grad_outputs), eps, atol, rtol, raise_exception)


def in_double(x: Any) -> Variable:
    """A leaf with the values of `x` in double precision."""
    need_grad = x.requires_grad if isinstance(x, Variable) else True
    values = x.d if isinstance(x, Variable) else x.data if isinstance(x, NdArray) else np.asarray(x)
    if values.dtype.kind != "f" and isinstance(x, Variable):
        return x.get_unlinked_variable(need_grad=need_grad)
    return Variable.from_numpy_array(values.astype(np.float64), need_grad=need_grad)


def differentiable(xs: Sequence[Variable]) -> list[int]:
    """Indices of the inputs that require grad. Raises ValueError if there are none."""
    wanted = [i for i, x in enumerate(xs) if x.requires_grad]
    if not wanted:
        raise ValueError("gradcheck: expected an input that requires grad, got none")
    return wanted


def outputs_of(func: Function, xs: Sequence[Variable]) -> list[Variable]:
    """The outputs of `func` as a list."""
    y = func(*xs)
    return list(y) if isinstance(y, (tuple, list)) else [y]


def first_problem(
    func: Function, xs: list[Variable], wanted: list[int], eps: float, atol: float, rtol: float
) -> str | None:
    """A description of the first wrong gradient, or None if all are right."""
    values = [y.d.copy() for y in outputs_of(func, xs)]
    again = [y.d.copy() for y in outputs_of(func, xs)]
    if any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(values, again, strict=True)):
        return "expected a function that returns the same for the same values, got other values the second time"
    for i in wanted:
        expected = differences(func, xs, i, eps, values)
        for create_graph, rule in ((False, "by kernels"), (True, "as graphs")):
            for o, analytic in enumerate(derivatives(func, xs, i, create_graph)):
                if not np.allclose(analytic, expected[o], rtol, atol):
                    return (
                        f"expected the Jacobian of output {o} by input {i} to be, by differences,\n{expected[o]}\n"
                        f"got, {rule},\n{analytic}"
                    )
    return None


def differences(
    func: Function, xs: list[Variable], i: int, eps: float, values: list[NDArray[Any]]
) -> list[NDArray[Any]]:
    """The Jacobian of each output with respect to input `i`, by central differences."""
    jacobians = [np.zeros((y.size, xs[i].size)) for y in values]
    start = xs[i].d.copy()
    for at in range(start.size):
        sides = []
        for step in (eps, -eps):
            moved = start.copy()
            moved.flat[at] += step
            ys = outputs_of(func, [*xs[:i], Variable.from_numpy_array(moved, need_grad=True), *xs[i + 1 :]])
            sides.append([y.d.astype(np.float64).ravel() for y in ys])
        for jacobian, after, before in zip(jacobians, *sides, strict=True):
            jacobian[:, at] = (after - before) / (2 * eps)
    return jacobians


def derivatives(func: Function, xs: list[Variable], i: int, create_graph: bool) -> list[NDArray[Any]]:
    """The Jacobian of each output with respect to input `i`, by differentiation."""
    jacobians = []
    for y in outputs_of(func, xs):
        rows = np.zeros((y.size, xs[i].size))
        for at in range(y.size if y.requires_grad else 0):
            unit = np.zeros(y.size)
            unit[at] = 1
            (g,) = grad(y, xs[i], unit.reshape(y.shape), True, create_graph, materialize_grads=True)
            rows[at] = g.d.ravel()
        jacobians.append(rows)
    return jacobians
