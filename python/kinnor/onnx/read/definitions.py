"""Definitions of ONNX operators that are functions of other operators, from the package `onnx`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...files.packages import needed
from .containers import Items
from .values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["definition", "is_defined"]


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
