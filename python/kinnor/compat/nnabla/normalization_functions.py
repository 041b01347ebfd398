"""Normalizations, and the private helpers of NNabla's module that NNabla's tests import."""

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
    """The axes as a sequence; a single axis becomes a list of one."""
    return axis if isinstance(axis, Iterable) else [axis]


def _get_axes_excluding(ndim: int, axes: int | Sequence[int]) -> list[int]:
    """All axes except these. Negative axes count from the end."""
    left_out = {axis % ndim for axis in _force_list(axes)}
    return [axis for axis in range(ndim) if axis not in left_out]


def _apply_affine(x: Any, scale: Any = None, bias: Any = None) -> Any:
    """`x * scale + bias`. Scale and bias are optional."""
    x = x if scale is None else x * scale
    return x if bias is None else x + bias
