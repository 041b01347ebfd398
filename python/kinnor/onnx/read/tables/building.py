"""Makers of table rows for functions of one, two or more inputs, and shared shape operations."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ...._core import functions as core
from ..values import Node, Row, note_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["binary", "constant", "expand", "folded", "many", "per_channel", "reshape", "unary"]


def reshape(x: Variable, shape: Sequence[int]) -> Variable:
    """A variable in another shape; the variable itself if it has that shape.

    Args:
        x: The variable.
        shape: The shape.
    """
    return x if tuple(x.shape) == tuple(shape) else F.reshape(x, tuple(shape), inplace=False)


def sliced(
    x: Variable, start: Sequence[int | None], stop: Sequence[int | None], step: Sequence[int | None] | None = None
) -> Variable:
    """A slice of a variable, by `F.slice` without its look at other kinds of arguments.

    Args:
        x: The variable.
        start: The first position along each axis; None is the start.
        stop: The position along each axis to stop before; None is the end.
        step: The step along each axis; by default 1.
    """
    y: Variable = core.slice(x, start, stop, step)
    return y


def constant(number: float, dtype: Any = np.float32) -> Variable:
    """A variable with one number, of shape ().

    Args:
        number: The number.
        dtype: Its type.
    """
    return Variable.from_numpy_array(np.asarray(number, dtype))


def expand(x: Variable, shape: Sequence[int]) -> Variable:
    """A variable, repeated to a shape that it broadcasts to.

    Args:
        x: The variable.
        shape: The shape.
    """
    if tuple(x.shape) == tuple(shape):
        return x
    x = reshape(x, (1,) * (len(shape) - x.ndim) + tuple(x.shape))
    return F.broadcast(x, tuple(shape)) if shape else x


def per_channel(x: Variable, axis: int, ndim: int) -> Variable:
    """A vector reshaped to broadcast along one axis. A single number gets the shape (1, ..., 1).

    Args:
        x: The vector, or one number.
        axis: The axis.
        ndim: The number of axes.
    """
    shape = [1] * ndim
    if x.size > 1:
        shape[axis] = x.size
    return reshape(x, shape)


def unary(function: Callable[..., Variable], dtype: Any = None, **attributes: Any) -> Row:
    """A row for a function of one input.

    Args:
        function: The function.
        dtype: The element type of its output.
        attributes: Arguments read from attributes of the same name, with their defaults.
    """
    return Row(
        lambda node: function(node.x(), **{k: node.get(k, v) for k, v in attributes.items()}), dtype=dtype, is_free=True
    )


def binary(function: Callable[..., Variable], fold: Callable[..., Any] | None = None, dtype: Any = None) -> Row:
    """A row for a function of two broadcast inputs.

    Args:
        function: The function.
        fold: The same function in NumPy.
        dtype: The element type of its output.
    """

    def build(node: Node) -> Any:
        """Applies the function. Old versions align the second input at `axis`."""
        a, b = node.x(0), node.x(1)
        if node.version < 7 and "axis" in node.attributes:
            note_lengths()
            b = reshape(b, (*b.shape, *[1] * (a.ndim - node.get("axis") % a.ndim - b.ndim)))
        return function(a, b)

    return Row(build, folded(fold), dtype, is_free=True)


def many(function: Callable[..., Variable], fold: Callable[..., Any]) -> Row:
    """A row for a function of two inputs, applied to any number of inputs from left to right.

    Args:
        function: The function.
        fold: The same function in NumPy.
    """

    def build(node: Node) -> Variable:
        """Applies the function from left to right."""
        y = node.x(0)
        for i in range(1, len(node.inputs)):
            y = function(y, node.x(i))
        return F.identity(y) if len(node.inputs) == 1 else y

    return Row(build, folded(lambda *arrays: reduce(fold, arrays)), is_free=True)


def folded(fold: Callable[..., Any] | None) -> Callable[[Node], Any] | None:
    """The fold of a row: applies a NumPy function to a node's inputs. Results other than bool keep the input's type.

    Args:
        fold: The NumPy function, or None.
    """
    if fold is None:
        return None

    def of(node: Node) -> Any:
        """Computes the output in NumPy."""
        made = np.asarray(fold(*(node.static(i) for i in range(len(node.inputs)))))
        return made if made.dtype.kind == "b" else made.astype(node.value(0).dtype)

    return of
