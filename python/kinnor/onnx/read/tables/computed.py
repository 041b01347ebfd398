"""Operators without a function of the graph: NumPy computes them while the graph is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..values import Row, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ..values import Node

__all__ = ["COMPUTED"]


def _numpy_row(function: Callable[..., Any]) -> Row:
    """A row for a NumPy function of all inputs."""
    return Row(lambda node: function(*(node.static(i) for i in range(len(node.inputs)))))


def _bit_shift(node: Node) -> Any:
    """Builds `BitShift`."""
    x, by = node.static(0), node.static(1)
    bits = x.dtype.itemsize * 8
    kept = np.minimum(by, bits - 1).astype(x.dtype)
    if node.get("direction") != "LEFT" and x.dtype.kind == "i":  # an arithmetic shift
        return np.right_shift(x, kept)
    moved = np.left_shift(x, kept) if node.get("direction") == "LEFT" else np.right_shift(x, kept)
    return np.where(by < bits, moved, 0).astype(x.dtype)


def _bit_cast(node: Node) -> NDArray[Any]:
    """Builds `BitCast`."""
    from ..tensors import dtype_of

    x, wanted = node.static(0), dtype_of(node.get("to"))
    if wanted.itemsize != x.dtype.itemsize:
        raise node.unsupported(f"expected a type of {x.dtype.itemsize} bytes, got {wanted}")
    return np.ascontiguousarray(x).view(wanted).reshape(x.shape)


def _compress(node: Node) -> NDArray[Any]:
    """Builds `Compress`."""
    x, axis = node.static(0), node.get("axis")
    chosen = np.flatnonzero(node.static(1))
    if axis is None:
        x, axis = x.reshape(-1), 0
    y: NDArray[Any] = np.take(x, chosen[chosen < x.shape[axis]], axis)
    return y


def _unique(node: Node) -> list[Value]:
    """Builds `Unique`."""
    x, axis = node.static(0), node.get("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.ravel()
    if not node.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, 0 if axis is None else axis)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return [Value(values), *(Value(held.astype(np.int64)) for held in (first, inverse, counts))][: node.n_outputs]


def _col2im(node: Node) -> NDArray[Any]:
    """Builds `Col2Im`."""
    x, size, block = node.static(0), node.static(1).tolist(), node.static(2).tolist()
    n = len(size)
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    pads = node.get("pads") or [0] * (2 * n)
    channels = x.shape[1] // int(np.prod(block))
    steps = [(size[k] + pads[k] + pads[n + k] - dilations[k] * (block[k] - 1) - 1) // strides[k] + 1 for k in range(n)]
    y = np.zeros((len(x), channels, *(size[k] + pads[k] + pads[n + k] for k in range(n))), x.dtype)
    parts = x.reshape(len(x), channels, *block, *steps)
    whole = (slice(None), slice(None))
    for at in np.ndindex(*block):
        place = tuple(
            slice(at[k] * dilations[k], at[k] * dilations[k] + strides[k] * steps[k], strides[k]) for k in range(n)
        )
        y[whole + place] += parts[whole + at]
    return y[whole + tuple(slice(pads[k], pads[k] + size[k]) for k in range(n))]


def _max_unpool(node: Node) -> NDArray[Any]:
    """Builds `MaxUnpool`."""
    x, places = node.static(0), node.static(1)
    kernel = node.get("kernel_shape")
    n = len(kernel)
    strides, pads = node.get("strides") or [1] * n, node.get("pads") or [0] * (2 * n)
    shape = [
        (length - 1) * s + k - pads[i] - pads[n + i]
        for i, (length, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    whole = node.static(2).tolist() if node.has(2) else [*x.shape[:2], *shape]
    y = np.zeros([*x.shape[:2], *shape], x.dtype)
    y.reshape(-1)[places.ravel()] = x.ravel()
    if list(y.shape) == list(whole):
        return y
    wide = np.zeros(whole, x.dtype)
    wide[tuple(slice(0, length) for length in y.shape)] = y
    return wide


def _tensor_scatter(node: Node) -> NDArray[Any]:
    """Builds `TensorScatter`."""
    y: NDArray[Any] = node.static(0).copy()
    update = node.static(1)
    axis = node.get("axis", -2) % y.ndim
    starts = node.static(2) if node.has(2) else np.zeros(len(y), np.int64)
    for image, start in enumerate(starts.tolist()):
        at = start + np.arange(update.shape[axis])
        at = at % y.shape[axis] if node.get("mode", "linear") == "circular" else at
        inner, new = np.moveaxis(y[image], axis - 1, 0), np.moveaxis(update[image], axis - 1, 0)
        inner[at] = new
    return y


COMPUTED: dict[tuple[str, str], Row] = {
    ("", "BitCast"): Row(_bit_cast),
    ("", "BitShift"): Row(_bit_shift),
    ("", "BitwiseAnd"): _numpy_row(np.bitwise_and),
    ("", "BitwiseNot"): _numpy_row(np.invert),
    ("", "BitwiseOr"): _numpy_row(np.bitwise_or),
    ("", "BitwiseXor"): _numpy_row(np.bitwise_xor),
    ("", "Col2Im"): Row(_col2im),
    ("", "Compress"): Row(_compress),
    ("", "MaxUnpool"): Row(_max_unpool),
    ("", "NonZero"): Row(lambda node: np.array(np.nonzero(node.static(0)), np.int64)),
    ("", "TensorScatter"): Row(_tensor_scatter),
    ("", "Unique"): Row(_unique),
}
"""One row for each operator."""
