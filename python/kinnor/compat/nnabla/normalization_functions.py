"""Normalizations, and what NNabla's tests take from their module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .functions import (
    batch_normalization,
    fused_batch_normalization,
    group_normalization,
    instance_normalization,
    layer_normalization,
    sync_batch_normalization,
    tensor_normalization,
    weight_standardization,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "batch_normalization",
    "fused_batch_normalization",
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "sync_batch_normalization",
    "tensor_normalization",
    "weight_standardization",
]


def _force_list(axis: int | Sequence[int]) -> Sequence[int]:
    """A sequence of axes from one or several."""
    return axis if isinstance(axis, Iterable) else [axis]


def _get_axes_excluding(ndim: int, axes: int | Sequence[int]) -> list[int]:
    """The axes that are not among these, which may be counted from the end."""
    left_out = {axis % ndim for axis in _force_list(axes)}
    return [axis for axis in range(ndim) if axis not in left_out]


def _apply_affine(x: Any, scale: Any = None, bias: Any = None) -> Any:
    """`x * scale + bias`, of which either may be missing."""
    x = x if scale is None else x * scale
    return x if bias is None else x + bias
