"""8-bit levels in a graph: their variables, and the numbers that they represent.

Signed levels are stored as unsigned ones, shifted by 128, because kernels exist for unsigned levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import functions as F
from ..._core import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["Levels", "Scale", "Target", "constant"]

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
