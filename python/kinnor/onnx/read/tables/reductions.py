"""Operators that reduce axes: sums, norms, extrema and their indices; and cumulative sums and top-k."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ..values import Row, Value, note_lengths
from .building import reshape

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...._core import Variable
    from ..values import Node

__all__ = ["REDUCTIONS"]


def _axes(node: Node) -> list[int]:
    """The axes of a reduction; empty if it reduces nothing."""
    ndim = len(node.value(0).shape)
    axes = node.ints(1, "axes")
    if not axes:
        return [] if node.get("noop_with_empty_axes", 0) else list(range(ndim))
    return [axis % ndim for axis in axes]


_PAIRS = (2, 3)
"""Lengths of a last axis that is summed by adding its elements, which is faster."""


def _sum(x: Variable, axis: list[int], keepdims: bool) -> Variable:
    """The sum over axes."""
    if axis != [x.ndim - 1] or keepdims or x.shape[-1] not in _PAIRS or x.ndim == 1:
        return F.sum(x, axis=axis, keepdims=keepdims)
    return functools.reduce(F.add2, F.split(x, axis=x.ndim - 1))


def _reduction(
    function: Callable[..., Variable],
    before: Callable[[Variable], Variable] | None = None,
    after: Callable[[Variable], Variable] | None = None,
    fold: Callable[..., Any] | None = None,
) -> Row:
    """A row for a reduction, with elementwise functions before and after it, and a NumPy form `fold`."""

    def build(node: Node) -> Variable:
        """Builds the node. Without axes, only the elementwise functions apply."""
        x, axes = node.x(), _axes(node)
        y = x if before is None else before(x)
        if axes:
            y = function(y, axis=axes, keepdims=bool(node.get("keepdims", 1)))
        if after is not None:
            y = after(y)
        return F.identity(y) if y is x else y

    def folded(node: Node) -> Any:
        """Computes the output in NumPy."""
        x = node.static(0)
        made = fold(x, axis=tuple(_axes(node)), keepdims=bool(node.get("keepdims", 1))) if fold is not None else x
        return np.asarray(made).astype(x.dtype)

    return Row(build, folded if fold is not None else None, is_free=True)


def _extreme(function: Callable[..., Variable], fold: Callable[..., Any], is_largest: bool) -> Row:
    """A row for the maximum or minimum. Over no elements it is the type's least or greatest number."""
    of_some = _reduction(function)

    def end(dtype: Any) -> Any:
        """The result over no elements."""
        if dtype.kind in "iu":
            return np.iinfo(dtype).min if is_largest else np.iinfo(dtype).max
        if dtype.kind == "b":
            return not is_largest
        return -np.inf if is_largest else np.inf

    def build(node: Node) -> Any:
        """Builds the node. Over no elements, the output is constant."""
        held, axes = node.value(0), _axes(node)
        if all(held.shape[k] for k in axes):
            return of_some.build(node)
        note_lengths()
        return Value(
            fold(np.empty(held.shape, held.dtype), axis=tuple(axes), keepdims=keeps(node), initial=end(held.dtype))
        )

    def folded(node: Node) -> Any:
        """Computes the output in NumPy."""
        x = node.static(0)
        return np.asarray(fold(x, axis=tuple(_axes(node)), keepdims=keeps(node), initial=end(x.dtype))).astype(x.dtype)

    def keeps(node: Node) -> bool:
        """True if the node keeps reduced axes."""
        return bool(node.get("keepdims", 1))

    return Row(build, folded, is_free=True)


def _mean(node: Node) -> Any:
    """Builds `ReduceMean`. The mean of no elements is zero, as in ONNX Runtime."""
    x, axes, keeps = node.x(), _axes(node), bool(node.get("keepdims", 1))
    if all(x.shape[axis] for axis in axes):
        return F.mean(x, axis=axes, keepdims=keeps) if axes else F.identity(x)
    note_lengths()
    return F.sum(x, axis=axes, keepdims=keeps)


def _norm(node: Node) -> Variable:
    """Builds `ReduceL2`."""
    x, axes = node.x(), _axes(node)
    # `F.norm` scales first: squares would overflow or vanish.
    return F.norm(x, p=2, axis=axes, keepdims=bool(node.get("keepdims", 1))) if axes else F.abs(x)


