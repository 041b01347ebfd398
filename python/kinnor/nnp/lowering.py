"""Rewrites functions that NNabla's files cannot store with functions that they can.

No knowledge of networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..modes import auto_forward
from . import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core import Function, Variable

__all__ = ["lowered"]


def lowered(function: Function) -> Variable | None:
    """Rebuild a function from other functions. Returns None if files can store the function itself.

    Args:
        function: A function with one output.
    """
    rule = RULES.get(function.info.type_name)
    if rule is None:
        return None
    with auto_forward(False):
        return rule(function)


def _slice(f: Function) -> Variable | None:
    """A slice in files keeps all axes: axes are removed or added by a reshape afterwards."""
    from .. import functions as F

    whole: Variable = messages.call("Slice", f.inputs, f.info.args, 1)[0]
    shape = f.outputs[0].shape
    return None if whole.shape == shape else F.reshape(whole, shape)


def _attention(f: Function) -> Variable:
    """Attention as products and a softmax."""
    from .. import functions as F

    (query, key, value, *mask), args = f.inputs, f.info.args
    scale = query.shape[-1] ** -0.5 if args["scale"] is None else args["scale"]
    scores = F.batch_matmul(query * scale, key, transpose_b=True)
    if mask:
        scores = scores + mask[0]
    if args["causal"]:
        shape = (*[1] * (query.ndim - 2), query.shape[-2], key.shape[-2])
        scores = scores + F.log(F.trilu(F.constant(1, shape), 0, upper=False))
    weights = F.softmax(scores, axis=query.ndim - 1)
    if args["dropout"]:
        weights = F.dropout(weights, args["dropout"], args["seed"])
    y: Variable = F.batch_matmul(weights, value)
    return y


def _hard_swish(f: Function) -> Variable:
    """Hard swish as a product and `relu6`."""
    from .. import functions as F

    (x,) = f.inputs
    y: Variable = x * F.relu6(x + 3.0) * (1 / 6)
    return y


RULES: dict[str, Callable[[Function], Variable | None]] = {
    "HardSwish": _hard_swish,
    "ScaledDotProductAttention": _attention,
    "Slice": _slice,
}
"""Builders of replacements by type. Each function has one output."""
