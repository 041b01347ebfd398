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


def _of(function: Callable[..., Any]) -> Row:
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
    return np.take(x, chosen[chosen < x.shape[axis]], axis)


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


def _complex(x: NDArray[Any]) -> NDArray[Any]:
    """ONNX's complex numbers, with real and imaginary parts on the last axis, as a complex array."""
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0].astype(np.complex128)


def _pairs(z: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """A complex array in ONNX's form, with real and imaginary parts on the last axis."""
    return np.stack([z.real, z.imag], axis=-1).astype(dtype)


def _dft(node: Node) -> NDArray[Any]:
    """Builds `DFT`."""
    x, length = node.static(0), int(node.static(1).item()) if node.has(1) else None
    axis = int(node.static(2).item()) if node.has(2) else node.get("axis", 1 if node.version < 20 else -2)
    axis = axis % x.ndim
    if not (x.shape[axis] if length is None else length):
        return np.zeros((*x.shape[:-1], 1 if node.get("onesided", 0) and node.get("inverse", 0) else 2), x.dtype)
    z = _complex(x)
    if node.get("inverse", 0):
        if node.get("onesided", 0):
            return np.fft.irfft(z, length, axis)[..., None].astype(x.dtype)
        return _pairs(np.fft.ifft(z, length, axis), x.dtype)
    y = np.fft.fft(z, length, axis)
    if node.get("onesided", 0):
        y = np.take(y, range(y.shape[axis] // 2 + 1), axis)
    return _pairs(y, x.dtype)


def _stft(node: Node) -> NDArray[Any]:
    """Builds `STFT`."""
    x, step = node.static(0), int(node.static(1).item())
    window = node.static(2) if node.has(2) else None
    length = int(node.static(3).item()) if node.has(3) else len(window) if window is not None else x.shape[1]
    z = _complex(x if x.ndim == 3 else x[..., None])
    frames = np.stack([z[:, k : k + length] for k in range(0, z.shape[1] - length + 1, step)], axis=1)
    y = np.fft.fft(frames if window is None else frames * window, axis=-1)
    return _pairs(y[..., : length // 2 + 1] if node.get("onesided", 1) else y, x.dtype)


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
    ("", "BitwiseAnd"): _of(np.bitwise_and),
    ("", "BitwiseNot"): _of(np.invert),
    ("", "BitwiseOr"): _of(np.bitwise_or),
    ("", "BitwiseXor"): _of(np.bitwise_xor),
    ("", "Col2Im"): Row(_col2im),
    ("", "Compress"): Row(_compress),
    ("", "DFT"): Row(_dft),
    ("", "MaxUnpool"): Row(_max_unpool),
    ("", "NonZero"): Row(lambda node: np.array(np.nonzero(node.static(0)), np.int64)),
    ("", "STFT"): Row(_stft),
    ("", "TensorScatter"): Row(_tensor_scatter),
    ("", "Unique"): Row(_unique),
}
"""One row for each operator."""
