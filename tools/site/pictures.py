"""SVG pictures for the reference: curves of activations, windows of convolutions and pooling.

The colours are visible on white and on black.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kinnor import Variable

LINE, SLOPE, GREY = "#3f7fd9", "#d9713f", "#8a8f98"
CELL = 18

CURVES: dict[str, Callable[[Variable], Variable]] = {
    name: getattr(F, name)
    for name in (
        "sigmoid", "tanh", "swish", "gelu", "mish", "softplus", "log_sigmoid", "softsign", "tanh_shrink", "sinc",
        "relu", "leaky_relu", "elu", "selu", "relu6", "hard_sigmoid", "hard_tanh", "hard_swish",
    )
}  # fmt: skip
"""Functions drawn over [-4, 4], each with its derivative."""

WINDOWS = {
    "convolution": "Stride 1, stride 2, and dilation 2: the inputs of one output element.",
    "depthwise_convolution": "Each map reads one channel.",
    "deconvolution": "Stride 2: the outputs of one input element.",
    "max_pooling": "Kernel (2, 2): the largest element of each window.",
    "average_pooling": "Kernel (2, 2): the mean of each window.",
    "unpooling": "Kernel (2, 2): each element is repeated.",
}
"""Functions drawn as grids, and their captions."""


def svg(width: float, height: float, parts: Iterable[str], title: str) -> str:
    """Returns a picture of this size."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="10">'
    head += f"<title>{html.escape(title)}</title>"
    return head + "".join(parts) + "</svg>\n"


def curve(name: str) -> str:
    """Draws a function and its derivative over [-4, 4], clipped to [-2, 4]."""
    points = np.linspace(-4, 4, 161)
    with nn.context_scope(nn.Context(["cpu:double"])), nn.auto_forward():
        x = nn.Variable.from_numpy_array(points, need_grad=True)
        y = CURVES[name](x)
        y.backward(1.0)

    def path(values: np.ndarray, colour: str, more: str = "") -> str:
        """Draws a line through the values within the range."""
        at = " ".join(
            f"{20 + (p + 4) * 25:.1f},{10 + (4 - v) * 20:.1f}"
            for p, v in zip(points, values, strict=True)
            if -2 <= v <= 4
        )
        return f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="2" {more}/>'

    axes = f'<path d="M20 90H220M120 10V130" stroke="{GREY}"/>'
    ends = ((212, 102, 4), (18, 102, -4), (124, 18, 4))
    marks = "".join(f'<text x="{left}" y="{top}" fill="{GREY}">{value}</text>' for left, top, value in ends)
    parts = [axes, marks, path(x.g, SLOPE, 'stroke-dasharray="4 3"'), path(y.d, LINE)]
    return svg(240, 140, parts, f"{name} (line) and its derivative (dashed)")


def grid(left: float, top: float, rows: int, columns: int, colour: Callable[[int, int], str]) -> str:
    """Draws a grid of cells, each filled with a colour or `none`."""
    cells = (
        f'<rect x="{left + j * CELL}" y="{top + i * CELL}" width="{CELL}" height="{CELL}" fill="{colour(i, j)}" '
        f'fill-opacity="0.75" stroke="{GREY}"/>'
        for i in range(rows)
        for j in range(columns)
    )
    return "".join(cells)


def arrow(left: float, top: float) -> str:
    """Draws an arrow to the right."""
    return f'<path d="M{left} {top}h20m-6-5l6 5l-6 5" fill="none" stroke="{GREY}" stroke-width="2"/>'


def read_by(size: int, out: int, first: int, step: int, taps: int, apart: int, left: float, label: str) -> list[str]:
    """Draws an input of `size` x `size`, the elements that one output element reads, and the output."""
    places = {first * step + t * apart for t in range(taps)}
    right = left + size * CELL + 32
    return [
        grid(left, 20, size, size, lambda i, j: LINE if {i, j} <= places else "none"),
        arrow(left + size * CELL + 6, 20 + size * CELL / 2),
        grid(right, 20, out, out, lambda i, j: SLOPE if i == j == first else "none"),
        f'<text x="{left}" y="13" fill="{GREY}">{label}</text>',
    ]


def windows(name: str) -> str:
    """Draws the grids of one of `WINDOWS`."""
    if name == "convolution":
        kinds = [("3 x 3", 4, 1, 1, 3, 1), ("stride 2", 2, 1, 2, 3, 1), ("dilation 2", 2, 1, 1, 3, 2)]
        parts = [p for n, (label, *rest) in enumerate(kinds) for p in read_by(6, *rest, 10 + n * 235, label)]
        return svg(650, 140, parts, WINDOWS[name])
    if name == "depthwise_convolution":
        parts = [p for n in range(3) for p in read_by(4, 2, 0, 1, 3, 1, 10 + n * 170, f"channel {n + 1}")]
        return svg(490, 105, parts, WINDOWS[name])
    if name == "deconvolution":
        parts = [
            grid(10, 20, 3, 3, lambda i, j: LINE if i == j == 1 else "none"),
            arrow(10 + 3 * CELL + 6, 20 + 1.5 * CELL),
            grid(10 + 3 * CELL + 32, 20, 7, 7, lambda i, j: SLOPE if {i, j} <= {2, 3, 4} else "none"),
        ]
        return svg(240, 160, parts, WINDOWS[name])
    x = np.array([[1, 3, 2, 0], [4, 2, 1, 5], [0, 1, 7, 2], [2, 6, 3, 4]], np.float64)
    small, pooled = x[:2, :2], nn.NdArray.from_numpy_array(x[None])
    if name == "unpooling":
        y = F.unpooling(nn.NdArray.from_numpy_array(small[None]), (2, 2)).data[0]
        return svg(190, 105, [*numbers(small, 10), arrow(52, 56), *numbers(y, 82)], WINDOWS[name])
    y = getattr(F, name)(pooled, (2, 2)).data[0]
    return svg(170, 105, [*numbers(x, 10), arrow(88, 56), *numbers(y, 116)], WINDOWS[name])


def numbers(values: np.ndarray, left: float) -> list[str]:
    """Draws a grid with numbers in four colours, one for each window of two by two."""
    colours = (LINE, SLOPE, "#4aa564", "#a86fc9")
    size, of = len(values), 2 if len(values) == 4 else 1
    cells = grid(left, 20, size, size, lambda i, j: colours[i // of * 2 + j // of])
    texts = (
        f'<text x="{left + (j + 0.5) * CELL}" y="{20 + (i + 0.7) * CELL}" text-anchor="middle" fill="#fff">{v:g}</text>'
        for (i, j), v in np.ndenumerate(values)
    )
    return [cells, *texts]


def all_pictures() -> dict[str, str]:
    """Returns all pictures by the name of the function."""
    return {name: curve(name) for name in CURVES} | {name: windows(name) for name in WINDOWS}
