"""Gives both inputs of a broadcasting function the same number of axes, because NNabla does not add missing axes.

Knows which functions broadcast their inputs. No file access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .nodes import NetworkVariable, ProtoFunction

if TYPE_CHECKING:
    from .network import ProtoNetwork

__all__ = ["equalized"]

REPEATS = {
    *("Add2", "BcAdd2", "Sub2", "Mul2", "Div2", "Pow2", "ATan2", "Mod2", "BitShift", "Maximum2", "Minimum2"),
    *("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "LogicalXor"),
}
"""Functions that broadcast their two inputs."""


def equalized(network: ProtoNetwork) -> ProtoNetwork:
    """Insert a `Reshape` before each broadcasting function whose inputs differ in their number of axes.

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
