"""The body of a loop as a graph of its own, which runs once for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functions as F
from ..._core import Variable, forward_all
from ...rewrite.patterns import above, context_of, is_a
from .array_function import WithoutGradient
from .expansion import number_in
from .tensors import dtype_of
from .values import Value, check_computed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ..._core import FunctionVariable
    from ...rewrite.folding import Folding

__all__ = ["Body", "Counters", "Repeated"]

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Identity": np.asarray,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Sub": np.subtract,
}
"""Operators that conditions consist of, as functions of NumPy."""

_FIRST = 256
"""Number of steps that are tried first."""


class Counters:
    """The integers and conditions in the body of a loop that follow from the number of the step.

    Args:
        body: The `GraphProto`. Its inputs are the number of the step, a condition and the states.
        states: The first states.
        scope: Values of outer graphs by name.

    Attributes:
        constant: Places of states that no step changes.
        first: Places of states that grow by the same integer in each step, with the first integer and the step.
    """

    def __init__(self, body: Any, states: Sequence[Value], scope: Mapping[str, Value | None]) -> None:
        self._makers = {name: node for node in body.node for name in node.output}
        self._result = body.output[0].name
        self._known: dict[str, Any] = {}
        self._rows: dict[str, tuple[int, int]] = {body.input[0].name: (0, 1)}
        self._scope = scope
        self._inside = {held.name for held in body.input} | self._makers.keys()
        for tensor in body.initializer:
            self._known[tensor.name] = number_in(tensor)
        self._known[body.input[1].name] = True
        self.constant: set[int] = set()
        self.first: dict[int, tuple[int, int]] = {}
        names = [held.name for held in body.input][2:]
        ends = [self._source(held.name) for held in body.output][1:]
        for place, (name, end, state) in enumerate(zip(names, ends, states, strict=False)):
            if end == name:
                self.constant.add(place)
                self._known[name] = _number(state)
        for place, (name, end, state) in enumerate(zip(names, ends, states, strict=False)):
            maker = self._makers.get(end)
            if place in self.constant or maker is None or maker.op_type != "Add" or state.dtype.kind not in "iu":
                continue
            a, b = map(self._source, maker.input)
            start, by = _number(state), self._number(b if a == name else a)
            if name in (a, b) and a != b and start is not None and by is not None:
                self.first[place] = self._rows[name] = (int(start), int(by))

    def _source(self, name: str) -> str:
        """Follows `Identity` nodes from a name to the name of the value that they copy."""
        while (maker := self._makers.get(name)) is not None and maker.op_type == "Identity" and maker.input:
            name = maker.input[0]
        return name

    def _number(self, name: str) -> Any:
        """Returns a constant number, or None if the name is not one."""
        if name in self._known:
            return self._known[name]
        maker = self._makers.get(name)
        if maker is not None:
            return number_in(maker.attribute[0].t) if maker.op_type == "Constant" and maker.attribute else None
        return None if name in self._inside else _number(self._scope.get(name))

    def n_steps(self, most: int) -> int | None:
        """The number of steps until the condition is false, or None if it does not follow from counters.

        Args:
            most: The largest number of steps that matters.
        """
        tried = min(_FIRST, most)
        while True:
            try:
                goes_on = np.broadcast_to(self._steps(self._result, np.arange(tried)), tried)
            except LookupError:
                return None
            ends = np.flatnonzero(~goes_on.astype(bool))
            if ends.size:
                return int(ends[0]) + 1
            if tried == most:
                return most
            tried = min(8 * tried, most)

    def _steps(self, name: str, steps: NDArray[Any], depth: int = 16) -> Any:
        """Returns a number in each step. Raises LookupError if it does not follow from counters."""
        if name in self._rows:
            start, by = self._rows[name]
            return start + by * steps
        known = self._number(name)
        if known is not None:
            return known
        maker = self._makers[name]
        if not depth or maker.domain not in ("", "ai.onnx"):
            raise LookupError(name)
        inputs = [self._steps(source, steps, depth - 1) for source in maker.input]
        if maker.op_type == "Cast":
            to = next(held.i for held in maker.attribute if held.name == "to")
            return np.asarray(inputs[0]).astype(dtype_of(to))
        return _OPERATIONS[maker.op_type](*inputs)


def _number(value: Value | None) -> Any:
    """Returns the number of a constant with one element, or None."""
    if value is None or not value.known or value.dtype.kind not in "iubf" or value.static().size != 1:
        return None
    return value.static().item()


class Body:
    """The graph of a loop's body, apart from the graph of the loop.

    Args:
        inputs: Its inputs: variables, which change between steps, and constants.
        outputs: Its outputs.
        captured: Pairs of a variable of the outer graph that it reads and the variable of the body in its place.
        watched: Integer variables that may become too large for float64, by their names in errors.
        parameters: Parameters of the model that it may read.
        n_steps: Number of steps.
        folding: The folding of the model; None if parameters may change.

    Attributes:
        outputs: Its outputs. Each computed one is the output of a function.
        captured: Pairs of a variable of the outer graph that it reads and the variable of the body in its place.
        parameters: The parameters that it reads.
    """

    def __init__(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        captured: Sequence[tuple[Variable, Variable]],
        watched: Mapping[str, Variable],
        parameters: set[Variable],
        n_steps: int,
        folding: Folding | None,
    ) -> None:
        self.outputs = [
            value if value.known or value.variable.parent is not None else _copied(value) for value in outputs
        ]
        self._roots = list(dict.fromkeys(value.variable for value in self.outputs if not value.known))
        held = {value.variable for value in inputs if value.is_computed}
        captured = [*captured, *_hoisted(self._roots, held, captured, n_steps)]
        if folding is not None:
            folding.fold(self._roots, [*held, *(inner for _, inner in captured)])
        order = above(self._roots)
        read = {x for f in order for x in f.inputs}
        made = {x for f in order for x in f.outputs}
        self.captured = [(outer, inner) for outer, inner in captured if inner in read]
        self.parameters = [x for x in parameters if x in read]
        self._watched = {name: x for name, x in watched.items() if x in made}
        for x in self._watched.values():
            x.persistent = True

    def step(self) -> None:
        """Computes the outputs.

        Raises:
            OnnxError: If an integer is too large for float64.
        """
        forward_all(self._roots, clear_buffer=True)
        for name, x in self._watched.items():
            check_computed(x.d, name)


def _hoisted(
    roots: Sequence[Variable], inputs: set[Variable], captured: Sequence[tuple[Variable, Variable]], n_steps: int
) -> list[tuple[Variable, Variable]]:
    """Takes products of an element of a captured array and a constant out of a body: one product serves all steps.

    Args:
        roots: Outputs of the body.
        inputs: Its inputs.
        captured: Pairs of a variable of the outer graph that it reads and the variable of the body in its place.
        n_steps: Number of steps.

    Returns:
        Products in the outer graph, with the variables that stand for them.
    """
    outer, found = {inner: x for x, inner in captured}, []
    for f in above(roots):
        element = f.inputs[0].parent if is_a(f, "Affine") else None
        if not is_a(element, "Gather") or element.args["axis"] or element.args["batch_dims"]:
            continue
        array, place = element.inputs
        are_constant = all(x.parent is None and x not in inputs and x not in outer for x in f.inputs[1:])
        if array not in outer or place not in inputs or place.ndim or not are_constant:
            continue
        if array.shape[0] > 2 * n_steps:
            continue
        with context_of(f):
            bias = f.inputs[2] if len(f.inputs) == 3 else None
            product = F.affine(outer[array], f.inputs[1], bias, base_axis=f.args["base_axis"] + 1)
            inner = Variable(product.shape, need_grad=False)
            f.outputs[0].rewire_on(F.gather(inner, place, axis=0))
        found.append((product, inner))
    return found


def _copied(value: Value) -> Value:
    """Returns a computed value as the output of a function."""
    return Value(F.identity(value.variable), value.dtype, sources=value.sources)


class Repeated(WithoutGradient):
    """A function that runs a body once for each step, with the outputs of the step before as states.

    It has no gradient: graphs of variables have the steps one after the other. Its inputs are the first states, the
    values that the body captures, and the parameters that it reads. Its outputs are the last states, and the outputs of
    all steps, stacked.

    Args:
        operator: The name of the operator.
        body: The body.
        n_steps: Number of steps.
        states: Variables of the body for states, and the variables that are the states of the next step.
        counters: Variables of the body for integers, with their numbers in each step.
        stacked: Variables of the body that are stacked, with the axis of the steps. True: from the end.
    """

    def __init__(
        self,
        operator: str,
        body: Body,
        n_steps: int,
        states: Sequence[tuple[Variable, Variable]],
        counters: Sequence[tuple[Variable, NDArray[Any]]],
        stacked: Sequence[tuple[Variable, int, bool]],
    ) -> None:
        of_steps = [(*x.shape[:axis], n_steps, *x.shape[axis:]) for x, axis, _ in stacked]
        super().__init__(operator, [*(x.shape for x, _ in states), *of_steps])
        self._body = body
        self._n_steps = n_steps
        self._states = states
        self._counters = counters
        self._stacked = stacked

    def forward_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Run the steps."""
        n = len(self._states)
        for (state, _), first in zip(self._states, inputs, strict=False):
            state.d = first.d
        for (_, inner), outer in zip(self._body.captured, inputs[n:], strict=False):
            inner.data = outer.data
        ends, stacks = outputs[:n], outputs[n:]
        places: list[NDArray[Any]] = []
        step, states = self._body.step, self._states
        for t in range(self._n_steps):
            for x, numbers in self._counters:
                x.d = numbers[t]
            step()
            if not t:
                for (x, axis, back), y in zip(self._stacked, stacks, strict=True):
                    y.data.cast(x.d.dtype)
                    places.append(_steps_first(y.d, axis, back))
            for place, (x, _, _) in zip(places, self._stacked, strict=True):
                place[t] = x.d
            if len(states) == 1:
                states[0][0].d = states[0][1].d
            else:
                for (state, _), array in zip(states, [y.d.copy() for _, y in states], strict=True):
                    state.d = array
        for end, (state, _) in zip(ends, states, strict=True):
            array = state.d
            end.data.cast(array.dtype)
            end.d = array


def _steps_first(array: NDArray[Any], axis: int, back: bool) -> NDArray[Any]:
    """Returns a view with an axis in front, and reversed if the steps go back."""
    moved = np.moveaxis(array, axis, 0)
    return moved[::-1] if back else moved
