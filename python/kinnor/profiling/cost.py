"""Operations and bytes of a function, computed from the shapes of its inputs and outputs. Measures nothing."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ..display import bytes_of

if TYPE_CHECKING:
    from .._core import Function

__all__ = ["Cost", "costs"]

# fmt: off
MOVES = frozenset({
    "Assign", "Broadcast", "BroadcastTo", "Concatenate", "ConcatenateParts", "Embed", "Flip", "Gather",
    "GatherNd", "Identity", "MatrixDiag", "MatrixDiagPart", "Meshgrid", "Pad", "Reshape", "Shift", "Sink",
    "Slice", "Split", "Stack", "Tile", "Transpose",
})
"""Functions without arithmetic: they move elements or change shapes."""

PRODUCTS = frozenset({
    "Affine", "BatchMatmul", "Convolution", "Deconvolution", "DepthwiseConvolution", "DepthwiseDeconvolution",
    "ModulatedConvolution",
})
# fmt: on
"""Functions of two factors whose gradients are products of the same size."""


class Cost(NamedTuple):
    """Operations and bytes of one run of a function.

    Attributes:
        flop: Additions and multiplications. Each element of an elementwise function counts as one.
        bytes: Bytes read and written.
    """

    flop: int
    bytes: int


def costs(f: Function) -> tuple[Cost, Cost]:
    """The costs of a function: forward and backward.

    A product of (m, k) and (k, n) counts 2 m k n operations. A convolution counts 2 for each weight of a filter and
    each output element. A backward run counts the same again for each factor that has a gradient. Any other function
    counts one operation for each element of its largest array, and backward the same for each input with a gradient.
    Functions that only move elements count none. A forward run reads the inputs and writes the outputs. A backward run
    reads both and the outputs' gradients, and writes the inputs' gradients.

    Args:
        f: The function.
    """
    inputs, outputs = f.inputs, f.outputs
    wanted = [x for x in inputs if x.need_grad]
    taken, given = sum(map(bytes_of, inputs)), sum(map(bytes_of, outputs))
    moved = taken + given, taken + 2 * given + sum(map(bytes_of, wanted))
    kind = f.info.type_name
    if kind in PRODUCTS and len(inputs) > 1:
        flop = product(f, kind, inputs[0].shape, inputs[1].shape, outputs[0].shape)
        factors = sum(x.need_grad for x in inputs[:2])
    else:
        sizes = [v.size for v in (*inputs, *outputs)]
        flop = 0 if kind in MOVES else max(sizes, default=0)
        factors = len(wanted)
    return Cost(flop, moved[0]), Cost(flop * factors, moved[1])


def product(f: Function, kind: str, a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...]) -> int:
    """Operations of a product, from the shapes of its factors `a`, `b` and its result `y`."""
    if kind == "Affine":
        return 2 * prod(y) * b[0]
    if kind == "BatchMatmul":
        return 2 * prod(y) * a[-2 if f.info.args.get("transpose_a") else -1]
    return 2 * prod(a if "Deconvolution" in kind else y) * prod(b[1:])
