"""Changes that a session makes to a model before it is checked: lengths of open axes, and values of initializers.

Knows messages only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import ArgumentError
from .reading import graphs
from .tensors import dtype_of, onnx_package

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["fill_files", "fix_lengths", "replace_initializers", "with_arrays"]

_TENSOR = 4
"""The type of an attribute that is a tensor: a value of `AttributeProto.AttributeType`."""


def fix_lengths(model: Any, by_name: Mapping[str, int], by_denotation: Mapping[str, int]) -> None:
    """Gives open axes of inputs and outputs a length.

    Args:
        model: A `ModelProto`, which is changed.
        by_name: Lengths by the names of axes.
        by_denotation: Lengths by the meanings of axes.
    """
    for held in [*model.graph.input, *model.graph.output]:
        for axis in held.type.tensor_type.shape.dim if held.type.HasField("tensor_type") else ():
            if axis.denotation in by_denotation and not axis.HasField("dim_value"):
                axis.dim_value = by_denotation[axis.denotation]
            elif axis.dim_param in by_name:
                axis.dim_value = by_name[axis.dim_param]


def replace_initializers(model: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Gives initializers other values.

    Args:
        model: A `ModelProto`, which is changed.
        arrays: The values by name. Names that the model lacks are ignored.

    Raises:
        ArgumentError: If a value has another element type or shape than the initializer.
    """
    onnx = onnx_package("onnx.InferenceSession")
    for tensor in model.graph.initializer:
        if tensor.name not in arrays:
            continue
        array = np.ascontiguousarray(arrays[tensor.name])
        wanted, shape = dtype_of(tensor.data_type), tuple(tensor.dims)
        if array.dtype != wanted or array.shape != shape:
            raise ArgumentError(
                f"InferenceSession: initializer {tensor.name!r}: expected {wanted} of shape {shape}, got "
                f"{array.dtype} of shape {array.shape}"
            )
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def fill_files(model: Any, files: Mapping[str, bytes]) -> None:
    """Reads tensors from files that are in memory.

    Args:
        model: A `ModelProto`, which is changed.
        files: The bytes of the files by the names that the model has for them.

    Raises:
        ArgumentError: If a file is too short.
    """
    onnx = onnx_package("onnx.InferenceSession")
    for graph in graphs(model.graph):
        held = [attribute.t for node in graph.node for attribute in node.attribute if attribute.type == _TENSOR]
        for tensor in [*graph.initializer, *held]:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            content = files.get(entries.get("location", ""))
            if content is None or tensor.data_location != onnx.TensorProto.EXTERNAL:
                continue
            size = math.prod(tensor.dims) * dtype_of(tensor.data_type).itemsize
            start, size = int(entries.get("offset") or 0), int(entries.get("length") or size)
            if start < 0 or start + size > len(content):
                raise ArgumentError(
                    f"InferenceSession: tensor {tensor.name!r}: expected {size} bytes in {entries['location']!r} from "
                    f"{start} on, got a file of {len(content)}"
                )
            tensor.raw_data = content[start : start + size]
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def with_arrays(model: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Adds initializers.

    Args:
        model: A `ModelProto`, which is changed.
        arrays: Their values by name.

    Returns:
        The model.
    """
    onnx = onnx_package("onnx.InferenceSession")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model
