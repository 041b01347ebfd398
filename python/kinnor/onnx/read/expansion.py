"""Functions and loops of ONNX models: their definitions, and limits on the nodes that they expand to.

The limits are checked before nodes are built.
"""

from __future__ import annotations

from collections import ChainMap
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import UnsupportedError
from ...files.packages import needed
from .containers import Items
from .message import MOST_NODES, refuse_many
from .tensors import has_graphs, onnx_package
from .values import OnnxError, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence

__all__ = [
    "BUDGET",
    "MOST_STEPS",
    "MOST_TIMES",
    "Budget",
    "definition",
    "is_defined",
    "n_built",
    "number_in",
    "refuse_calls",
    "stays_true",
]


def _schema(node: Any, versions: Mapping[str, int]) -> Any:
    """The schema of a node's operator, or None if it is unknown."""
    onnx = needed("onnx.load", "onnx", "ONNX files", "onnx")
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        return onnx.defs.get_schema(node.op_type, versions.get(domain, 1), domain)
    except onnx.defs.SchemaError:
        return None


def is_defined(node: Any, versions: Mapping[str, int]) -> bool:
    """True if an operator is defined by other operators.

    Args:
        node: A `NodeProto`.
        versions: The versions of operators by domain.
    """
    schema = _schema(node, versions)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def definition(node: Any, versions: Mapping[str, int], inputs: Sequence[Value | None]) -> Any:
    """The definition of a node's operator, as a `FunctionProto` with the node's attributes filled in.

    Args:
        node: A `NodeProto`.
        versions: The versions of operators by domain.
        inputs: The inputs. Some definitions depend on their types and shapes.

    Raises:
        LookupError: If the operator has no definition.
    """
    onnx = needed("onnx.load", "onnx", "ONNX files", "onnx")
    schema = _schema(node, versions)
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        raise LookupError(node.op_type)
    version = versions.get("" if node.domain == "ai.onnx" else node.domain, 1)
    if schema.has_context_dependent_function:
        fit = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        types = [_type(onnx, value).SerializeToString() for value in inputs]
        content = schema.get_context_dependent_function_with_opset_version(
            max(fit, default=version), node.SerializeToString(), types
        )
    else:
        fit = [v for v in schema.function_opset_versions if v <= version]
        content = schema.get_function_with_opset_version(max(fit, default=version))
    found = onnx.FunctionProto.FromString(content) if isinstance(content, bytes) else content
    given = {held.name: held for held in node.attribute}
    for name, described in schema.attributes.items():
        if name not in given and described.default_value.type:
            given[name] = described.default_value
    _close(found.node, given)
    return found


def _type(onnx: Any, value: Value | None) -> Any:
    """The `TypeProto` of a value."""
    made = onnx.TypeProto()
    if isinstance(value, Items):
        element = value.items[0] if value.items else Value(np.zeros(0, value.dtype))
        made.sequence_type.elem_type.CopyFrom(_type(onnx, element))
        made.sequence_type.elem_type.tensor_type.ClearField("shape")
    elif value is not None:
        dtype = np.dtype(value.dtype)
        made.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        made.tensor_type.shape.SetInParent()
        for length in value.shape:
            made.tensor_type.shape.dim.add(dim_value=length)
    return made


def _close(nodes: Any, given: Mapping[str, Any]) -> None:
    """Replaces references to attributes in a definition's nodes by the attributes `given`."""
    for node in nodes:
        for k in reversed(range(len(node.attribute))):
            held = node.attribute[k]
            if held.HasField("g"):
                _close(held.g.node, given)
            if not held.ref_attr_name:
                continue
            found, name = given.get(held.ref_attr_name), held.name
            if found is None:
                del node.attribute[k]
            else:
                held.CopyFrom(found)
                held.name = name


MOST_TIMES = 4096
"""Limit on the iterations of a loop whose body is built once for each."""

MOST_STEPS = 1 << 24
"""Limit on the steps of a loop whose body is built once, multiplied by the steps of the loops around it."""

_MOST_BUILT = 3 * MOST_NODES
"""Limit on the nodes of inner graphs built in one call of a model. A node may be built again with more known values."""

_LEVELS = 100
"""Limit on the nesting of functions and graphs. Protobuf has the same limit."""

_LEAST_BYTES = 1 << 28
"""A model with functions may always expand to this many bytes."""


