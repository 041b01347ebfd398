"""Integers that the steps of a loop count, and the number of steps that follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .expansion import number_in
from .tensors import dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from .values import Value

__all__ = ["Counters"]

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