def _log_sum_exp(node: Node) -> Variable:
    """Builds `ReduceLogSumExp`."""
    x, axes = node.x(), _axes(node)
    if not axes:
        return F.identity(x)
    if all(x.shape[k] for k in axes):
        # An infinite maximum is not subtracted: inf - inf is NaN.
        top = F.reset_inf(F.max(x, axis=axes, keepdims=True), 0.0)
        y = F.log(F.sum(F.exp(x - top), axis=axes, keepdims=True)) + top
    else:  # a sum over no elements is zero
        y = F.log(F.sum(F.exp(x), axis=axes, keepdims=True))
    if node.get("keepdims", 1):
        return y
    return F.reshape(y, [n for k, n in enumerate(x.shape) if k not in axes], inplace=False)


def _index_of_extreme(function: Any) -> Row:
    """A row for the index of the maximum or minimum."""

    def build(node: Node) -> Any:
        """Builds the node. For the last index, the axis is flipped."""
        x = node.x()
        axis, keep = node.get("axis", 0) % x.ndim, bool(node.get("keepdims", 1))
        if not node.get("select_last_index", 0):
            return function(x, axis=[axis], keepdims=keep, only_index=True)
        note_lengths()
        found = function(F.flip(x, axes=[axis]), axis=[axis], keepdims=keep, only_index=True)
        return float(x.shape[axis] - 1) - found

    return Row(build, dtype=np.int64, is_free=True)


def _top_k(node: Node) -> list[Value]:
    """Builds `TopK`."""
    x = node.value(0)
    ndim = len(x.shape)
    axis = node.get("axis", -1) % ndim
    k = node.get("k") if node.version < 10 else int(node.static(1).ravel()[0])
    order = [n for n in range(ndim) if n != axis] + [axis]
    last = F.transpose(x.variable, order)
    rows = reshape(last, (math.prod(last.shape[:-1]), last.shape[-1]))
    reverse = bool(node.get("largest", 1))
    values, places = F.sort(rows, axis=1, reverse=reverse, with_index=True)
    back = [order.index(n) for n in range(ndim)]
    made = []
    for found, dtype in ((values, x.dtype), (places, np.int64)):
        part = F.slice(found, (0, 0), (rows.shape[0], k), (1, 1))
        made.append(Value(F.transpose(reshape(part, (*last.shape[:-1], k)), back), dtype, sources=x.sources))
    return made


def _fold_top_k(node: Node) -> list[Any]:
    """Computes `TopK` by NumPy: equal elements in the order of their places."""
    x, axis = node.static(0), node.get("axis", -1)
    k, n = node.get("k") if node.version < 10 else int(node.static(1).ravel()[0]), x.shape[axis]
    if n == k == 1:
        return [x, np.zeros(x.shape, np.int64)]
    if node.get("largest", 1):
        order = n - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    order = np.take(order, range(min(k, n)), axis)
    return [np.take_along_axis(x, order, axis), order]


def _cumulative(function: Callable[..., Variable]) -> Row:
    """A row for a cumulative sum or product."""

    def build(node: Node) -> Variable:
        """Builds the node. The axis is a constant input."""
        axis = int(node.static(1).item()) % len(node.value(0).shape)
        return function(
            node.x(), axis=axis, exclusive=bool(node.get("exclusive", 0)), reverse=bool(node.get("reverse", 0))
        )

    return Row(build, is_free=True)


REDUCTIONS: dict[tuple[str, str], Row] = {
    ("", "ArgMax"): _index_of_extreme(F.max),
    ("", "ArgMin"): _index_of_extreme(F.min),
    ("", "CumProd"): _cumulative(F.cumprod),
    ("", "CumSum"): _cumulative(F.cumsum),
    ("", "ReduceL1"): _reduction(_sum, F.abs),
    ("", "ReduceL2"): Row(_norm, is_free=True),
    ("", "ReduceLogSum"): _reduction(_sum, after=F.log),
    ("", "ReduceLogSumExp"): Row(_log_sum_exp),
    ("", "ReduceMax"): _extreme(F.max, np.max, is_largest=True),
    ("", "ReduceMean"): Row(_mean, is_free=True),
    ("", "ReduceMin"): _extreme(F.min, np.min, is_largest=False),
    ("", "ReduceProd"): _reduction(F.prod, fold=np.prod),
    ("", "ReduceSum"): _reduction(_sum, fold=np.sum),
    ("", "ReduceSumSquare"): _reduction(_sum, lambda x: x * x),
    ("", "TopK"): Row(_top_k, _fold_top_k),
}
"""One row for each operator."""
