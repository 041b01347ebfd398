"""8-bit levels in a graph: their variables, and the numbers that they represent.

Signed levels are stored as unsigned ones, shifted by 128, because kernels exist for unsigned levels.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import functions as F
from ..._core import Variable
from ..patterns import is_a

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from numpy.typing import NDArray


__all__ = [
    "Levels",
    "Scale",
    "Target",
    "Weights",
    "constant",
    "dynamic_parameters",
    "is_dynamic",
    "rounded",
    "value_of",
    "weights_of",
]

SIGNED = 128
"""Difference between stored unsigned levels and signed ones."""


def constant(value: Any, dtype: Any) -> Variable:
    """A constant variable.

    Args:
        value: The values.
        dtype: Their type.
    """
    return Variable.from_numpy_array(np.ascontiguousarray(value, dtype))


class Scale(NamedTuple):
    """Scale of levels: a level represents the number `(level - zero) * step`."""

    step: float
    """The distance of neighbouring numbers."""
    zero: int
    """The level of the number zero."""

    def numbers(self, levels: NDArray[Any]) -> NDArray[Any]:
        """The numbers that levels represent.

        Args:
            levels: The levels.
        """
        found: NDArray[Any] = (levels.astype(np.float32) - np.float32(self.zero)) * np.float32(self.step)
        return found


class Target(NamedTuple):
    """A quantization: the scale, and the range to which levels are clipped."""

    scale: Scale
    """The scale of the levels."""
    least: int = 0
    """The lowest level."""
    most: int = 255
    """The highest level."""

    @property
    def arguments(self) -> dict[str, Any]:
        """The quantization as arguments of integer functions."""
        return {"y_zero": self.scale.zero, "least": self.least, "most": self.most}

    def levels(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Quantizes numbers.

        Args:
            numbers: The numbers.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            levels = np.round(np.nan_to_num(numbers / np.float32(self.scale.step))) + self.scale.zero
        found: NDArray[Any] = np.clip(levels, self.least, self.most)
        return found

    def within(self, least: float, most: float) -> Target:
        """The quantization of numbers that are first clipped to two bounds.

        Args:
            least: The lower bound.
            most: The upper bound.
        """
        low, high = self.levels(np.array([least, most], np.float32)).tolist()
        return Target(self.scale, int(low), int(high))

    def table(self, numbers: NDArray[Any]) -> Variable:
        """A lookup table of quantized numbers.

        Args:
            numbers: The number for each of 256 input levels.
        """
        return constant(self.levels(numbers), np.uint8)


class Levels:
    """An array of 8-bit levels with its scale, in the axis order of the numbers or with channels last.

    The other order is computed on demand.

    Args:
        scale: The scale, unless the graph computes it.
        plain: The levels in the axis order of the numbers.
        last: The levels of images with channels last.
        given: Step and zero point, if the graph computes them.
    """

    def __init__(
        self,
        scale: Scale | None = None,
        plain: Variable | None = None,
        last: Variable | None = None,
        given: tuple[Variable, Variable] | None = None,
    ) -> None:
        self.scale, self.given = scale or Scale(0.0, 0), given
        self._plain, self._last = plain, last

    @property
    def parameters(self) -> tuple[Variable, Variable]:
        """Step and zero point as variables."""
        return self.given or (constant([self.scale.step], np.float32), constant([self.scale.zero], np.int64))

    @property
    def is_last(self) -> bool:
        """True if the channels-last order exists already."""
        return self._last is not None

    @property
    def plain(self) -> Variable:
        """The levels in the axis order of the numbers."""
        if self._plain is None:
            self._plain = _moved(self._last, (0, 3, 1, 2))
        return self._plain

    @property
    def last(self) -> Variable:
        """The levels of images with channels last."""
        if self._last is None:
            self._last = _moved(self._plain, (0, 2, 3, 1))
        return self._last

    def standing_for(self, scale: Scale | None = None, given: tuple[Variable, Variable] | None = None) -> Levels:
        """The same levels with another scale.

        Args:
            scale: The scale; by default the current one.
            given: Step and zero point, if the graph computes them.
        """
        if scale == self.scale and given is None and self.given is None:
            return self
        return Levels(scale or self.scale, self._plain, self._last, given)

    def like(self, plain: Variable | None = None, last: Variable | None = None) -> Levels:
        """Other levels with the same scale.

        Args:
            plain: The levels in the axis order of the numbers.
            last: The levels of images with channels last.
        """
        return Levels(self.scale, plain, last, self.given)

    def each(self, function: Callable[[Variable], Variable], scale: Scale) -> Levels:
        """Applies an elementwise function of levels, in the axis order that exists.

        Args:
            function: The function.
            scale: The scale of its results.
        """
        if self._last is not None:
            return Levels(scale, last=function(self._last))
        return Levels(scale, plain=function(self.plain))

    def mapped(self, target: Target, numbers: NDArray[Any] | None = None) -> Levels:
        """Requantizes levels by a lookup table.

        Args:
            target: The new quantization.
            numbers: The new number for each of the 256 levels; by default the number that the level represents.
        """
        if numbers is None:
            if target == Target(self.scale):
                return self
            numbers = self.scale.numbers(np.arange(256))
        table = target.table(numbers)
        return self.each(lambda x: F.lookup_uint8(x, table), target.scale)

    def dequantized(self) -> Variable:
        """The numbers as a float variable."""
        return F.dequantize_uint8(self.plain, *self.parameters)


def _moved(x: Variable | None, axes: tuple[int, int, int, int]) -> Variable:
    """Images with permuted axes. A reshape suffices for one pixel or one channel."""
    assert x is not None  # one of the two orders always exists
    n = x.shape
    shape = tuple(n[axis] for axis in axes)
    if (n[1] == 1 and n[2] == 1 and axes[1] == 3) or (n[2] == 1 and n[3] == 1 and axes[1] == 2):
        return F.reshape(x, shape)
    return F.transpose_uint8(x, axes)


class Weights(NamedTuple):
    """Quantized weights `(levels - zero) * step`. Step and zero are scalars or vary along one axis."""

    levels: NDArray[np.int8]
    step: NDArray[np.float32]
    zero: NDArray[np.int64]
    key: Any
    """Identifies the levels in this axis order, for sharing between graphs."""
    held: Variable | None = None
    """A constant variable with these levels, or None."""

    def transposed(self, axes: list[int]) -> Weights:
        """The weights with permuted axes.

        Args:
            axes: The permutation.
        """
        step = self.step.transpose(axes) if self.step.ndim == len(axes) else self.step
        zero = self.zero.transpose(axes) if self.zero.ndim == len(axes) else self.zero
        return Weights(self.levels.transpose(axes), step, zero, (self.key, *axes))

    def along(self, axis: int) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Step and zero point as vectors along an axis, or of length 1. None if they vary along another axis.

        Args:
            axis: The axis.
        """
        for x in (self.step, self.zero):
            if x.size != 1 and x.size != x.shape[axis]:
                return None
        return self.step.ravel(), self.zero.ravel()


