"""Replaces matrix products with parameters, and additions after them, by affine layers.

Other frameworks write a layer as a reshape of a weight, a matrix product and an addition. No file access.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...nnp.network import ProtoNetwork

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...nnp.nodes import ProtoFunction

__all__ = ["with_affine_layers"]


class Layer(NamedTuple):
    """A matrix product that can become an affine layer.

    Attributes:
        weight: The name of the parameter in the product.
        bias: The name of the added parameter, or None.
        last: The function before the addition: the product, or a reshape after it. None without an addition.
        addition: The addition, or None.
    """

    weight: str
    bias: str | None = None
    last: ProtoFunction | None = None
    addition: ProtoFunction | None = None


def with_affine_layers(network: ProtoNetwork) -> ProtoNetwork:
    """A copy of a network with affine layers instead of matrix products with parameters.

    The second factor must be a parameter with two axes, possibly reshaped with additional axes of length one. The
    addition of a parameter becomes the bias if the parameter is as long as the last axis. There may be a reshape before
    the addition that keeps the last axis.

    Args:
        network: The network.

    Returns:
        The copy. Its inputs and outputs keep their names.

    Raises:
        NetworkError: If the network has a cycle.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> nn.clear_parameters()
        >>> w = nn.parameter.get_parameter_or_create("w", (3, 2))
        >>> y = F.batch_matmul(nn.Variable((4, 3)), w)
        >>> graph = nn.graph_def.create_graph_from_variable("net", y)
        >>> [f.type for f in with_affine_layers(graph.default_graph()).forward_sequence()]
        ['Affine']
        >>> nn.clear_parameters()
    """
    layers = {f.name: layer for f in network.forward_sequence() if (layer := _layer(network, f)) is not None}
    outputs = {layer.last.name: layer.addition.outputs for layer in layers.values() if layer.last and layer.addition}
    dropped = {layer.addition.name for layer in layers.values() if layer.addition}
    functions = []
    for f in network.forward_sequence():
        if f.name in dropped:
            continue
        copy = f.clone()
        copy.outputs = list(outputs.get(f.name, f.outputs))
        if f.name in layers:
            layer = layers[f.name]
            copy.type, copy.args = "Affine", {"base_axis": len(network.variable(f.inputs[0]).shape) - 1}
            copy.inputs = [f.inputs[0], layer.weight, *([layer.bias] if layer.bias else [])]
        functions.append(copy)
    return _pruned_network(network, functions)


def _layer(network: ProtoNetwork, f: ProtoFunction) -> Layer | None:
    """The affine layer that can replace a function, or None if it is not a product with a parameter."""
    if f.type != "BatchMatmul" or f.args.get("transpose_a") or f.args.get("transpose_b"):
        return None
    x, w = (network.variable(name).shape for name in f.inputs)
    y = network.variable(f.outputs[0]).shape
    weight = _source(network, f.inputs[1])
    held = network.parameters.get(weight)
    if held is None or len(held.shape) != 2 or w[-2:] != held.shape or prod(w[:-2]) != 1 or len(x) < 2:
        return None
    return _biased(network, f, weight) if y == (*x[:-1], w[-1]) else None


def _biased(network: ProtoNetwork, f: ProtoFunction, weight: str) -> Layer:
    """The affine layer of a product, with the bias that is added to its output, if any."""
    n = network.variable(f.outputs[0]).shape[-1]
    last, reader = f, _only_reader(network, f)
    if reader is not None and reader.type == "Reshape" and network.variable(reader.outputs[0]).shape[-1:] == (n,):
        last, reader = reader, _only_reader(network, reader)
    if reader is None or reader.type != "Add2":
        return Layer(weight)
    added = [name for name in reader.inputs if name != last.outputs[0]]
    if len(added) != 1 or network.variable(reader.outputs[0]).shape != network.variable(last.outputs[0]).shape:
        return Layer(weight)
    bias, shape = _source(network, added[0]), network.variable(added[0]).shape
    held = network.parameters.get(bias)
    if held is None or shape[-1:] != (n,) or prod(shape) != n or held.shape != (n,):
        return Layer(weight)
    return Layer(weight, bias, last, reader)


def _source(network: ProtoNetwork, name: str) -> str:
    """The variable that a variable is a reshape of, or the variable itself."""
    while (parent := network.variable(name).parent) is not None and network.functions[parent].type == "Reshape":
        name = network.functions[parent].inputs[0]
    return name


def _only_reader(network: ProtoNetwork, f: ProtoFunction) -> ProtoFunction | None:
    """The function that reads the output of `f`, if it is the only one and the output is no output of the network."""
    readers = network.variable(f.outputs[0]).required
    return network.functions[readers[0]] if len(readers) == 1 else None


def _pruned_network(network: ProtoNetwork, functions: Iterable[ProtoFunction]) -> ProtoNetwork:
    """A network of the functions that the outputs need, and of their variables."""
    wanted, kept = set(network.outputs), []
    for f in reversed([*functions]):
        if not wanted.isdisjoint(f.outputs):
            wanted.update(f.inputs, f.outputs)
            kept.append(f)
    made = ProtoNetwork(network.owner, network.name, network.batch_size)
    for variable in (*network.variables.values(), *network.parameters.values()):
        if variable.name in wanted:
            copy = variable.clone()
            copy.parent, copy.required = None, []
            made.add_variable(copy)
    for f in reversed(kept):
        made.add_function(f)
    made.find_ports()
    return made
