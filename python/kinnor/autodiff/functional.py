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
from .engine import grad
from .nesting import differentiating, is_nested

__all__ = ["hessian", "jacobian", "jvp", "value_and_grad", "vjp"]

Function = Callable[..., Any]


@contextmanager
def at_once() -> Iterator[None]:
    """Compute at once, with a graph."""
    with auto_forward(), enable_grad():
        yield


def value_and_grad(
    func: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, create_graph: bool = False
) -> Function:
    """A function that returns what `func` returns, and its gradient.

    Args:
        func: Takes variables and returns a variable of one element.
        argnums: Number of the argument to differentiate by, or several.
        has_aux: `func` returns a pair of that variable and something else, which is passed on.
        create_graph: Make results that can be differentiated themselves, as they always can be within a function that
            is differentiated.

    Returns:
        A function of the same arguments that returns the value (the pair, with `has_aux`) and one gradient, or a tuple
        of them where several were asked for. Arguments may be arrays.

        >>> import numpy as np
        >>> from kinnor import autodiff, functions as F
        >>> value, gradient = autodiff.value_and_grad(lambda x: F.sum(x ** 3))(np.array([1.0, 2.0]))
        >>> value.item(), gradient.d.tolist()
        (9.0, [3.0, 12.0])
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(func)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        create = create_graph or is_nested()
        with at_once():
            given = [Variable.from_numpy_array(x) if isinstance(x, np.ndarray) else x for x in args]
            for n in numbers:
                given[n] = leaf(given[n], create)
            with differentiating():
                result = func(*given, **kwargs)
            value = result[0] if has_aux else result
            found = by_all([value], [given[n] for n in numbers], None, create, False)
        return result, found[0] if isinstance(argnums, int) else tuple(found)

    return differentiated


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The product of `v` with the Jacobian of `func`: what a backward run computes.

    Args:
        func: Takes variables and returns one or several.
        inputs: A variable or an array, or a tuple of them.
        v: As many as `func` returns, of these shapes; may be left out where it returns one element.
        create_graph: Make results that can be differentiated themselves, as they always can be within a function that
            is differentiated.
        strict: Raise where an output does not depend on an input, rather than give zeros.

    Returns:
        What `func` returns, and one product for each input; tuples where tuples were given.

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
        vs = None if v is None else like("vjp", ys, v, create_graph)
        found = by_all(ys, xs, vs, create_graph, strict)
    return released(ys, several_out, create_graph), restored(found, inputs)


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The product of the Jacobian of `func` with `v`: how it changes along `v`. It is found by differentiating twice.

    Args:
        func: Takes variables and returns one or several.
        inputs: A variable or an array, or a tuple of them.
        v: As many as there are inputs, of their shapes; may be left out where there is one of one element.
        create_graph: Make results that can be differentiated themselves, as they always can be within a function that
            is differentiated.
        strict: Raise where an output does not depend on an input, rather than give zeros.

    Returns:
        What `func` returns, and one product for each of that.

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
        vs = like("jvp", xs, 1.0 if v is None and all(x.size == 1 for x in xs) else v, create_graph)
        # The gradients are linear in what they start from: their derivative by that is the product.
        us = [leaf(np.zeros(y.shape), False) for y in ys]
        gradients = by_all(ys, xs, us, True, strict)
        found = by_all(gradients, us, vs, create_graph, False)
    return released(ys, several_out, create_graph), tuple(found) if several_out else found[0]


def jacobian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The Jacobian of `func`: the derivative of each element of what it returns by each element of what it takes.

    Args:
        func: Takes variables and returns one or several.
        inputs: A variable or an array, or a tuple of them.
        create_graph: Make results that can be differentiated themselves, as they always can be within a function that
            is differentiated.
        strict: Raise where an output does not depend on an input, rather than give zeros.

    Returns:
        An array of the shape of the output followed by that of the input; a tuple over outputs of tuples over inputs
        where there are several.

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
            rows = [by_all([y], xs, [unit(y, at)], create_graph, strict, retain=True) for at in range(y.size)]
            columns = zip(*rows, strict=True)
            blocks = (
                [joined(column, (*y.shape, *x.shape)) for x, column in zip(xs, columns, strict=True)]
                if rows
                else [leaf(np.zeros((*y.shape, *x.shape)), False) for x in xs]
            )
            found.append(restored([b if create_graph else b.detach() for b in blocks], inputs))
    return tuple(found) if several_out else found[0]


def hessian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The second derivatives of a function with one element as its value.

    Args:
        func: Takes variables and returns a variable of one element.
        inputs: A variable or an array, or a tuple of them.
        create_graph: Make results that can be differentiated themselves, as they always can be within a function that
            is differentiated.
        strict: Raise where the value or its gradient does not depend on an input, rather than give zeros.

    Returns:
        An array of the shape of the input twice; a tuple of tuples where there are several inputs.

    Raises:
        RuntimeError: If `func` returns something else than one element.

        >>> from kinnor import autodiff, functions as F
        >>> import numpy as np
        >>> autodiff.hessian(lambda x: F.sum(x ** 3), np.array([1.0, 2.0])).d.tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """

    def gradient(*xs: Variable) -> Any:
        y = func(*xs)
        if not isinstance(y, Variable) or y.size != 1:
            raise GraphError("hessian: expected a function that returns a Variable of one element")
        found = by_all([y], list(xs), None, True, strict)
        return tuple(found) if isinstance(inputs, tuple) else found[0]

    return jacobian(gradient, inputs, create_graph, strict)


