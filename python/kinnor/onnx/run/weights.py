"""The arrays of an ONNX model: its parameters and constants, which are freed while no graph reads them."""

from __future__ import annotations

import math
import os
import sys
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from ..._core import Variable, clear_memory_cache
from ...files.progress import each
from ..read import reading
from ..read.building import constant
from ..read.message import TensorFile
from ..read.shared import HeldValue
from ..read.trained import Uses, constant_nodes
from ..read.values import OnnxError, Value

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from ..read.tensors import Folder


__all__ = ["Originals", "Weights"]


class Originals:
    """Positions of parameters' values in a model's file. The file stays open, so it may be renamed or deleted.

    Args:
        path: The file. Without it no parameter is ever freed. The same holds on systems other than POSIX, where an open
            file cannot be deleted.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._places: dict[Variable, tuple[int, int, np.dtype[Any]]] = {}
        self._freed: dict[Variable, None] = {}
        self._sums: dict[Variable, int] = {}
        self._file: int | None = None
        if path is not None and os.name == "posix":
            self._file = os.open(path, os.O_RDONLY)
            self._state = self._now()
            weakref.finalize(self, os.close, self._file)

    def _now(self) -> tuple[int, int]:
        """Size and time of the last change of the file, to detect writes."""
        found = os.fstat(self._file)  # type: ignore[arg-type]
        return found.st_size, found.st_mtime_ns

    def add(self, parameter: Variable, place: tuple[int, int], dtype: np.dtype[Any]) -> None:
        """Registers the position of a parameter's values.

        Args:
            parameter: The parameter.
            place: Start and end of its bytes in the file.
            dtype: Their element type in the file.
        """
        if self._file is not None:
            self._places[parameter] = (*place, dtype)

    def release(self, taken: Container[Variable]) -> None:
        """Frees the values of all registered parameters but the ones in use.

        Args:
            taken: Parameters in use.
        """
        if self._places and self._now() != self._state:
            return  # the file has changed and could not restore them
        new = [x for x in self._places if x not in taken and x not in self._freed]
        for x in new:
            self._sums[x] = _checksum(x.d)
            x.data.clear()
            self._freed[x] = None
        if new:
            clear_memory_cache()  # cached buffers of these sizes would rarely be reused

    def restore(self, wanted: Iterable[Variable] | None = None) -> None:
        """Reloads the values of freed parameters.

        Args:
            wanted: Only freed parameters among these variables are reloaded. By default all freed parameters are.

        Raises:
            OnnxError: If the file was written in the meantime.
        """
        for x in list(self._freed) if wanted is None else wanted:
            if x in self._freed:
                self._load(x)
                del self._freed[x]

    def _load(self, x: Variable) -> None:
        """Reloads the values of a parameter."""
        start, end, dtype = self._places[x]
        content = os.pread(self._file, end - start, start)  # type: ignore[arg-type]
        if len(content) == end - start and self._now() == self._state:
            values = np.frombuffer(content, dtype.newbyteorder("<")).reshape(x.shape).astype(np.float32, copy=False)
            if _checksum(values) == self._sums[x]:
                x.d = values
                return
        raise OnnxError(
            "onnx.Model: expected the file of its parameters as it was when it was loaded, got one that was written "
            "since then"
        )


def _checksum(values: NDArray[Any]) -> int:
    """A checksum that detects changed values. File times do not suffice, as copying programs preserve them."""
    return crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


_HELD: dict[int, np.dtype[Any]] = {1: np.dtype(np.float32), 2: np.dtype(np.uint8), 3: np.dtype(np.int8)}
"""Element types of tensors in the file that variables hold as they are."""


def _space_of(tensor: Any, place: tuple[int, int] | None) -> Variable | None:
    """A variable for a tensor that was left in the file as a variable holds it, else None."""
    dtype = _HELD.get(tensor.data_type)
    if place is None or dtype is None or sys.byteorder != "little":
        return None
    shape = tuple(tensor.dims)
    if min(shape, default=0) <= 0 or dtype.itemsize * math.prod(shape) != place[1] - place[0]:
        return None
    variable = Variable(shape)
    variable.data.cast(dtype)
    return variable


_FROZEN = {"BatchNormalization": (3, 4)}
"""Inputs that are running statistics and are not trained."""


class Weights:
    """The initializers of a model, and the weights in its `Constant` nodes.

    Args:
        proto: The `ModelProto`, checked.
        every: Its graph and all inner graphs.
        folder: The folder with external tensor files.
        tensors: The file in which large tensors were left.

    Attributes:
        constants: All values by name.
        parameters: The parameters among them, by name.
        statistics: The names of running statistics, which are not trained.
        moved: The arrays that were moved out of `Constant` nodes, by name.
    """

    def __init__(self, proto: Any, every: Iterable[Any], folder: Folder | None, tensors: TensorFile | None) -> None:
        graph = proto.graph
        self.constants: dict[str, Value] = {}
        self.parameters: OrderedDict[str, Variable] = OrderedDict()
        self.statistics = {
            node.input[i] for node in graph.node for i in _FROZEN.get(node.op_type, ()) if i < len(node.input)
        }
        uses = Uses(every)
        tensors = tensors or TensorFile()
        with tensors.opened() as content:
            self._originals = Originals(tensors.path if any(map(tensors.place, graph.initializer)) else None)
            for tensor in each(graph.initializer, "read ONNX"):
                name, place = tensor.name, tensors.place(tensor)
                variable = _space_of(tensor, place)
                if variable is None:
                    array = reading.array_of(tensor, folder, content(tensor))
                else:  # without a copy
                    content(tensor, array := variable.d)
                if uses.is_parameter(name, array):
                    parameter = self._add(name, array, name not in self.statistics, variable)
                    if place is not None:
                        self._originals.add(parameter, place, array.dtype)
                elif variable is not None and array.dtype.kind != "f":
                    self.constants[name] = HeldValue(Value(variable, array.dtype))
                else:
                    self.constants[name] = constant(array if variable is None else array.copy())
        self.moved = constant_nodes(graph, uses, folder)
        for name, array in self.moved.items():
            self._add(name, array, True)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to copy or pickle. A copy has all parameters in memory."""
        self.restore()
        return {**self.__dict__, "_originals": Originals()}

    def _add(self, name: str, array: NDArray[Any], is_trained: bool, parameter: Variable | None = None) -> Variable:
        """Registers an array as a parameter, or the variable that holds it."""
        if parameter is None:
            parameter = Variable.from_numpy_array(array.astype(np.float32, copy=False))
        parameter.need_grad = is_trained
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
