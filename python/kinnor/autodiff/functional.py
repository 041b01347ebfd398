"""Derivatives of Python functions of variables. The functions run eagerly in any mode.

A derivative inside a function that is itself differentiated keeps its graph, as with `create_graph=True`. To make an
argument a constant, `detach` it or use `no_grad`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import functions as F
from .._core import GraphError, NdArray, ShapeError, Variable
from ..grad_mode import enable_grad
from ..modes import auto_forward
from .engine import differentiating, grad, is_nested

__all__ = ["hessian", "jacobian", "jvp", "value_and_grad", "vjp"]

Function = Callable[..., Any]
"""A function of variables."""


@contextmanager
def at_once() -> Iterator[None]:
    """Runs functions eagerly and with gradients, in a `with` block."""
    with auto_forward(), enable_grad():
        yield


def value_and_grad(
    func: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, create_graph: bool = False
) -> Function:
    """A function that returns the result of `func` and its gradient.

    Args:
        func: A function from variables to a variable of one element.
        argnums: Index of the argument with respect to which to differentiate, or several.
        has_aux: Whether `func` returns a pair of that variable and any other object.
        create_graph: Whether results can be differentiated themselves. Inside of a function that is differentiated
            they always can.

    Returns:
        A function of the same arguments. It returns the result (the pair, with `has_aux`) and one gradient, or a tuple
        of gradients for several `argnums`. Arguments may be arrays.

        >>> import numpy as np
        >>> from kinnor import autodiff, functions as F
        >>> value, gradient = autodiff.value_and_grad(lambda x: F.sum(x ** 3))(np.array([1.0, 2.0]))
        >>> value.item(), gradient.d.tolist()
        (9.0, [3.0, 12.0])
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(func)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        """Returns the result of `func` and its gradient."""
        create = create_graph or is_nested()
        with at_once():
            given = [Variable.from_numpy_array(x) if isinstance(x, np.ndarray) else x for x in args]
            for n in numbers:
                given[n] = leaf(given[n], create)
            with differentiating():
                result = func(*given, **kwargs)
            value = result[0] if has_aux else result
            found = gradients_or_zeros([value], [given[n] for n in numbers], None, create, False)
        return result, found[0] if isinstance(argnums, int) else tuple(found)

    return differentiated


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The vector-Jacobian product of `func`, computed by one backward run.

    Args:
        func: A function from variables to one or several variables.
        inputs: A variable or an array, or a tuple of them.
        v: One array for each output, of its shape. It may be omitted for a single output of one element.
        create_graph: Whether results can be differentiated themselves. Inside of a function that is differentiated
            they always can.
        strict: Whether to raise an error if an output does not depend on an input, instead of returning zeros.

    Returns:
        The outputs of `func`, and one product for each input. Each is a tuple if `func` returns, or `inputs` is, one.

    Raises:
        RuntimeError: If `v` does not fit.

        >>> from kinnor import autodiff
        >>> import numpy as np
        >>> y, product = autodiff.vjp(lambda x: x * x, np.array([1.0, 2.0]), np.array([1.0, 10.0]))
        >>> product.d.tolist()
        [2.0, 40.0]
    """
    create_graph = create_graph or is_nested()
    with at_once():
        xs, ys, several_out = evaluated("vjp", func, inputs, create_graph)
        vs = None if v is None else vectors_of("vjp", ys, v, create_graph)
        found = gradients_or_zeros(ys, xs, vs, create_graph, strict)
    return as_returned(ys, several_out, create_graph), per_input(found, inputs)


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The Jacobian-vector product of `func`, its derivative along `v`. It is computed by two backward runs.

    Args:
        func: A function from variables to one or several variables.
        inputs: A variable or an array, or a tuple of them.
        v: One array for each input, of its shape. It may be omitted if all inputs have one element.
        create_graph: Whether results can be differentiated themselves. Inside of a function that is differentiated
            they always can.
        strict: Whether to raise an error if an output does not depend on an input, instead of returning zeros.

    Returns:
        The outputs of `func`, and one product for each output.

    Raises:
        RuntimeError: If `v` does not fit.

        >>> from kinnor import autodiff
        >>> import numpy as np
        >>> y, product = autodiff.jvp(lambda x: x * x, np.array([1.0, 2.0]), np.array([1.0, 10.0]))
        >>> product.d.tolist()
        [2.0, 40.0]
    """
    create_graph = create_graph or is_nested()
    with at_once():
        xs, ys, several_out = evaluated("jvp", func, inputs, create_graph)
        vs = vectors_of("jvp", xs, 1.0 if v is None and all(x.size == 1 for x in xs) else v, create_graph)
        # The vector-Jacobian product is linear in its vector. Its derivative along `v` is the result.
        us = [leaf(np.zeros(y.shape), False) for y in ys]
        gradients = gradients_or_zeros(ys, xs, us, True, strict)
        found = gradients_or_zeros(gradients, us, vs, create_graph, False)
    return as_returned(ys, several_out, create_graph), tuple(found) if several_out else found[0]


