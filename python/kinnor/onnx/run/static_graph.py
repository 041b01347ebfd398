"""A cached static graph of an ONNX model, which runs on arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import Function, NdArray, Variable, forward_all
from ...rewrite.patterns import above
from ..read.containers import Absent, Items, Maps, Words, leaves
from ..read.values import OnnxError, Value, cast, check_computed, check_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..read.following import Following
    from .repeated import RepeatedNode

__all__ = ["StaticGraph", "computed"]


_MOVES = frozenset(
    [
        *("BoolFill", "Broadcast", "Concatenate", "Gather", "GatherNd", "Identity", "Pad", "Reshape", "ScatterNd"),
        *("Slice", "Split", "Stack", "Tile", "Transpose"),
    ]
)
"""Functions that move elements of their inputs and change none."""

_BORROWED_FROM = 1 << 15
"""Inputs from this size in bytes are borrowed. Smaller ones are copied, which is faster."""


class StaticGraph:
    """A static graph with its inputs, which runs on arrays.

    Args:
        inputs: The inputs by name, in the order of `run`.
        outputs: The outputs by name; None for absent ones.
        watched: Integer variables that may become too large for float64, by their names in errors.

    Attributes:
        stop: Index of the node that ends the graph because it needs computed values. None if the graph is complete.
        repeated: That node with constant inputs; None before its second run.
        later: Graphs of the nodes after it, by the shapes of its outputs.
        following: Gives the graph inputs of other lengths. None if that is not possible.
    """

    __slots__ = (
        "_borrowed",
        "_titles",
        "following",
        "inputs",
        "later",
        "names",
        "outputs",
        "repeated",
        "roots",
        "stop",
        "watched",
    )

    def __init__(
        self,
        inputs: Sequence[tuple[str, Variable]],
        outputs: Sequence[tuple[str, Value | None]],
        watched: Mapping[str, Variable],
    ) -> None:
        self.names = [name for name, _ in inputs]
        self.inputs = [variable for _, variable in inputs]
        self.outputs = outputs
        self._borrowed: list[NdArray] = []
        self.stop: int | None = None
        self.repeated: RepeatedNode | None = None
        self.later: dict[Any, StaticGraph] = {}
        self.following: Following | None = None
        # Names of inputs and outputs in errors.
        self._titles = (
            [f"onnx.Model: input {name!r}" for name in self.names],
            [f"onnx.Model: output {name!r}" for name, _ in outputs],
        )
        ends = computed(outputs)
        self.roots = [variable for variable in ends if variable.parent is not None]
        above: set[Variable] = set()
        for root in self.roots if watched else ():
            root.visit(lambda f: above.update(f.outputs))
        above.difference_update(ends)  # `_result` checks these
        self.watched = {name: variable for name, variable in watched.items() if variable in above}
        for variable in self.watched.values():
            variable.persistent = True

    def run(self, arrays: Sequence[Any], are_whole: bool = False) -> Any:
        """Computes the outputs.

        Args:
            arrays: The inputs.
            are_whole: Whether integers among them were already checked to be exact in float64.

        Returns:
            The output, or a tuple of the outputs.

        Raises:
            OnnxError: If an integer is too large for float64.
        """
        try:
            self.compute(arrays, are_whole)
            found = [_result(value, title) for (_, value), title in zip(self.outputs, self._titles[1], strict=True)]
        finally:
            self.release()
        return found[0] if len(found) == 1 else tuple(found)

    def compute(self, arrays: Sequence[Any], are_whole: bool = False) -> None:
        """Computes the variables of the outputs. Large input arrays stay borrowed until `release` is called.

        Args:
            arrays: The inputs.
            are_whole: Whether integers among them were already checked to be exact in float64.

        Raises:
            OnnxError: If an integer is too large for float64.
        """
        for variable, array, title in zip(self.inputs, arrays, self._titles[0], strict=True):
            if not are_whole and array.dtype.kind != "f":
                self._check(variable, array, title)
            if array.nbytes < _BORROWED_FROM or array.dtype != np.float32 or array.shape != variable.shape:
                variable.d = array
            else:
                held = variable.data
                held._borrow(array, True)  # no function writes to an input
                self._borrowed.append(held)
        if self.roots:
            forward_all(self.roots, clear_buffer=True)
        for name, variable in self.watched.items():
            check_computed(variable.d, name)

    def _check(self, variable: Variable, array: Any, title: str) -> None:
        """Raises OnnxError if an input has integers that float64 rounds, unless functions only move them."""
        try:
            check_whole(array, title)
        except OnnxError:
            if self.stop is not None or not self._is_moved(variable):
                raise

    def _is_moved(self, variable: Variable) -> bool:
        """True if all functions that follow from an input only move elements."""
        readers: dict[Variable, list[Function]] = {}
        for f in above(self.roots):
            for x in f.inputs:
                readers.setdefault(x, []).append(f)
        path, found = [variable], set[Function]()
        while path:
            for f in readers.get(path.pop(), ()):
                if f in found:
                    continue
                if f.info.type_name not in _MOVES:
                    return False
                found.add(f)
                path += f.outputs
        return True

    def release(self) -> None:
        """Returns borrowed input arrays."""
        while self._borrowed:
            self._borrowed.pop().clear()


def computed(outputs: Sequence[tuple[str, Value | None]]) -> list[Variable]:
    """Returns the variables of the outputs that are no constants.

    Args:
        outputs: The outputs by name.
    """
    present = [held for _, held in outputs if held is not None]
    return [value.variable for held in present for value in leaves(held) if not value.known]


def _result(value: Value | None, name: str) -> Any:
    """An output as an array of its ONNX type in its own memory. A list for sequences, None if absent."""
    if isinstance(value, Items):
        return [_result(item, f"{name}[{i}]") for i, item in enumerate(value.items)]
    if value is None or isinstance(value, Absent):
        return None
    if isinstance(value, Words):
        return value.strings(_result(value.places, name))
    if isinstance(value, Maps):
        order = sorted(range(len(value.names)), key=lambda at: value.names[at])
        return [{value.names[at]: row[at] for at in order} for row in _result(value.scores, name).tolist()]
    if value.known:
        return np.array(value.array)
    variable = value.variable
    result = variable._handed_out()
    is_moved = result.dtype.kind in "iu"  # computed integers are real numbers
    if result.dtype != value.dtype:
        result = cast(result, value.dtype)
    if not is_moved:
        check_whole(result, name, is_computed=True)
    return result
