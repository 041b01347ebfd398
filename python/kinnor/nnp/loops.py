"""Unrolls the repetitions of networks.

Neural Network Console writes networks with repeated parts. Nodes between `RepeatStart` and `RepeatEnd` run a fixed
number of times. Nodes between `RecurrentInput` and `RecurrentOutput` run once for each element of a sequence. `Delay`
returns the value of the previous element. This module also names the copies of the nodes. No file access.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from ..files.network_file import MOST_NODES, NetworkError
from .nodes import ProtoFunction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .network import ProtoNetwork

__all__ = ["expanded"]

MOST_NUMBERS = 1 << 28
"""Maximum number of elements in repeated parameters, 1 GiB. A small file could ask for any number."""

MOST_LOOPS = 8
"""Maximum nesting depth of repetitions."""


def expanded(network: ProtoNetwork) -> ProtoNetwork:
    """A copy of a network with repetitions unrolled: repeated nodes are copied once for each time they run.

    Args:
        network: The network.

    Raises:
        NetworkError: If a repetition is malformed, or if there would be too many nodes.
    """
    if not network.repeat_info:
        return network.clone()
    nodes: list[Any] = [*network.variables.values(), *network.parameters.values(), *network.functions.values()]
    n_nodes = sum(prod(_times(network, node.repeat_id)) for node in nodes)
    if n_nodes > MOST_NODES:
        raise NetworkError(f"network {network.name!r}: expected at most {MOST_NODES} nodes, got {n_nodes}")
    repeated = [(prod(node.shape), prod(_times(network, node.repeat_id))) for node in network.parameters.values()]
    n_numbers = sum(size * times for size, times in repeated if size > 0 and times > 1)
    if n_numbers > MOST_NUMBERS:
        raise NetworkError(
            f"network {network.name!r}: expected at most {MOST_NUMBERS} numbers in parameters that are repeated, "
            f"got {n_numbers}"
        )
    made = network.clone()
    made.variables.clear()
    made.parameters.clear()
    made.functions.clear()
    made.repeat_info = {}
    for variable in (*network.variables.values(), *network.parameters.values()):
        for places in _places(network, variable.repeat_id):
            copy = variable.clone()
            copy.name = _name(variable.name, variable.repeat_id, places)
            copy.parent, copy.required, copy.repeat_id = None, [], []
            made.add_variable(copy)
    for function in network.functions.values():
        for places in _places(network, function.repeat_id):
            copy_of = _function(network, made, function, places)
            if copy_of is not None:
                made.add_function(copy_of)
    made.find_ports()
    return made


def _times(network: ProtoNetwork, ids: Sequence[str]) -> list[int]:
    """The number of runs of each of these repetitions."""
    try:
        times = [network.repeat_info[repeat_id] for repeat_id in ids]
    except KeyError as error:
        raise NetworkError(f"network {network.name!r}: expected the id of a repetition, got {error}") from error
    if len(times) > MOST_LOOPS or any(n < 0 for n in times):
        raise NetworkError(f"network {network.name!r}: expected repetitions that end, got {times}")
    return times


def _places(network: ProtoNetwork, ids: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """The loop indices of nested repetitions, for each run of the innermost body."""
    return product(*map(range, _times(network, ids)))


def _suffix(ids: Sequence[str], places: Sequence[int]) -> str:
    """The suffix of the names of a copy: id and index of each repetition."""
    return "".join(f"_{repeat_id}[{place}]" for repeat_id, place in zip(ids, places, strict=False))


def _name(name: str, ids: Sequence[str], places: Sequence[int]) -> str:
    """The name of a copy: `a{loop}/b` becomes `a[0]/b`; another name gets a suffix."""
    for repeat_id, place in zip(ids, places, strict=True):
        mark = f"{{{repeat_id}}}"
        name = name.replace(mark, f"[{place}]") if mark in name else f"{name}_{repeat_id}[{place}]"
    return name


def _function(
    network: ProtoNetwork, made: ProtoNetwork, function: ProtoFunction, places: tuple[int, ...]
) -> ProtoFunction | None:
    """Copy a function for these loop indices. Returns None if its first copy covers them (`RecurrentInput`)."""
    ids = function.repeat_id
    here, outside = _suffix(ids, places), _suffix(ids, places[:-1])

    def known(*names: str) -> str:
        """The first of these names that exists in the network, or the last name."""
        return next((name for name in names if name in made.variables or name in made.parameters), names[-1])

    _check(network, function, places)
    name, kind, args = function.name + here, "Identity", function.args
    inputs = function.inputs
    outputs = [known(output + here, _marked(output, ids, places), output) for output in function.outputs]
    if function.type in ("RepeatStart", "Delay"):
        first, again = (0, 1) if function.type == "RepeatStart" else (1, 0)
        held = function.repeat_param if function.type == "RepeatStart" else function.recurrent_param
        if places[-1] == 0:
            taken = [known(inputs[first], inputs[first] + outside)]
        else:
            taken = [f"{inputs[again]}{outside}_{held.repeat_id}[{places[-1] - 1}]"]
    elif function.type == "RepeatEnd":
        repeat_id = function.repeat_param.repeat_id
        taken = [f"{inputs[0]}{here}_{repeat_id}[{network.repeat_info.get(repeat_id, 0) - 1}]"]
    elif function.type == "RecurrentInput":
        if places[-1] > 0:
            return None
        held = function.recurrent_param
        axis = held.axis
        shape = network.variable(inputs[0]).shape
        if not 0 <= axis < len(shape):
            raise NetworkError(f"network {network.name!r}: expected an axis of {shape}, got {axis} of {name!r}")
        name, kind, args = function.name + outside, "Split", {"axis": axis}
        taken = [known(inputs[0], inputs[0] + outside)]
        length = network.repeat_info.get(held.repeat_id, shape[axis])
        if length != shape[axis]:
            raise NetworkError(
                f"network {network.name!r}: expected {shape[axis]} repetitions of {name!r}, got {length}"
            )
        outputs = [f"{function.outputs[0]}{outside}_{held.repeat_id}[{i}]" for i in range(length)]
    elif function.type == "RecurrentOutput":
        held = function.recurrent_param
        kind, args = "Stack", {"axis": held.axis}
        if not 0 <= held.length <= MOST_NODES:
            raise NetworkError(f"network {network.name!r}: expected repetitions that end, got {held.length}")
        taken = [f"{inputs[0]}{here}_{held.repeat_id}[{i}]" for i in range(held.length)]
    else:
        kind = function.type
        marked = [_marked(i, ids, places) for i in inputs]
        taken = [known(i, i + here, i + outside) for i in marked]
    return ProtoFunction(name, kind, args, taken, outputs)


def _marked(name: str, ids: Sequence[str], places: Sequence[int]) -> str:
    """A name with the loop indices instead of the ids in braces."""
    for repeat_id, place in zip(ids, places, strict=True):
        name = name.replace(f"{{{repeat_id}}}", f"[{place}]")
    return name


def _check(network: ProtoNetwork, function: ProtoFunction, places: tuple[int, ...]) -> None:
    """Raise NetworkError if a function of a repetition lacks inputs or its repetition."""
    takes = {"RepeatStart": 2, "Delay": 2, "RepeatEnd": 1, "RecurrentInput": 1, "RecurrentOutput": 1}
    if function.type not in takes:
        return
    held = function.repeat_param if function.type.startswith("Repeat") else function.recurrent_param
    is_inside = function.type in ("RepeatStart", "Delay", "RecurrentInput")
    if (
        held is None
        or len(function.inputs) != takes[function.type]
        or not function.outputs
        or (is_inside and not places)
    ):
        raise NetworkError(
            f"network {network.name!r}: expected {takes[function.type]} inputs and a repetition, got {function!r}"
        )