def jacobian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The Jacobian of `func`: the derivative of each output element with respect to each input element.

    Args:
        func: A function from variables to one or several variables.
        inputs: A variable or an array, or a tuple of them.
        create_graph: Whether results can be differentiated themselves. Inside of a function that is differentiated
            they always can.
        strict: Whether to raise an error if an output does not depend on an input, instead of returning zeros.

    Returns:
        A variable of shape (*output, *input). For several outputs or inputs, a tuple over outputs of tuples over
        inputs.

        >>> from kinnor import autodiff
        >>> import numpy as np
        >>> autodiff.jacobian(lambda x: x * x, np.array([1.0, 2.0])).d.tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """
    create_graph = create_graph or is_nested()
    with at_once():
        xs, ys, several_out = evaluated("jacobian", func, inputs, create_graph)
        found = []
        for y in ys:
            rows = [
                gradients_or_zeros([y], xs, [unit(y, at)], create_graph, strict, retain=True) for at in range(y.size)
            ]
            columns = zip(*rows, strict=True)
            blocks = (
                [joined(column, (*y.shape, *x.shape)) for x, column in zip(xs, columns, strict=True)]
                if rows
                else [leaf(np.zeros((*y.shape, *x.shape)), False) for x in xs]
            )
            found.append(per_input([b if create_graph else b.detach() for b in blocks], inputs))
    return tuple(found) if several_out else found[0]


def hessian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The Hessian of `func`: the second derivatives of a function with a single value.

    Args:
        func: A function from variables to a variable of one element.
        inputs: A variable or an array, or a tuple of them.
        create_graph: Whether results can be differentiated themselves. Inside of a function that is differentiated
            they always can.
        strict: Whether to raise an error if the value or its gradient does not depend on an input, instead of
            returning zeros.

    Returns:
        A variable of shape (*input, *input); for a tuple of inputs, a tuple of tuples.

    Raises:
        RuntimeError: If `func` does not return one element.

        >>> from kinnor import autodiff, functions as F
        >>> import numpy as np
        >>> autodiff.hessian(lambda x: F.sum(x ** 3), np.array([1.0, 2.0])).d.tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """

    def gradient(*xs: Variable) -> Any:
        """The gradient of `func`."""
        y = func(*xs)
        if not isinstance(y, Variable) or y.size != 1:
            raise GraphError("hessian: expected a function that returns a Variable of one element")
        found = gradients_or_zeros([y], list(xs), None, True, strict)
        return tuple(found) if isinstance(inputs, tuple) else found[0]

    return jacobian(gradient, inputs, create_graph, strict)


def leaf(x: Any, create_graph: bool) -> Variable:
    """A variable with respect to which to differentiate. It extends the graph of `x` if wanted, or is a new leaf."""
    if not isinstance(x, Variable):
        array = x.data if isinstance(x, NdArray) else np.asarray(x)
        return Variable.from_numpy_array(array if array.dtype.kind == "f" else array.astype(np.float32), need_grad=True)
    if create_graph and x.requires_grad:
        return F.identity(x)
    # The leaf needs its own gradient. An unlinked copy would share the gradient of `x`.
    own = Variable(x.shape, need_grad=True)
    own.data = x.data
    return own


def evaluated(
    call: str, func: Function, inputs: Any, create_graph: bool
) -> tuple[list[Variable], list[Variable], bool]:
    """Inputs and outputs of `func` as lists, and whether it returns several outputs."""
    xs = [leaf(x, create_graph) for x in (inputs if isinstance(inputs, tuple) else (inputs,))]
    with differentiating():
        y = func(*xs)
    ys = list(y) if isinstance(y, (tuple, list)) else [y]
    for one in ys:
        if not isinstance(one, Variable):
            raise TypeError(f"{call}: expected a function that returns Variables, got {type(one).__name__}")
    return xs, ys, isinstance(y, (tuple, list))


def gradients_or_zeros(
    ys: list[Variable],
    xs: list[Variable],
    vs: list[Variable] | None,
    create_graph: bool,
    strict: bool,
    retain: bool | None = None,
) -> list[Variable]:
    """The gradients of `ys` with respect to `xs`. Unused inputs get zeros, or raise an error if `strict`."""
    if not any(y.requires_grad for y in ys):
        if strict:
            raise GraphError(
                "autodiff: expected outputs that depend on the inputs with strict=True, got none that does"
            )
        return [leaf(np.zeros(x.shape), False) for x in xs]
    options = {} if strict else {"materialize_grads": True}
    return list(grad(ys, xs, vs, retain, create_graph, **options))  # type: ignore[arg-type]


def vectors_of(call: str, variables: list[Variable], given: Any, create_graph: bool) -> list[Variable]:
    """The argument `v` as a list with one variable for each of `variables`, of its shape."""
    many = list(given) if isinstance(given, tuple) else [given]
    if given is None or len(many) != len(variables):
        raise GraphError(f"{call}: expected v with {len(variables)} arrays, got {0 if given is None else len(many)}")
    made = []
    for x, v in zip(variables, many, strict=True):
        vector = v if isinstance(v, Variable) else Variable.from_numpy_array(np.asarray(v, np.float64))
        if vector.shape != x.shape and vector.size == 1 == x.size:
            vector = F.reshape(vector, x.shape) if create_graph else vector.reshape(x.shape, unlink=True)
        if vector.shape != x.shape:
            raise ShapeError(f"{call}: expected v of shape {x.shape}, got {vector.shape}")
        made.append(vector)
    return made


def unit(y: Variable, at: int) -> Variable:
    """A variable of the shape of `y` with a one at flat index `at` and zeros elsewhere."""
    one = np.zeros(y.size)
    one[at] = 1
    return Variable.from_numpy_array(one.reshape(y.shape))


def joined(rows: Sequence[Variable], shape: tuple[int, ...]) -> Variable:
    """Rows stacked and reshaped to `shape`."""
    return F.reshape(F.stack(*rows, axis=0), shape)


def as_returned(ys: list[Variable], several: bool, create_graph: bool) -> Any:
    """The outputs as `func` returned them, detached unless `create_graph`."""
    ys = ys if create_graph else [y.detach() for y in ys]
    return tuple(ys) if several else ys[0]


def per_input(found: list[Variable], inputs: Any) -> Any:
    """Results for each input: a tuple if `inputs` is one, else a single result."""
    return tuple(found) if isinstance(inputs, tuple) else found[0]
