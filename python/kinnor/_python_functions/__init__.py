"""Functions of `kinnor.functions`, and methods of core classes, that are written in Python.

Some add constant inputs and mark them, so that files of networks store their values.
"""

from __future__ import annotations

from typing import TypeVar

from .._core import NdArray, Variable

__all__ = ["CONSTANT_INPUT", "with_constant"]

T = TypeVar("T", Variable, NdArray)

CONSTANT_INPUT = "constant input"
"""Key of the tag with the index of the constant input."""


def with_constant(y: T, i: int) -> T:
    """Tags the function that computes `y`: its input `i` is a constant, unless another function computes it."""
    function = getattr(y, "parent", None)  # arrays, and results without a graph, have none
    if function is not None and function.inputs[i].parent is None:
        function.tags = {**function.tags, CONSTANT_INPUT: str(i)}
    return y
