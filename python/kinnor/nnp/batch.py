"""Changes of a network before it is written: a batch of any length, and functions that NNabla's files can store.

Knows which axis is the batch. No file access.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ..files.network_file import NetworkError
from ..modes import auto_forward
from . import messages
from .nodes import NetworkVariable, ProtoFunction

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core import Function, Variable
    from .network import ProtoNetwork

__all__ = ["equalized", "freed", "lowered"]

SHAPED = ("Reshape", "Broadcast", "Constant", "Rand", "Randint", "Randn", "RandBinomial", "RandBeta", "RandGamma")
"""Functions with a shape argument that begins with the batch size."""

AXES = ("axis", "axes", "batch_axis", "channel_axis", "dim", "shape")
"""Arguments that count axes from the first axis."""


def freed(network: ProtoNetwork) -> ProtoNetwork:
    """A copy of a network with -1 as the first length of all variables that depend on its inputs.

    Follows NNabla: the batch consists of the axes before `base_axis` of the functions that have this argument. A
    network without such a function is returned unchanged. If there are several axes before `base_axis`, the first one
    is the batch. The exception: if the network joins these axes by a `Reshape`, they are joined from the inputs on.

    Args:
        network: The network.

    Raises:
        NetworkError: If a shape argument does not begin with the batch size.
    """
    made = network.clone()
    functions = list(made.forward_sequence())
    size = _join(made, functions) or _size(made, functions)
    if size is not None and made.batch_size and all(made.variables[x].shape[:1] != (size,) for x in made.inputs):
        size = made.batch_size
    if size is None or size < 1:
        return made
    fixed: set[str] = set()
    """Variables that depend on parameters only."""
    for function in functions:
        if not any(name in made.variables and name not in fixed for name in function.inputs):
            fixed.update(function.outputs)
            if function.inputs or function.args.get("shape", [None])[:1] != [size]:
                continue
            fixed.difference_update(function.outputs)
        if function.type in SHAPED:
            _free_argument(made, function, size)
        elif function.type == "Slice":
            _free_slice(made, function, size)
    for name, variable in made.variables.items():
        if name not in fixed and variable.shape[:1] == (size,):
            variable.shape = (-1, *variable.shape[1:])
    made.batch_size = size
    return made


def _size(network: ProtoNetwork, functions: list[ProtoFunction]) -> int | None:
    """The batch size, or None if no function determines it."""
    for function in functions:
        if function.args.get("base_axis"):
            for name in function.inputs:
                if name in network.variables and network.variables[name].shape:
                    length = network.variables[name].shape[0]
                    return network.batch_size or None if length < 0 else length
    return None


def _join(network: ProtoNetwork, functions: list[ProtoFunction]) -> int | None:
    """Join the axes before `base_axis` everywhere if a `Reshape` joins them. Returns the joined length, or None."""
    base = max((function.args.get("base_axis", 0) for function in functions), default=0)
    apart = {name: v for name, v in network.variables.items() if name in network.inputs and len(v.shape) >= base}
    if base < 2 or not apart:
        return None
    lead = next(iter(apart.values())).shape[:base]
    size, joins = prod(lead), False
    apart = {name: v for name, v in apart.items() if v.shape[:base] == lead}
    based: list[ProtoFunction] = []
    """Functions whose `base_axis` counts the joined axes."""
    for function in functions:
        taken = [name for name in function.inputs if name in apart]
        if not taken:
            continue
        if function.type == "Reshape" and list(function.args["shape"][:1]) == [size] != [lead[0]]:
            joins = True
            continue
        if function.args.get("base_axis") == base:
            based.append(function)
        elif len(taken) < len(function.inputs) or not _is_pointwise(network, function):
            return None
        apart.update((name, network.variables[name]) for name in function.outputs)
    if not joins or size < 1 or any(v.shape[:base] != lead for v in apart.values()):
        return None
    for variable in apart.values():
        variable.shape = (size, *variable.shape[base:])
    for function in based:
        function.args["base_axis"] = 1
    return size


def _is_pointwise(network: ProtoNetwork, function: ProtoFunction) -> bool:
    """True if inputs and outputs have one shape and no argument refers to an axis."""
    shapes = {network.variable(name).shape for name in (*function.inputs, *function.outputs)}
    return len(shapes) == 1 and not any(name in function.args for name in AXES)


def _free_argument(network: ProtoNetwork, function: ProtoFunction, size: int) -> None:
    """Replace the batch size in a shape argument by -1."""
    shape = list(function.args["shape"])
    if shape[:1] == [-1]:
        return
    if shape[:1] != [size]:
        if function.type == "Reshape" and all(length >= 0 for length in shape):
            raise NetworkError(
                f"save: expected shapes that begin with the batch of {size}, got {shape} of {function.name!r} in "
                f"{network.name!r}; variable_batch_size=False saves a network for one batch size"
            )
        return
    function.args["shape"] = [-1, *shape[1:]]


def _free_slice(network: ProtoNetwork, function: ProtoFunction, size: int) -> None:
    """Remove the batch axis from a slice that takes all of it: shorter arguments apply to the last axes."""
    ndim = len(network.variable(function.inputs[0]).shape)
    bounds = [list(function.args.get(name) or ()) for name in ("start", "stop", "step")]
    if ndim > 1 and all(len(of) == ndim for of in bounds) and [of[0] for of in bounds] == [0, size, 1]:
        function.args.update(zip(("start", "stop", "step"), (of[1:] for of in bounds), strict=True))


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
