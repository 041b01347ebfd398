"""The arrays of an ONNX model: its parameters and constants, which are freed while no graph reads them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import Variable
from ...files.progress import each
from ..read import reading
from ..read.building import constant
from ..read.message import TensorFile
from ..read.originals import Originals
from ..read.trained import Uses, constant_nodes
from ..read.values import Value

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Weights"]

_FROZEN = {"BatchNormalization": (3, 4)}
"""Inputs that are running statistics and are not trained."""


class Weights:
    """The initializers of a model, and the weights in its `Constant` nodes.

    Args:
        proto: The `ModelProto`, checked.
        folder: The folder with external tensor files.
        tensors: The file in which large tensors were left.

    Attributes:
        constants: All values by name.
        parameters: The parameters among them, by name.
        statistics: The names of running statistics, which are not trained.
        moved: The arrays that were moved out of `Constant` nodes, by name.
    """

    def __init__(self, proto: Any, folder: Path | None, tensors: TensorFile | None) -> None:
        graph = proto.graph
        self.constants: dict[str, Value] = {}
        self.parameters: OrderedDict[str, Variable] = OrderedDict()
        self.statistics = {
            node.input[i] for node in graph.node for i in _FROZEN.get(node.op_type, ()) if i < len(node.input)
        }
        uses = Uses(graph)
        tensors = tensors or TensorFile()
        with tensors.opened() as content:
            self._originals = Originals(tensors.path if any(map(tensors.place, graph.initializer)) else None)
            for tensor in each(graph.initializer, "read ONNX"):
                name, place = tensor.name, tensors.place(tensor)
                array = reading.array_of(tensor, folder, content(tensor))
                if uses.is_parameter(name, array):
                    parameter = self._add(name, array, name not in self.statistics)
                    if place is not None:
                        self._originals.add(parameter, place, array)
                else:
                    self.constants[name] = constant(array)
        self.moved = constant_nodes(graph, uses, folder)
        for name, array in self.moved.items():
            self._add(name, array, True)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to copy or pickle. A copy has all parameters in memory."""
        self.restore()
        return {**self.__dict__, "_originals": Originals()}

    def _add(self, name: str, array: NDArray[Any], is_trained: bool) -> Variable:
        """Registers an array as a parameter."""
        parameter = Variable.from_numpy_array(array.astype(np.float32, copy=False), need_grad=is_trained)
        self.parameters[name] = parameter
        self.constants[name] = Value(parameter, array.dtype, is_parameter=True, restore=self.restore)
        return parameter

    def restore(self, wanted: Iterable[Variable] | None = None) -> None:
        """Reloads the values of freed parameters.

        Args:
            wanted: Only freed parameters among these variables are reloaded. By default all freed parameters are.

        Raises:
            OnnxError: If the file was written in the meantime.
        """
        self._originals.restore(wanted)

    def release(self, taken: Container[Variable]) -> None:
        """Frees the values of the parameters that the file holds, unless they are in use.

        Args:
            taken: Parameters in use.
        """
        self._originals.release(taken)

    def keep(self) -> None:
        """Reloads all parameters, and frees none from now on.

        Raises:
            OnnxError: If the file was written in the meantime.
        """
        self._originals.restore()
        self._originals = Originals()
