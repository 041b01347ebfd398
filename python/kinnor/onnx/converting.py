"""Conversion of ONNX models to networks in NNabla's file format."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from .. import nnp
from .. import parameter as parameters
from .._core import Variable
from ..files.network_file import NetworkError
from ..nnp import ProtoExecutor, ProtoGraph

if TYPE_CHECKING:
    from .run.network import Model

__all__ = ["described"]


def described(model: Model, name: str = "model", batch_size: int = 2) -> tuple[Any, ProtoGraph]:
    """A model as an NNabla network, with its constants as parameters.

    Args:
        model: The model. Only the first axis of its inputs may have a symbolic length.
        name: The name of the network.
        batch_size: Length of symbolic axes. If possible, the network allows any batch size.

    Returns:
        The `NNablaProtoBuf` message without parameters, and the graph with parameters.

    Raises:
        NetworkError: If another axis is symbolic, or if NNabla's format cannot hold a function.
    """
    inputs = {}
    for key, shape in model.shapes.items():
        if shape is None or None in shape[1:]:
            raise NetworkError(f"convert: expected input {key!r} with the first axis open at most, got {shape}")
        inputs[key] = Variable([batch_size if n is None else n for n in shape])
    made = model(**inputs)
    outputs = dict(zip(model.outputs, made if isinstance(made, tuple) else (made,), strict=True))
    with parameters.parameter_scope("", {}):
        for key, x in model.get_parameters().items():
            parameters.set_parameter(key, x)
        known = set(model.get_parameters().values()) | set(inputs.values())
        taken = {key.split("/")[0] for key in model.get_parameters()}
        functions: list[Any] = []
        for output in outputs.values():
            output.visit(functions.append)
        for function in functions:
            for x in function.inputs:
                if x.parent is None and x not in known:
                    known.add(x)
                    free = next(key for n in count(len(known)) if (key := f"constant_{n}") not in taken)
                    taken.add(free)
                    parameters.set_parameter(free, x)
        names = {**inputs, **outputs}
        graph = nnp.create_graph_from_variable(name, list(outputs.values()), names)
    network = graph.networks[name]
    used = [key for key in inputs if key in network.inputs]
    executor = {"name": "runtime", "network": name, "data": used, "output": list(outputs)}
    graph.executors["runtime"] = ProtoExecutor.create_from_dict(executor, network)
    is_open = any(shape and shape[0] is None for shape in model.shapes.values())
    try:
        proto = graph.as_proto(False, False, [network], is_open)
    except NetworkError:
        if not is_open:
            raise
        proto = graph.as_proto(False, False, [network], False)  # some shape does not start with the batch
    return proto, graph
