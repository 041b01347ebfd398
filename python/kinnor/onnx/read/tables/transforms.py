"""Fourier transforms. NumPy computes them in each run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..array_function import computed_by_arrays
from ..values import Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..values import Node, Value

__all__ = ["TRANSFORMS"]


def _complex(x: NDArray[Any]) -> NDArray[Any]:
    """ONNX's complex numbers, with real and imaginary parts on the last axis, as a complex array."""
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0] + 0j


def _pairs(z: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """A complex array in ONNX's form, with real and imaginary parts on the last axis."""
    return np.ascontiguousarray(z).view(z.real.dtype).reshape(*z.shape, 2).astype(dtype, copy=False)


def _transformed(x: NDArray[Any], length: int, axis: int, is_onesided: bool) -> NDArray[Any]:
    """The Fourier transform of ONNX's complex numbers along an axis, in the same form."""
    if x.shape[-1] == 1:
        y = np.fft.rfft(x[..., 0], length, axis)
        if not is_onesided:  # the second half of the transform of real numbers is the first one, mirrored
            rest = np.take(y, range((length - 1) // 2, 0, -1), axis)
            y = np.concatenate([y, rest.conj()], axis)
    else:
        y = np.fft.fft(_complex(x), length, axis)
        y = np.take(y, range(length // 2 + 1), axis) if is_onesided else y
    return _pairs(y, x.dtype)


def _dft(node: Node) -> list[Value]:
    """Builds `DFT`."""
    value = node.value(0)
    axis = int(node.static(2).item()) if node.has(2) else node.get("axis", 1 if node.version < 20 else -2)
    axis = axis % len(value.shape)
    length = int(node.static(1).item()) if node.has(1) else value.shape[axis]
    is_inverse, is_onesided = bool(node.get("inverse", 0)), bool(node.get("onesided", 0))
    if is_inverse and is_onesided and not node.has(1):
        length = 2 * (length - 1)
    shape = [*value.shape[:-1], 1 if is_inverse and is_onesided else 2]
    shape[axis] = length // 2 + 1 if is_onesided and not is_inverse and length else length

    def compute(x: NDArray[Any]) -> list[NDArray[Any]]:
        """Computes the output."""
        if not math.prod(shape):
            return [np.zeros(shape, x.dtype)]
        if not is_inverse:
            return [_transformed(x, length, axis, is_onesided)]
        if is_onesided:
            return [np.fft.irfft(_complex(x), length, axis)[..., None]]
        return [_pairs(np.fft.ifft(_complex(x), length, axis), x.dtype)]

    return computed_by_arrays("DFT", compute, [value], [shape], [value.dtype])


def _stft(node: Node) -> list[Value]:
    """Builds `STFT`."""
    value, step = node.value(0), int(node.static(1).item())
    window = node.value(2) if node.has(2) else None
    n = value.shape[1]
    length = int(node.static(3).item()) if node.has(3) else n if window is None else window.shape[0]
    is_onesided = bool(node.get("onesided", 1))
    shape = [value.shape[0], max((n - length) // step + 1, 0), length // 2 + 1 if is_onesided else length, 2]

    def compute(x: NDArray[Any], *windows: NDArray[Any]) -> list[NDArray[Any]]:
        """Computes the output."""
        pairs = x if x.ndim == 3 else x[..., None]
        if not math.prod(shape):
            return [np.zeros(shape, x.dtype)]
        frames = np.lib.stride_tricks.sliding_window_view(pairs, length, 1)[:, ::step]  # (batch, frames, parts, length)
        for window in windows:
            frames = frames * window
        return [_transformed(np.moveaxis(frames, 2, 3), length, 2, is_onesided)]

    return computed_by_arrays("STFT", compute, [value, *([] if window is None else [window])], [shape], [value.dtype])


TRANSFORMS: dict[tuple[str, str], Row] = {("", "DFT"): Row(_dft), ("", "STFT"): Row(_stft)}
"""One row for each operator."""