class Budget:
    """The number of nodes of inner graphs that a call of a model may still build.

    Attributes:
        turns: Number of remaining iterations of the loops around the current node, as far as it is known.
    """

    def __init__(self) -> None:
        self._left = _MOST_BUILT
        self.turns = 1

    def take(self, n_nodes: int) -> None:
        """Counts nodes that are built.

        Args:
            n_nodes: Number of nodes.

        Raises:
            UnsupportedError: If there are too many.
        """
        self._left -= n_nodes
        _refuse(self._left < 0)

    def expect(self, n_nodes: int) -> None:
        """Checks nodes before they are built.

        Args:
            n_nodes: Number of nodes in each iteration of the loops around them.

        Raises:
            UnsupportedError: If there are too many.
        """
        _refuse(n_nodes * self.turns > min(self._left, MOST_NODES))


BUDGET: ContextVar[Budget] = ContextVar("budget")
"""The budget of the current call."""


def _refuse(are_too_many: bool) -> None:
    """Raises UnsupportedError if there are too many nodes."""
    if are_too_many:
        raise UnsupportedError(
            f"onnx.Model: expected at most {MOST_NODES} nodes with those that loops repeat, got more"
        )


# --- Loops


def n_built(graph: Any, known: Mapping[str, Any], turns: int = 1) -> int:
    """A lower bound on the nodes that a graph builds. The body of a loop is built once.

    Args:
        graph: A `GraphProto`.
        known: Known integers and booleans of outer graphs by name, or initializers and nodes that may hold one.
        turns: Number of iterations of the loops around the graph.

    Raises:
        UnsupportedError: If a loop certainly has too many iterations, multiplied by the steps of the loops around it.
    """
    own: dict[str, Any] = {held.name: None for held in graph.input}
    own.update((tensor.name, tensor) for tensor in graph.initializer)
    scope: MutableMapping[str, Any] = ChainMap(own, known)  # type: ignore[arg-type]
    n_nodes = 0
    for node in graph.node:
        n_nodes += 1 + (_inside(node, scope, turns) if has_graphs(node) else 0)
        for name in node.output:
            own[name] = None
        if node.op_type == "Constant" and len(node.output) == 1:
            own[node.output[0]] = node
        elif node.op_type == "Identity" and len(node.output) == len(node.input) == 1:
            own[node.output[0]] = scope.get(node.input[0])
        _refuse(n_nodes > MOST_NODES)
    return n_nodes


def _known(scope: Mapping[str, Any], name: str) -> int | None:
    """The integer or boolean of a name; None if it is not known.

    Args:
        scope: By name, numbers, or initializers and `Constant` nodes that may hold one.
        name: The name.
    """
    found = scope.get(name)
    if found is None or isinstance(found, int):
        return found
    return _constant(found) if hasattr(found, "op_type") else number_in(found)


def _inside(node: Any, scope: Mapping[str, Any], turns: int) -> int:
    """A lower bound on the nodes that a node's inner graphs build."""
    graphs = {held.name: held.g for held in node.attribute if held.HasField("g")}
    if not graphs:
        return 0
    if node.op_type == "Loop" and "body" in graphs:
        turns *= _turns(node, graphs["body"], scope)
        if turns > MOST_STEPS:
            raise UnsupportedError(
                f"onnx.Model: expected {MOST_STEPS} steps at most, got {turns} of the loop {node.name!r}"
            )
        return n_built(graphs["body"], scope, turns) if turns else 0
    if node.op_type == "If":
        condition = _known(scope, node.input[0]) if node.input else None
        chosen = graphs.get("else_branch" if condition == 0 else "then_branch") if condition is not None else None
        branches = graphs.values() if chosen is None else [chosen]
        return min(n_built(branch, scope, turns) for branch in branches)
    return sum(n_built(graph, scope, turns) for graph in graphs.values())


def _turns(node: Any, body: Any, scope: Mapping[str, Any]) -> int:
    """The number of iterations that a loop certainly has; 1 if its body decides."""
    names = [*node.input, "", ""]
    goes_on = _known(scope, names[1]) if names[1] else 1
    if goes_on == 0:
        return 0
    if not goes_on or not stays_true(body, scope):
        return 1
    most = _known(scope, names[0]) if names[0] else MOST_STEPS + 1
    return 1 if most is None else max(most, 0)


