"""`backward` and `grad`: check the arguments and call the engine."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from .. import _check, _core
from .._core import GraphError, NdArray, ShapeError, Variable
from ..grad_mode import is_grad_enabled
from .graph import AccumulateGrad, GradientEdge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["backward", "differentiating", "grad", "is_nested"]

Edge: TypeAlias = "Variable | GradientEdge"
"""A place in a graph where gradients start or end."""
Seed: TypeAlias = "Variable | NdArray | NDArray[Any] | float | None"
"""The gradient of one variable to start from; None for ones."""
Edges: TypeAlias = "Edge | Iterable[Edge]"
"""One place or several."""
Seeds: TypeAlias = "Seed | Iterable[Seed]"
"""One gradient or several, one for each variable."""


def backward(
    variables: Edges,
    grad_variables: Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Edges | None = None,
) -> None:
    """Adds the gradients of `variables` to the `.g` of the leaves. If it fails, no `.g` changes.

    Args:
        variables: One or several variables to differentiate. Variables that do not require grad are skipped.
        grad_variables: The gradients of `variables`, one for each: Variables, arrays or numbers of their shapes. None
            means 1, for a variable of one element.
        retain_graph: Whether to keep saved values, so that the graph can be differentiated again; by default the same
            as `create_graph`.
        create_graph: Whether the gradients can be differentiated themselves; see `Variable.grad_variable`. Set `.grad`
            to None afterwards, or the leaves and the graph keep each other alive.
        inputs: The leaves to add to; by default all. Only functions on the way to them run, and only their saved
            values are freed.

    Raises:
        RuntimeError: If none of `variables` requires grad, or gradients are missing or do not fit. Also if `inputs` is
            empty or has an item other than a leaf that requires grad.
        GraphFreedError: If the graph was differentiated before and not retained.
        ModifiedError: If a needed value changed since it was computed.
        TypeError: If an argument is not a Variable.

        >>> import kinnor as nn
        >>> from kinnor import autodiff
        >>> with nn.auto_forward():
        ...     x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        ...     y, z = x * 3, nn.functions.sum(x * x)
        ...     autodiff.backward([y, z], [[1.0, 10.0], None])
        >>> x.g.tolist()
        [5.0, 34.0]
    """
    simple = grad_variables is None and inputs is None and create_graph is False
    if simple and _core.backward_of_loss(variables, retain_graph):
        return
    ys = edges("backward", "variables", variables)
    seeds = starting_gradients("backward", ys, grad_variables)
    xs = None if inputs is None else leaves(inputs)
    create_graph, retain = graph_flags("backward", retain_graph, create_graph)
    _core.differentiate(
        [core_edge(y) for y in ys],
        seeds,
        None if xs is None else [core_edge(x) for x in xs],
        retain,
        create_graph,
        None,
    )


@overload
def grad(
    outputs: Edges,
    inputs: Edges,
    grad_outputs: Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: Literal[False] | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Variable, ...]: ...
@overload
def grad(
    outputs: Edges,
    inputs: Edges,
    grad_outputs: Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    *,
    allow_unused: bool,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Variable | None, ...]: ...
def grad(
    outputs: Edges,
    inputs: Edges,
    grad_outputs: Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Variable | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, which may be leaves or computed. No `.g` changes.

    Args:
        outputs: One or several variables to differentiate.
        inputs: One or several variables with respect to which to differentiate.
        grad_outputs: The gradients of `outputs`, like `grad_variables` of `backward`.
        retain_graph: Whether to keep saved values, like `retain_graph` of `backward`.
        create_graph: Whether results can be differentiated themselves. Inside of a function that is differentiated,
            for example by `value_and_grad`, they always can, except under `no_grad`.
        only_inputs: No effect.
        allow_unused: Whether to return None for an input that no output depends on. Otherwise it is an error.
        is_grads_batched: Whether the first axis of each of `grad_outputs` is a batch of gradients. Results have the
            same first axis. They are computed one by one.
        materialize_grads: Whether to return zeros instead of None.

    Returns:
        One gradient for each input. It requires grad if `create_graph` is set.

    Raises:
        RuntimeError: In the cases of `backward`, and if an input does not require grad or is not used.
        ValueError: If `materialize_grads` is set and `allow_unused` is False.

        >>> import kinnor as nn
        >>> from kinnor import autodiff
        >>> with nn.auto_forward():
        ...     x = nn.Variable.from_numpy_array(0.5, need_grad=True)
        ...     y = nn.functions.sin(x)
        ...     for _ in range(10):
        ...         (y,) = autodiff.grad(y, x, create_graph=True)
        >>> round(y.item(), 6), round(-float(np.sin(0.5)), 6)
        (-0.479426, -0.479426)
    """
    if not only_inputs:
        text = "grad: only_inputs=False has no effect; use autodiff.backward to add to the gradients of leaves"
        warnings.warn(text, FutureWarning, stacklevel=2)
    create_graph = _check.flag("grad", "create_graph", create_graph) or is_nested()
    create_graph, retain = graph_flags("grad", retain_graph, create_graph)
    materialize_grads = _check.flag("grad", "materialize_grads", materialize_grads)
    if allow_unused is not None:
        allow_unused = _check.flag("grad", "allow_unused", allow_unused)
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: expected allow_unused to be True or left out with materialize_grads, got False")
    ys, xs = edges("grad", "outputs", outputs), edges("grad", "inputs", inputs)
    if not xs:
        raise GraphError("grad: expected inputs, but the `inputs` argument to grad() cannot be empty")
    for i, x in enumerate(xs):
        if not requires_grad(x):
            raise GraphError(f"grad: One of the differentiated Variables does not require grad: number {i} of inputs")
    unused = bool(allow_unused) or materialize_grads
    if _check.flag("grad", "is_grads_batched", is_grads_batched):
        found = batched_gradients(ys, xs, grad_outputs, retain, create_graph, unused)
    else:
        seeds = starting_gradients("grad", ys, grad_outputs)
        found = gradients_of(ys, xs, seeds, retain, create_graph, unused)
    if not materialize_grads:
        return tuple(found)
    return tuple(zeros(x, create_graph) if g is None else g for x, g in zip(xs, found, strict=True))


