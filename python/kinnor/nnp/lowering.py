"""Rewrites functions that NNabla's files cannot store with functions that they can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..modes import auto_forward
from . import messages
from .nodes import NetworkVariable, ProtoFunction

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core import Function, Variable
    from .network import ProtoNetwork

__all__ = ["equalized", "lowered"]


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

REPEATS = {
    *("Add2", "BcAdd2", "Sub2", "Mul2", "Div2", "Pow2", "ATan2", "Mod2", "BitShift", "Maximum2", "Minimum2"),
    *("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "LogicalXor"),
}
"""Functions that broadcast their two inputs."""


def equalized(network: ProtoNetwork) -> ProtoNetwork:
    """Insert a `Reshape` before each broadcasting function whose inputs differ in their number of axes.

    NNabla does not add missing axes.

    Args:
        network: The network. It is returned itself if nothing changes.
    """
    lacking = {f.name: n for f in network.functions.values() if f.type in REPEATS and (n := _most_axes(network, f))}
    if not lacking:
        return network
    made = network.clone()
    made.functions.clear()
    for node in (*made.variables.values(), *made.parameters.values()):
        node.parent, node.required = None, []
    for function in network.functions.values():
        copy = function.clone()
        if copy.name in lacking:
            copy.inputs = [_with_axes(made, copy, place, lacking[copy.name]) for place in range(len(copy.inputs))]
        made.add_function(copy)
    made.find_ports()
    return made


def _most_axes(network: ProtoNetwork, function: ProtoFunction) -> int:
    """The larger number of axes of the inputs, or 0 if all have the same number."""
    found = {len(network.variable(name).shape) for name in function.inputs}
    return max(found) if len(found) > 1 else 0


def _with_axes(network: ProtoNetwork, function: ProtoFunction, place: int, n: int) -> str:
    """The name of input `place` with `n` axes. A `Reshape` is added if the input has fewer."""
    name = function.inputs[place]
    given = network.variable(name)
    if len(given.shape) == n:
        return name
    shape = (*[1] * (n - len(given.shape)), *given.shape)
    end = f"{function.name}/axes_{place}"
    while end in network.variables or end in network.parameters or end in network.functions:
        end += "_"
    variable = NetworkVariable(end, shape)
    variable.repeat_id = function.repeat_id.copy()
    network.add_variable(variable)
    reshape = ProtoFunction(end, "Reshape", {"shape": list(shape), "inplace": True}, [name], [end])
    reshape.repeat_id = function.repeat_id.copy()
    network.add_function(reshape)
    return end