def leaf(x: Any, create_graph: bool) -> Variable:
    """A variable to differentiate by. It continues the graph of `x`, or is a new leaf."""
    if not isinstance(x, Variable):
        array = x.data if isinstance(x, NdArray) else np.asarray(x)
        return Variable.from_numpy_array(array if array.dtype.kind == "f" else array.astype(np.float32), need_grad=True)
    if create_graph and x.requires_grad:
        return F.identity(x)
    # It has a gradient of its own. An unlinked copy would share the gradient of `x`.
    own = Variable(x.shape, need_grad=True)
    own.data = x.data
    return own


def evaluated(
    call: str, func: Function, inputs: Any, create_graph: bool
) -> tuple[list[Variable], list[Variable], bool]:
    """Inputs and outputs of `func`, and whether it returns several."""
    xs = [leaf(x, create_graph) for x in (inputs if isinstance(inputs, tuple) else (inputs,))]
    with differentiating():
        y = func(*xs)
    ys = list(y) if isinstance(y, (tuple, list)) else [y]
    for one in ys:
        if not isinstance(one, Variable):
            raise TypeError(f"{call}: expected a function that returns Variables, got {type(one).__name__}")
    return xs, ys, isinstance(y, (tuple, list))


def by_all(
    ys: list[Variable],
    xs: list[Variable],
    vs: list[Variable] | None,
    create_graph: bool,
    strict: bool,
    retain: bool | None = None,
) -> list[Variable]:
    """The gradients of `ys` by `xs`; zeros where nothing depends on them."""
    if not any(y.requires_grad for y in ys):
        if strict:
            raise GraphError(
                "autodiff: expected outputs that depend on the inputs with strict=True, got none that does"
            )
        return [leaf(np.zeros(x.shape), False) for x in xs]
    options = {} if strict else {"materialize_grads": True}
    return list(grad(ys, xs, vs, retain, create_graph, **options))  # type: ignore[arg-type]


def like(call: str, variables: list[Variable], given: Any, create_graph: bool) -> list[Variable]:
    """Vectors of the shapes of some variables, each with its graph if that is wanted."""
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
    """One at one element, zeros elsewhere."""
    one = np.zeros(y.size)
    one[at] = 1
    return Variable.from_numpy_array(one.reshape(y.shape))


def joined(rows: Sequence[Variable], shape: tuple[int, ...]) -> Variable:
    """Rows as one array."""
    return F.reshape(F.stack(*rows, axis=0), shape)


def released(ys: list[Variable], several: bool, create_graph: bool) -> Any:
    """What the function returned; without its graph unless that is wanted."""
    ys = ys if create_graph else [y.detach() for y in ys]
    return tuple(ys) if several else ys[0]


def restored(found: list[Variable], inputs: Any) -> Any:
    """One for each input, as these were given."""
    return tuple(found) if isinstance(inputs, tuple) else found[0]