def graph_flags(op: str, retain_graph: Any, create_graph: Any) -> tuple[bool, bool]:
    """The checked `create_graph`, and `retain_graph` with its default."""
    create = _check.flag(op, "create_graph", create_graph)
    return create, create if retain_graph is None else _check.flag(op, "retain_graph", retain_graph)


def gradients_of(
    ys: list[Edge], xs: list[Edge], seeds: list[Variable | None], retain: bool, create_graph: bool, unused: bool
) -> list[Variable | None]:
    """The gradients of `ys` with respect to `xs`. Unused inputs are None if `unused`, else an error."""
    outputs, inputs = [core_edge(y) for y in ys], [core_edge(x) for x in xs]
    return _core.differentiate(outputs, seeds, inputs, retain, create_graph, unused)


def batched_gradients(
    ys: list[Edge], xs: list[Edge], given: Any, retain: bool, create_graph: bool, unused: bool
) -> list[Variable | None]:
    """The gradients for each item of a batch of output gradients, stacked along a new first axis."""
    from .. import functions as F
    from ..modes import auto_forward

    batches = [np.asarray(g.d if isinstance(g, Variable) else g) for g in several("grad", given)]
    sizes = {batch.shape[0] if batch.ndim else None for batch in batches}
    if len(batches) != len(ys) or len(sizes) != 1 or None in sizes:
        raise GraphError(f"grad: expected a batch of gradients for each of {len(ys)} outputs, all of one length")
    for i, (y, batch) in enumerate(zip(ys, batches, strict=True)):
        if isinstance(y, Variable) and batch.shape[1:] != y.shape:
            raise ShapeError(f"grad: expected gradients of shape (batch, *{y.shape}) for output {i}, got {batch.shape}")
    n = len(batches[0])
    rows = []
    for at in range(n):
        seeds = starting_gradients("grad", ys, [batch[at] for batch in batches])
        rows.append(gradients_of(ys, xs, seeds, retain or at < n - 1, create_graph, unused))
    outer = _core.set_grad_mode(create_graph)
    try:
        with auto_forward():
            return [None if column[0] is None else F.stack(*column, axis=0) for column in zip(*rows, strict=True)]
    finally:
        _core.set_grad_mode(outer)


def zeros(x: Edge, need_grad: bool) -> Variable:
    """The zero gradient of an unused input."""
    if not isinstance(x, Variable):
        raise GraphError("grad: expected Variables with materialize_grads, got a GradientEdge that is not used")
    return Variable.from_numpy_array(np.zeros(x.shape, np.float32), need_grad=need_grad)


def several(call: str, given: Any) -> list[Any]:
    """One or several output gradients as a list."""
    one = (Variable, NdArray, np.ndarray, np.generic, int, float)
    if given is None or isinstance(given, one):
        return [given]
    if not is_list(given):
        raise TypeError(f"{call}: expected a Variable, an array or a number as gradient 0, got {type(given).__name__}")
    return _check.items(call, "gradients", given)


