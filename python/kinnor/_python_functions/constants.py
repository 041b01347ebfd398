"""Inputs of functions that the caller did not give: files of networks hold their values."""

from __future__ import annotations

from typing import TypeVar

from .._core import NdArray, Variable

__all__ = ["CONSTANT_INPUT", "with_constant"]

T = TypeVar("T", Variable, NdArray)

CONSTANT_INPUT = "constant input"
"""Tag of a function with the number of such an input."""


def with_constant(y: T, i: int) -> T:
    """An output of a function whose input `i` is a constant, unless something computes it."""
    function = getattr(y, "parent", None)  # arrays, and results without a graph, have none
    if function is not None and function.inputs[i].parent is None:
        function.tags = {**function.tags, CONSTANT_INPUT: str(i)}
    return y