_COMPUTED = frozenset(
    ["Add2", "DequantizeLinear", "Identity", "Mul2", "MulScalar", "QuantizeLinear", "Reshape", "Sub2", "Transpose"]
)
"""Types of functions that may compute quantization parameters from constants."""


def is_constant(x: Variable, given: Container[Variable]) -> bool:
    """True if a variable is a constant, or cheap functions compute it from constants.

    Args:
        x: The variable.
        given: The inputs of the graph.
    """
    f = x.parent
    if f is None:
        return x not in given
    return f.name in _COMPUTED and all(is_constant(v, given) for v in f.inputs)


def value_of(x: Variable, given: Container[Variable]) -> NDArray[Any] | None:
    """The values of a constant variable, else None.

    Args:
        x: The variable.
        given: The inputs of the graph.
    """
    if not is_constant(x, given):
        return None
    if x.parent is not None:
        x.forward()
    return np.array(x.d)


def weights_of(x: Variable, given: Container[Variable]) -> Weights | None:
    """The quantized weights that a variable dequantizes. None unless they are constant 8-bit levels.

    Args:
        x: The variable.
        given: The inputs of the graph.
    """
    f = x.parent
    if f is not None and f.name == "Transpose":
        found = weights_of(f.inputs[0], given)
        return None if found is None else found.transposed(list(f.args["axes"]))
    if f is None or f.name != "DequantizeLinear":
        return None
    held = f.inputs[0]
    is_held = held.parent is None and held not in given
    levels = held.d if is_held else value_of(held, given)  # without a copy, as nothing changes it
    step, zero = (value_of(v, given) for v in f.inputs[1:])
    if levels is None or step is None or zero is None:
        return None
    if is_a(held.parent, "QuantizeLinear"):
        levels = levels.astype(np.int8 if held.parent.args["dtype"] == 1 else np.uint8)
    if levels.dtype not in (np.int8, np.uint8):
        return None
    zero = zero.astype(np.int64)
    is_signed = levels.dtype == np.int8
    if is_held and is_signed:
        return Weights(levels, step.astype(np.float32), zero, held, held)
    if not is_signed:
        levels, zero = (levels ^ np.uint8(SIGNED)).view(np.int8), zero - SIGNED
    # Graphs for other shapes may have the same constants as other variables, so the key is the content.
    content = np.ascontiguousarray(levels).data
    key = held if is_held else (hashlib.sha1(content, usedforsecurity=False).digest(), levels.shape)
    return Weights(levels, step.astype(np.float32), zero, key)