def is_list(given: Any) -> bool:
    """True for an iterable other than a string or mapping."""
    return isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))


def edges(call: str, what: str, given: Any) -> list[Edge]:
    """One or several variables and edges as a checked list."""
    if isinstance(given, (Variable, GradientEdge)):
        return [given]
    many = _check.items(call, what, given) if is_list(given) else [given]
    for one in many:
        if not isinstance(one, (Variable, GradientEdge)):
            raise TypeError(f"{call}: expected {what} to be Variables, got {type(one).__name__}")
    return many


def leaves(given: Any) -> list[Edge]:
    """The checked argument `inputs` of `backward`: leaves that require grad."""
    xs = edges("backward", "inputs", given)
    if not xs:
        raise GraphError("backward: expected leaves to add to, but inputs cannot be empty")
    for i, x in enumerate(xs):
        if not requires_grad(x):
            raise GraphError(f"backward: expected inputs that require grad, got one that does not: number {i}")
        if not (x.is_leaf if isinstance(x, Variable) else isinstance(x.node, AccumulateGrad)):
            raise GraphError(f"backward: expected inputs that are leaves, got what a function computes: number {i}")
    return xs


def requires_grad(edge: Edge) -> bool:
    """True if a variable or edge requires grad."""
    if isinstance(edge, Variable):
        return edge.requires_grad
    return edge.node.variable.requires_grad if isinstance(edge.node, AccumulateGrad) else True


def core_edge(edge: Edge) -> Any:
    """An edge in the engine's form: a variable, or a function and the index of its output."""
    if isinstance(edge, Variable):
        return edge
    return edge.node.variable if isinstance(edge.node, AccumulateGrad) else (edge.node.function, edge.output_nr)


def starting_gradients(call: str, ys: list[Edge], given: Any) -> list[Variable | None]:
    """The gradients of `ys` as variables. None means 1."""
    if not ys:
        raise GraphError(f"{call}: expected variables to differentiate, got none")
    if not any(map(requires_grad, ys)):
        raise GraphError(
            f"{call}: expected a variable that requires grad, but all of the {len(ys)} do not require grad"
        )
    each: Sequence[Any] = [None] * len(ys) if given is None else several(call, given)
    if len(each) != len(ys):
        raise GraphError(f"{call}: got {len(ys)} variables and {len(each)} gradients")
    return [starting_gradient(call, i, y, g) for i, (y, g) in enumerate(zip(ys, each, strict=True))]


def starting_gradient(call: str, i: int, y: Edge, given: Any) -> Variable | None:
    """The gradient of variable `i` as a variable of its shape. None means 1."""
    shape = y.shape if isinstance(y, Variable) else None
    if given is None:
        if shape is None:
            raise GraphError(f"{call}: expected a gradient for the GradientEdge at index {i}, got None")
        if math.prod(shape) != 1 and requires_grad(y):
            raise GraphError(f"{call}: grad can be implicitly created only for scalar outputs, got shape {shape}")
        return None
    if isinstance(given, Variable):
        seed = given
    elif isinstance(given, NdArray):
        seed = Variable(given.shape)
        seed.data = given
    elif isinstance(given, (np.ndarray, np.generic, int, float, list, tuple)):
        array = np.asarray(given)
        if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
            raise TypeError(f"{call}: expected numbers as gradient {i}, got dtype {array.dtype}")
        if not isinstance(given, np.ndarray) and array.ndim == 0 and shape is not None:
            array = np.full(shape, array)
        whole = array.dtype.kind in "biu"
        seed = Variable.from_numpy_array(array.astype(np.float32) if whole else array)
    else:
        raise TypeError(
            f"{call}: expected a Variable, an array or a number as gradient {i}, got {type(given).__name__}"
        )
    if shape is not None and seed.shape != shape:
        raise ShapeError(f"{call}: expected a gradient of shape {shape} at index {i}, got {seed.shape}")
    return seed


_is_differentiated: ContextVar[bool] = ContextVar("kinnor.autodiff.is_differentiated", default=False)
"""Whether this task is in a `differentiating` block."""


@contextmanager
def differentiating() -> Iterator[None]:
    """Marks a `with` block that runs a function to be differentiated."""
    token = _is_differentiated.set(True)
    try:
        yield
    finally:
        _is_differentiated.reset(token)


def is_nested() -> bool:
    """True if a derivative taken now will itself be differentiated. False under `no_grad`."""
    return _is_differentiated.get() and is_grad_enabled()
