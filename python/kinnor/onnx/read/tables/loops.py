"""Loops. Their number of iterations must follow from shapes and constants.

A graph that is called with arrays runs the body of a loop as a graph of its own, once for each step. A loop is unrolled
if gradients may be wanted, if shapes in its body depend on the step, and if everything in it is constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ..array_function import DIFFERENTIATES
from ..body import Counters, Repeated
from ..expansion import BUDGET, MOST_STEPS, MOST_TIMES, n_built, stays_true
from ..values import OnnxError, Row, Value
from .building import reshape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ..body import Body
    from ..values import Node

__all__ = ["LOOPS"]

_FEWEST = 3
"""Loops of fewer steps are unrolled."""


def _element(value: Value, axis: int, k: int) -> Value:
    """Element `k` of an axis, without the axis."""
    if value.known:
        return Value(np.take(value.static(), k, axis))
    low, high = [0] * len(value.shape), list(value.shape)
    low[axis], high[axis] = k, k + 1
    part = F.slice(value.variable, low, high, [1] * len(low))
    shape = [n for i, n in enumerate(value.shape) if i != axis]
    return Value(reshape(part, shape), value.dtype, sources=value.sources)


def _stacked(values: Sequence[Value], axis: int) -> Value:
    """Values stacked along a new axis."""
    if all(value.known for value in values):
        return Value(np.stack([value.static() for value in values], axis))
    sources = frozenset[str]().union(*(value.sources for value in values))
    return Value(F.stack(*(value.variable for value in values), axis=axis), values[0].dtype, sources=sources)


def _checked(node: Node, times: int) -> int:
    """A number of iterations. Raises UnsupportedError if it is above `MOST_TIMES`."""
    if times > MOST_TIMES:
        raise node.unsupported(f"expected {MOST_TIMES} times at most, got {times}")
    return times


class _Scope(Mapping[str, "int | None"]):
    """Known integers and booleans by name, among the values that inner graphs can read. None for other values."""

    def __init__(self, values: Mapping[str, Value | None]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> int | None:
        value = self._values[name]
        if value is None or not value.known or value.dtype.kind not in "iub" or value.static().size != 1:
            return None
        return int(value.static().item())

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@contextmanager
def _turns(node: Node, times: int | None) -> Iterator[Callable[[int], None]]:
    """Tracks the iterations of a loop in the node budget, for a `with` block.

    Args:
        node: The loop.
        times: The number of iterations, or None if it is unknown.

    Yields:
        A function to call at the start of each iteration, with its number.

    Raises:
        UnsupportedError: If all iterations together build too many nodes.
    """
    budget, known = BUDGET.get(), 1 if times is None else times
    outer = budget.turns
    budget.expect(known * n_built(node.get("body"), _Scope(node.scope)))

    def begin(turn: int) -> None:
        """Notes the number of remaining iterations."""
        budget.turns = outer * max(known - turn, 1)

    try:
        yield begin
    finally:
        budget.turns = outer


def _run(node: Node, given: Sequence[Value]) -> list[Value]:
    """Builds the body of a loop once. Returns its outputs."""
    if node.run is None:
        raise node.unsupported("expected a node with a graph, got none")
    return node.run(node.get("body"), given)


def _is_repeated(node: Node, values: Sequence[Value], n_steps: int) -> bool:
    """True if a graph runs the body for each step of a loop, and is not built of all steps.

    Args:
        node: The loop.
        values: Its states and sequences.
        n_steps: Number of steps.

    Raises:
        UnsupportedError: If there are too many steps, multiplied by the steps of the loops around it.
    """
    if DIFFERENTIATES.get() or n_steps < _FEWEST or all(value.known for value in (*values, *node.captured)):
        return False
    if n_steps * BUDGET.get().turns > MOST_STEPS:
        raise node.unsupported(f"expected {MOST_STEPS} steps at most, got {n_steps}")
    return True


def _state(value: Value) -> Value:
    """Returns a variable of a body for a state of the same shape and type."""
    return Value(Variable(value.shape, need_grad=False), value.dtype)


def _body(node: Node, places: Sequence[int], n_steps: int, given: Sequence[Value], **more: Any) -> Body | None:
    """Builds outputs of the body of a loop apart from its graph. Returns None if that is not possible."""
    budget = BUDGET.get()
    outer = budget.turns
    budget.turns = outer * n_steps
    try:
        return None if node.apart is None else node.apart(node.get("body"), places, n_steps, given, **more)
    finally:
        budget.turns = outer


def _fit(states: Sequence[Value], ends: Sequence[Value]) -> bool:
    """True if states have the same shapes and types after a step."""
    return all(a.shape == b.shape and a.dtype == b.dtype and not b.known for a, b in zip(states, ends, strict=True))


def _repeated(
    node: Node,
    body: Body,
    n_steps: int,
    states: Sequence[tuple[Value, Value, Value]],
    counters: Sequence[tuple[Value, NDArray[Any]]],
    stacked: Sequence[tuple[Value, int, bool]],
) -> list[Value]:
    """Returns the last states, and the stacked outputs, of a function that runs a body.

    Args:
        node: The loop.
        body: The body.
        n_steps: Number of steps.
        states: First states, the variables for them in the body, and the states after a step.
        counters: Variables of the body for integers, with their numbers in each step.
        stacked: Outputs of the body that are stacked, with their axes and directions.
    """
    function = Repeated(
        node.operator,
        body,
        n_steps,
        [(inner.variable, end.variable) for _, inner, end in states],
        [(inner.variable, numbers) for inner, numbers in counters],
        [(value.variable, axis, back) for value, axis, back in stacked],
    )
    firsts = [first.variable for first, _, _ in states]
    made = function(*firsts, *(x for x, _ in body.captured), *body.parameters)
    kinds = [*(end.dtype for _, _, end in states), *(value.dtype for value, _, _ in stacked)]
    sources = frozenset[str]().union(*(value.sources for value in (*node.inputs, *node.captured) if value is not None))
    outputs = [made] if isinstance(made, Variable) else made
    return [Value(y, dtype, sources=sources) for y, dtype in zip(outputs, kinds, strict=True)]


def _scan(node: Node) -> list[Value]:
    """Builds `Scan`."""
    if node.version < 9:
        raise node.unsupported("expected version 9 or later, got 8")
    n_scanned = node.get("num_scan_inputs")
    values = [node.value(i) for i in range(len(node.inputs))]
    states, scanned = values[: len(values) - n_scanned], values[len(values) - n_scanned :]
    axes = [
        axis % len(value.shape)
        for axis, value in zip(node.get("scan_input_axes") or [0] * n_scanned, scanned, strict=True)
    ]
    back = node.get("scan_input_directions") or [0] * n_scanned
    times = {value.shape[axis] for value, axis in zip(scanned, axes, strict=True)}
    if len(times) != 1:
        raise OnnxError(f"Scan: expected inputs of one length, got {sorted(times)}")
    length = times.pop()
    n_outputs = len(node.get("body").output) - len(states)
    out_axes = node.get("scan_output_axes") or [0] * n_outputs
    reverses = node.get("scan_output_directions") or [0] * n_outputs
    if _is_repeated(node, values, length):
        steps = np.arange(length, dtype=np.int64)
        counters = [_state(Value(steps[0])) for _ in range(2)]
        given, read = [_state(value) for value in states], []
        for value, axis, reverse in zip(scanned, axes, back, strict=True):
            held = _state(value).variable
            given.append(Value(F.gather(held, counters[bool(reverse)].variable, axis=axis), value.dtype))
            read.append((value.variable, held))
        body = _body(node, range(len(states) + n_outputs), length, given, read=read, changing=counters)
        if body is not None and _fit(states, body.outputs[: len(states)]) and not any(v.known for v in body.outputs):
            stacked = body.outputs[len(states) :]
            ends = [axis % (len(value.shape) + 1) for value, axis in zip(stacked, out_axes, strict=True)]
            return _repeated(
                node,
                body,
                length,
                list(zip(states, given, body.outputs, strict=False)),
                list(zip(counters, (steps, steps[::-1]), strict=True)),
                list(zip(stacked, ends, map(bool, reverses), strict=True)),
            )
    n_states, found = len(states), list[list[Value]]()
    with _turns(node, _checked(node, length)) as begin:
        for t in range(length):
            begin(t)
            parts = [
                _element(value, axis, length - 1 - t if reverse else t)
                for value, axis, reverse in zip(scanned, axes, back, strict=True)
            ]
            made = _run(node, [*states, *parts])
            states = made[:n_states]
            found.append(made[n_states:])
    if not found:
        raise node.unsupported("expected one step at least, got none")
    outputs: list[Value] = []
    for k in range(n_outputs):
        column = [step[k] for step in found]
        outputs.append(_stacked(column[::-1] if reverses[k] else column, out_axes[k] % (len(column[0].shape) + 1)))
    return [*states, *outputs]


def _loop(node: Node) -> list[Value]:
    """Builds `Loop`."""
    most = int(node.static(0).item()) if node.has(0) else None
    goes_on = bool(node.static(1).item()) if node.has(1) else True
    states = [node.value(i) for i in range(2, len(node.inputs))]
    repeated = _repeated_loop(node, most, states) if goes_on else None
    if repeated is not None:
        return repeated
    n_states, found, t = len(states), list[list[Value]](), 0
    body = node.get("body")
    is_sure = goes_on and body is not None and stays_true(body, _Scope(node.scope))
    times = _checked(node, MOST_TIMES + 1 if most is None else max(most, 0)) if is_sure else None
    with _turns(node, times) as begin:
        while goes_on and (most is None or t < most):
            begin(t)
            _checked(node, t + 1)
            made = _run(node, [Value(np.array(t, np.int64)), Value(np.array(True)), *states])
            goes_on = bool(made[0].static().item())
            states = made[1 : 1 + n_states]
            found.append(made[1 + n_states :])
            t += 1
    if not found and node.n_outputs > n_states:
        raise node.unsupported("expected one step at least, got none")
    return [*states, *(_stacked(list(held), 0) for held in zip(*found, strict=True))]


def _repeated_loop(node: Node, most: int | None, states: Sequence[Value]) -> list[Value] | None:
    """Builds `Loop` as a function that runs its body, or returns None if that is not possible."""
    body = node.get("body")
    if body is None or len(body.input) != 2 + len(states) or not all(type(value) is Value for value in states):
        return None
    counters = Counters(body, states, node.scope)
    n_steps = counters.n_steps(MOST_STEPS + 1 if most is None else min(max(most, 0), MOST_STEPS + 1))
    if n_steps is None or not _is_repeated(node, states, n_steps):
        return None
    given = [Value(Variable((), need_grad=False), np.int64), Value(np.array(True))]
    for k, value in enumerate(states):
        given.append(value if k in counters.constant and not value.is_computed else _state(value))
    changing = [k for k in range(len(states)) if k not in counters.constant and k not in counters.first]
    places = [*(1 + k for k in changing), *range(1 + len(states), len(body.output))]
    # Computed states that no step changes are captured.
    fixed = [k for k in counters.constant if given[2 + k] is not states[k]]
    made = _body(node, places, n_steps, given, read=[(states[k].variable, given[2 + k].variable) for k in fixed])
    if made is None:
        return None
    ends, stacked = made.outputs[: len(changing)], made.outputs[len(changing) :]
    if not _fit([states[k] for k in changing], ends) or any(value.known for value in stacked):
        return None
    steps = np.arange(n_steps + 1, dtype=np.int64)
    counted = [(given[0], steps)]
    last = list(states)
    for k, (start, by) in counters.first.items():
        numbers = (start + by * steps).astype(states[k].dtype).reshape(-1, *states[k].shape)
        counted.append((given[2 + k], numbers))
        last[k] = Value(numbers[-1])
    if not places:
        return last
    found = _repeated(
        node,
        made,
        n_steps,
        [(states[k], given[2 + k], end) for k, end in zip(changing, ends, strict=True)],
        counted,
        [(value, 0, False) for value in stacked],
    )
    for k, value in zip(changing, found, strict=False):
        last[k] = value
    return [*last, *found[len(changing) :]]


LOOPS: dict[tuple[str, str], Row] = {("", "Loop"): Row(_loop), ("", "Scan"): Row(_scan)}
"""One row for each operator."""
