"""A graph of an ONNX model that is kept and run on arrays.

Knows values; knows no files and no operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import Variable, forward_all
from .containers import Absent, Items, leaves
from .values import Value, check_computed, check_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["StaticGraph", "cast"]


class StaticGraph:
    """A static graph with its inputs, which is run on arrays.

    Args:
        inputs: The inputs, in the order of `run`.
        outputs: The outputs.
        names: What errors call the inputs and the outputs.
        watched: Whole numbers that may outgrow float32, by what errors call them.

    Attributes:
        read: The outputs by name, of a graph whose outputs the next stage of a model reads.
    """

    __slots__ = ("inputs", "names", "outputs", "read", "roots", "watched")

    def __init__(
        self,
        inputs: list[Variable],
        outputs: list[Value],
        names: tuple[list[str], list[str]],
        watched: Mapping[str, Variable],
    ) -> None:
        self.inputs, self.outputs, self.names = inputs, outputs, names
        computed = [value.variable for held in outputs for value in leaves(held) if value.array is None]
        self.roots = [variable for variable in computed if variable.parent is not None]
        above: set[Variable] = set()
        for root in self.roots if watched else ():
            root.visit(lambda f: above.update(f.outputs))
        above.difference_update(computed)  # which `_result` looks at
        self.watched = {name: variable for name, variable in watched.items() if variable in above}
        for variable in self.watched.values():
            variable.persistent = True
        self.read: list[tuple[str, Value | None]] = []

    def run(self, arrays: Sequence[Any]) -> Any:
        """Compute the outputs.

        Args:
            arrays: The inputs.

        Returns:
            The output, or a tuple of the outputs.

        Raises:
            OnnxError: If there are whole numbers that float32 rounds.
        """
        self.compute(arrays)
        found = [_result(value, name) for value, name in zip(self.outputs, self.names[1], strict=True)]
        return found[0] if len(found) == 1 else tuple(found)

    def compute(self, arrays: Sequence[Any]) -> None:
        """Compute the variables of the outputs.

        Args:
            arrays: The inputs.

        Raises:
            OnnxError: If there are whole numbers that float32 rounds.
        """
        for variable, array, name in zip(self.inputs, arrays, self.names[0], strict=True):
            check_whole(array, name)
            variable.d = array
        if self.roots:
            forward_all(self.roots, clear_buffer=True)
        for name, variable in self.watched.items():
            check_computed(variable.d, name)


def cast(array: Any, dtype: np.dtype[Any]) -> Any:
    """A copy in another type.

    Args:
        array: The array.
        dtype: The type.
    """
    if array.dtype.kind == "f" and dtype.kind in "iu" and dtype.itemsize < 8:
        return array.astype(np.int64).astype(dtype)
    return array.astype(dtype)


def _result(value: Value, name: str) -> Any:
    """An output as the file says it, in memory of its own."""
    if isinstance(value, Items):
        return [_result(item, f"{name}[{i}]") for i, item in enumerate(value.items)]
    if isinstance(value, Absent):
        return None
    if value.known:
        return np.array(value.array)
    result = cast(value.variable.d, value.dtype)
    check_whole(result, name, is_computed=True)
    return result
