"""Operators on sequences of tensors and optional values. Lists and None represent them while a graph is built."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ..containers import Absent, Items
from ..expansion import BUDGET
from ..values import OnnxError, Row, Value
from .building import reshape

if TYPE_CHECKING:
    from ..values import Node

__all__ = ["SEQUENCES"]

_FLOAT = 1
"""ONNX's element type float32."""


def _items(node: Node) -> Items:
    """The first input as a sequence. Raises OnnxError for a tensor."""
    found = node.value(0)
    if not isinstance(found, Items):
        raise OnnxError(f"{node.proto.op_type}: expected a sequence, got a tensor of shape {found.shape}")
    return found


def _index_input(node: Node, i: int, n: int, beyond: int = 0) -> int:
    """Input `i` as an index from 0 to `n - 1 + beyond`. Negative inputs count from the end."""
    at = int(node.static(i).item())
    if not -n <= at < n + beyond:
        raise OnnxError(f"{node.proto.op_type}: expected a place from {-n} to {n + beyond - 1}, got {at}")
    return at + n if at < 0 else at


def _construct(node: Node) -> Items:
    """Builds `SequenceConstruct`."""
    return Items(node.value(i) for i in range(len(node.inputs)))


def _empty(node: Node) -> Items:
    """Builds `SequenceEmpty`."""
    from ..tensors import dtype_of

    return Items([], dtype_of(node.get("dtype", _FLOAT)))


def _sequence_at(node: Node) -> Value:
    """Builds `SequenceAt`."""
    items = _items(node).items
    return items[_index_input(node, 1, len(items))]


def _insert(node: Node) -> Items:
    """Builds `SequenceInsert`."""
    held = _items(node)
    items = list(held.items)
    items.insert(_index_input(node, 2, len(items), beyond=1) if node.has(2) else len(items), node.value(1))
    return Items(items)


def _erase(node: Node) -> Items:
    """Builds `SequenceErase`."""
    held = _items(node)
    items = list(held.items)
    if not items:
        raise OnnxError("SequenceErase: expected a sequence of one tensor at least, got an empty one")
    del items[_index_input(node, 1, len(items)) if node.has(1) else -1]
    return Items(items, held.dtype)


def _joined(node: Node) -> Any:
    """Builds `ConcatFromSequence`."""
    held = _items(node)
    if not held.items:
        raise OnnxError("ConcatFromSequence: expected a sequence of one tensor at least, got an empty one")
    axis, is_new = node.get("axis"), bool(node.get("new_axis", 0))
    n_axes = len(held.items[0].shape) + is_new
    if not -n_axes <= axis < n_axes:
        raise OnnxError(f"ConcatFromSequence: expected an axis from {-n_axes} to {n_axes - 1}, got {axis}")
    axis %= n_axes
    if held.known:
        join = np.stack if is_new else np.concatenate
        return join([item.static() for item in held.items], axis=axis)
    variables = [item.variable for item in held.items]
    return F.stack(*variables, axis=axis) if is_new else F.concatenate(*variables, axis=axis)


def _split(node: Node) -> Items:
    """Builds `SplitToSequence`."""
    x, axis = node.value(0), node.get("axis", 0) % len(node.value(0).shape)
    length, keeps = x.shape[axis], True
    if node.has(1):
        given = node.static(1)
        step = int(given.item()) if given.ndim == 0 else 0
        BUDGET.get().take(length // step if step > 0 else given.size)
        if given.ndim == 0 and step < 1:
            raise OnnxError(f"SplitToSequence: expected a length of one or more, got {step}")
        lengths = [min(step, length - k) for k in range(0, length, step)] if step else [int(n) for n in given]
    else:
        BUDGET.get().take(length)
        lengths, keeps = [1] * length, bool(node.get("keepdims", 1))
    if sum(lengths) != length or min(lengths, default=0) < 0:
        raise OnnxError(f"SplitToSequence: expected lengths that add up to {length}, got {lengths}")
    ends = np.cumsum([0, *lengths])
    return Items([_part(x, axis, int(low), int(high), keeps) for low, high in pairwise(ends)], x.dtype)


def _part(x: Value, axis: int, low: int, high: int, keeps: bool) -> Value:
    """A slice of an axis, with or without the axis."""
    shape = [high - low if i == axis else n for i, n in enumerate(x.shape) if keeps or i != axis]
    if x.known:
        return Value(x.static().take(range(low, high), axis).reshape(shape))
    starts, stops = [0] * len(x.shape), list(x.shape)
    starts[axis], stops[axis] = low, high
    part = F.slice(x.variable, starts, stops, [1] * len(stops))
    return Value(reshape(part, shape), x.dtype, sources=x.sources)


def _optional(node: Node) -> Value:
    """Builds `Optional`."""
    return node.value(0) if node.has(0) else Absent()


def _element(node: Node) -> Value:
    """Builds `OptionalGetElement`."""
    if isinstance(node.value(0), Absent):
        raise OnnxError("OptionalGetElement: expected a value, got an optional one that is absent")
    return node.value(0)


def _has_element(node: Node) -> Any:
    """Builds `OptionalHasElement`."""
    return np.array(node.has(0) and not isinstance(node.value(0), Absent))


SEQUENCES: dict[tuple[str, str], Row] = {
    ("", "ConcatFromSequence"): Row(_joined),
    ("", "Optional"): Row(_optional),
    ("", "OptionalGetElement"): Row(_element),
    ("", "OptionalHasElement"): Row(_has_element),
    ("", "SequenceAt"): Row(_sequence_at),
    ("", "SequenceConstruct"): Row(_construct),
    ("", "SequenceEmpty"): Row(_empty),
    ("", "SequenceErase"): Row(_erase),
    ("", "SequenceInsert"): Row(_insert),
    ("", "SequenceLength"): Row(lambda node: np.array(len(_items(node).items), np.int64)),
    ("", "SplitToSequence"): Row(_split),
}
"""One row for each operator."""
