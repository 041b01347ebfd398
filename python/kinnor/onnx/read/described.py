"""Descriptions of a model and of its inputs and outputs, as the file has them.

Knows messages; knows no operators and no graphs.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ModelMetadata", "NodeArg", "described", "metadata_of"]


class NodeArg(NamedTuple):
    """An input or output of a model, as the file describes it.

    Attributes:
        name: Its name.
        type: Its type as ONNX writes it, such as `tensor(float)` or `seq(tensor(int64))`; empty if the file has none.
        shape: Its lengths: the name of an open axis, or None if that has no name. Empty if the file says nothing.
    """

    name: str
    type: str
    shape: list[int | str | None]


class ModelMetadata(NamedTuple):
    """The description of a model in its file.

    Attributes:
        producer_name: The program that wrote it.
        graph_name: The name of its graph.
        domain: The domain of its name.
        description: A text about the model.
        graph_description: A text about its graph.
        version: Its version.
        custom_metadata_map: The entries of `metadata_props`.
    """

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = MappingProxyType({})


def metadata_of(proto: Any) -> ModelMetadata:
    """Returns what a model says of itself.

    Args:
        proto: A `ModelProto`.
    """
    return ModelMetadata(
        proto.producer_name,
        proto.graph.name,
        proto.domain,
        proto.doc_string,
        proto.graph.doc_string,
        proto.model_version,
        {held.key: held.value for held in proto.metadata_props},
    )


def described(held: Any) -> NodeArg:
    """Returns what a model says of an input or output.

    Args:
        held: A `ValueInfoProto`.
    """
    kind = held.type
    while kind.WhichOneof("value") in ("optional_type", "sequence_type"):
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    shape = kind.tensor_type.shape.dim if kind.WhichOneof("value") == "tensor_type" else []
    return NodeArg(held.name, _type_name(held.type), [_length(axis) for axis in shape])


def _length(axis: Any) -> int | str | None:
    """Returns the length of an axis, or its name. Older exporters write -1 for an open length."""
    if axis.HasField("dim_value"):
        return int(axis.dim_value) if axis.dim_value >= 0 else None
    return axis.dim_param or None


def _type_name(kind: Any) -> str:
    """Returns ONNX's name of a type."""
    which = kind.WhichOneof("value")
    if which == "optional_type":
        return f"optional({_type_name(kind.optional_type.elem_type)})"
    if which == "sequence_type":
        return f"seq({_type_name(kind.sequence_type.elem_type)})"
    if which == "map_type":
        return f"map({_element_name(kind.map_type.key_type)},{_type_name(kind.map_type.value_type)})"
    if which in ("tensor_type", "sparse_tensor_type"):
        name = _element_name(getattr(kind, which).elem_type)
        return f"{which.removesuffix('_type')}({name})" if name else ""
    return ""


def _element_name(element_type: int) -> str:
    """Returns ONNX's name of an element type."""
    from .tensors import onnx_package

    onnx = onnx_package("onnx.load")
    if not element_type or element_type not in onnx.TensorProto.DataType.values():
        return ""
    return str(onnx.TensorProto.DataType.Name(element_type)).lower()