def rounded(x: Variable) -> Variable:
    """Elements rounded to the nearest integer, half to even.

    Args:
        x: Input of any shape.
    """
    whole = F.floor(x)
    rest = x - whole
    odd = whole - F.floor(whole * 0.5) * 2.0
    up = F.logical_or(F.greater_scalar(rest, 0.5), F.logical_and(F.equal_scalar(rest, 0.5), odd))
    return whole + up


def dynamic_parameters(x: Variable) -> tuple[Variable, Variable]:
    """Scale and zero point of 8-bit levels whose range covers all elements and zero.

    Args:
        x: The array.
    """
    axes = list(range(x.ndim))
    most = F.maximum_scalar(F.max(x, axis=axes), 0.0)
    least = F.minimum_scalar(F.min(x, axis=axes), 0.0)
    scale = (most - least) / 255.0
    scale = scale + F.equal_scalar(scale, 0.0)
    return scale, rounded(F.minimum_scalar(F.maximum_scalar(-least / scale, 0.0), 255.0))


@cache
def _dynamic(n_axes: int) -> tuple[Variable, tuple[Variable, Variable]]:
    """An array with this number of axes, and its `dynamic_parameters`."""
    like = Variable((1,) * n_axes)
    return like, dynamic_parameters(like)


def is_dynamic(x: Variable, scale: Variable, zero: Variable) -> bool:
    """True if the graph computes scale and zero point by `dynamic_parameters` of `x`.

    Args:
        x: The array.
        scale: The scale.
        zero: The zero point.
    """
    if not is_a(scale.parent, "Add2") or zero.parent is None:
        return False
    like, parameters = _dynamic(x.ndim)
    same = {x: like}
    return all(_is_same(a, b, same) for a, b in zip((scale, zero), parameters, strict=True))


def _is_same(a: Variable, b: Variable, same: dict[Variable, Variable]) -> bool:
    """True if two variables are the same function of variables that are the same.

    Args:
        a: The first variable.
        b: The second variable.
        same: Pairs of variables that are the same, to which this pair is added.
    """
    if a in same or a == b:
        return same.get(a, a) == b
    f, g = a.parent, b.parent
    if f is None or g is None or f.name != g.name or f.args != g.args:
        return False
    if len(f.inputs) != len(g.inputs):
        return False
    if not all(_is_same(*pair, same) for pair in zip(f.inputs, g.inputs, strict=True)):
        return False
    same[a] = b
    return True