def stays_true(body: Any, known: Mapping[str, Any]) -> bool:
    """True if a loop's body never ends it: the body passes the condition on, or sets it to true.

    Args:
        body: A `GraphProto`.
        known: Known integers and booleans of outer graphs by name, or initializers and nodes that may hold one.
    """
    if len(body.input) < 2 or not body.output:
        return False
    makers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    for _ in range(len(makers) + 1):
        maker = makers.get(name)
        if maker is None or maker.op_type != "Identity" or not maker.input:
            break
        name = maker.input[0]
    maker = makers.get(name)
    if maker is not None:
        return maker.op_type == "Constant" and _constant(maker) == 1
    if name == body.input[1].name:
        return True
    held = next((tensor for tensor in body.initializer if tensor.name == name), None)
    return (number_in(held) if held is not None else _known(known, name)) == 1


def _constant(node: Any) -> int | None:
    """The integer or boolean of a `Constant` node, or None for other constants."""
    for held in node.attribute:
        if held.name == "value_int":
            return int(held.i)
        if held.name == "value":
            return number_in(held.t)
    return None


def number_in(tensor: Any) -> int | None:
    """The integer or boolean in a tensor of one element, or None for other tensors.

    Args:
        tensor: A `TensorProto`.
    """
    if np.prod(tensor.dims, dtype=float) != 1 or not (tensor.HasField("raw_data") or tensor.ByteSize() < 1 << 10):
        return None
    try:
        found = onnx_package("onnx.load").numpy_helper.to_array(tensor)
    except Exception:  # malformed tensors raise an error when the model reads them
        return None
    return int(found.item()) if found.size == 1 and found.dtype.kind in "iub" else None


# --- Functions


def refuse_calls(model: Any) -> None:
    """Checks the functions of a model before they are inlined.

    Args:
        model: A `ModelProto`.

    Raises:
        OnnxError: If they expand to too many nodes or bytes, are nested too deeply, or are recursive.
    """
    functions = {_key(held, held.name): held for held in model.functions}
    known: dict[Any, tuple[int, int, int]] = {}
    under_way: set[Any] = set()

    def measured(nodes: Sequence[Any], level: int) -> tuple[int, int, int]:
        """Returns the number of nodes, their bytes and their depth after inlining, in a function at depth `level`."""
        n_nodes = n_bytes = levels = 0
        for node, depth in _nodes(nodes):
            key = _key(node, node.op_type)
            if key not in functions:
                inner = sum(held.g.ByteSize() for held in node.attribute if held.HasField("g"))
                own = (1, max(node.ByteSize() - inner, 0), depth)
            else:
                if key in under_way:
                    raise OnnxError(f"onnx.load: expected functions that do not call themselves, got {node.op_type!r}")
                if level + depth >= _LEVELS:
                    raise OnnxError(f"onnx.load: expected functions at most {_LEVELS} deep in each other, got more")
                if key not in known:
                    under_way.add(key)
                    known[key] = measured(functions[key].node, level + depth + 1)
                    under_way.discard(key)
                own = (known[key][0], known[key][1], known[key][2] + depth + 1)
            n_nodes, n_bytes, levels = n_nodes + own[0], n_bytes + own[1], max(levels, own[2])
        return n_nodes, n_bytes, levels

    n_nodes, n_bytes, levels = measured(model.graph.node, 0)
    refuse_many(n_nodes)
    if levels > _LEVELS:
        raise OnnxError(f"onnx.load: expected functions at most {_LEVELS} deep in each other, got {levels}")
    most = max(_LEAST_BYTES, 16 * model.ByteSize())
    if n_bytes > most:
        raise OnnxError(f"onnx.load: expected functions that come to {most} bytes at most, got {n_bytes}")


def _key(held: Any, name: str) -> tuple[str, str, str]:
    """The identity of a function: domain, name and overload."""
    return held.domain, name, getattr(held, "overload", "")


def _nodes(nodes: Sequence[Any], depth: int = 0) -> Iterator[tuple[Any, int]]:
    """Nodes and the nodes of their inner graphs, with their depth."""
    for node in nodes:
        yield node, depth
        for held in node.attribute:
            for graph in (*([held.g] if held.HasField("g") else []), *held.graphs):
                yield from _nodes(graph.node, depth + 1)
