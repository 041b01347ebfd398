"""Operators on images, boxes and grids, and determinants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable, non_max_suppression
from ....rewrite.int8.levels import rounded
from ..values import Row
from .building import reshape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..values import Node

__all__ = ["VISION"]


def _det(node: Node) -> Variable:
    """Builds `Det`."""
    x = node.x()
    flat = F.batch_det(reshape(x, (x.size // (x.shape[-1] ** 2 or 1), *x.shape[-2:])))
    return reshape(flat, x.shape[:-2])


def _grid_sample(node: Node) -> Variable:
    """Builds `GridSample`."""
    modes = {"linear": "linear", "bilinear": "linear", "nearest": "nearest"}
    mode = node.get("mode", "linear" if node.version >= 20 else "bilinear")
    if mode not in modes:
        raise node.unsupported(f"expected the mode linear or nearest, got {mode}")
    frame = {"zeros": "zero", "border": "repeat", "reflection": "reflect"}[node.get("padding_mode", "zeros")]
    is_aligned = bool(node.get("align_corners", 0))
    x, grid = node.x(0), node.x(1)
    if mode == "nearest":
        grid = _on_pixels(grid, x.shape[:1:-1], is_aligned)
    return F.warp_by_grid(x, grid, mode=modes[mode], padding_mode=frame, align_corners=is_aligned)


def _on_pixels(grid: Variable, lengths: tuple[int, ...], is_aligned: bool) -> Variable:
    """Grid coordinates rounded to pixels, half to even, as ONNX rounds. `lengths` are the image's axes, x first."""
    spans = np.array(lengths, np.float32) - is_aligned
    half, shift = Variable.from_numpy_array(np.maximum(spans, 1) / 2), 0.0 if is_aligned else 0.5
    return (rounded((grid + 1) * half - shift) + shift) / half - 1


def _suppressed(node: Node) -> NDArray[Any]:
    """Builds `NonMaxSuppression`: rows of image, class and box index. Their number depends on values."""
    most, share, least = (next(node.static(i).flat, None) if node.has(i) else None for i in (2, 3, 4))
    found: NDArray[Any] = non_max_suppression(
        node.constant(0),
        node.constant(1),
        int(node.get("center_point_box", 0)),
        int(most or 0),
        float(share or 0.0),
        -np.inf if least is None else float(least),
    )
    return found


def _affine_grid(node: Node) -> Variable:
    """Builds `AffineGrid`."""
    size = node.ints(1) or []
    return F.affine_grid(node.x(0), tuple(size[2:]), align_corners=bool(node.get("align_corners", 0)))


def _deform(node: Node) -> Variable:
    """Builds `DeformConv`."""
    n = node.x(1).ndim - 2
    pads = node.get("pads") or [0] * (2 * n)
    if pads[:n] != pads[n:]:
        raise node.unsupported(f"expected equal padding before and after, got {pads}")
    return F.deformable_convolution(
        node.x(0),
        node.x(1),
        node.x(2),
        node.optional(4),
        node.optional(3),
        pad=pads[:n],
        stride=node.get("strides") or [1] * n,
        dilation=node.get("dilations") or [1] * n,
        group=node.get("group", 1),
        deformable_group=node.get("offset_group", 1),
    )


VISION: dict[tuple[str, str], Row] = {
    ("", "AffineGrid"): Row(_affine_grid),
    ("", "DeformConv"): Row(_deform),
    ("", "Det"): Row(_det),
    ("", "GridSample"): Row(_grid_sample),
    ("", "NonMaxSuppression"): Row(_suppressed, dtype=np.int64),
}
"""One row for each operator."""
