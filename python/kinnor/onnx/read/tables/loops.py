"""Loops, unrolled while the graph is built. Their number of iterations must follow from shapes and constants."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from .... import functions as F
from ..expansion import BUDGET, MOST_TIMES, n_built, stays_true
from ..values import OnnxError, Row, Value
from .building import reshape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..values import Node

__all__ = ["LOOPS"]


def _at(value: Value, axis: int, k: int) -> Value:
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


def _scan(node: Node) -> list[Value]:
    """Builds `Scan`."""
    if node.version < 9:
        raise node.unsupported("expected version 9 or later, got 8")
    n_scanned = node.get("num_scan_inputs")
    values = [node.value(i) for i in range(len(node.inputs))]
    states, scanned = values[: len(values) - n_scanned], values[len(values) - n_scanned :]
    axes = node.get("scan_input_axes") or [0] * n_scanned
    back = node.get("scan_input_directions") or [0] * n_scanned
    times = {value.shape[axis] for value, axis in zip(scanned, axes, strict=True)}
    if len(times) != 1:
        raise OnnxError(f"Scan: expected inputs of one length, got {sorted(times)}")
    length = _checked(node, times.pop())
    n_states, found = len(states), list[list[Value]]()
    with _turns(node, length) as begin:
        for t in range(length):
            begin(t)
            parts = [
                _at(value, axis % len(value.shape), length - 1 - t if reverse else t)
                for value, axis, reverse in zip(scanned, axes, back, strict=True)
            ]
            made = _run(node, [*states, *parts])
            states = made[:n_states]
            found.append(made[n_states:])
    if not found:
        raise node.unsupported("expected one step at least, got none")
    n_outputs = len(found[0])
    out_axes = node.get("scan_output_axes") or [0] * n_outputs
    reverses = node.get("scan_output_directions") or [0] * n_outputs
    outputs = []
    for k in range(n_outputs):
        held = [step[k] for step in found]
        outputs.append(_stacked(held[::-1] if reverses[k] else held, out_axes[k] % (len(held[0].shape) + 1)))
    return [*states, *outputs]


def _loop(node: Node) -> list[Value]:
    """Builds `Loop`."""
    most = int(node.static(0).item()) if node.has(0) else None
    goes_on = bool(node.static(1).item()) if node.has(1) else True
    states = [node.value(i) for i in range(2, len(node.inputs))]
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


LOOPS: dict[tuple[str, str], Row] = {("", "Loop"): Row(_loop), ("", "Scan"): Row(_scan)}
"""One row for each operator."""
