"""Levels of 8 bits in a graph: which numbers they stand for, and where they are.

Knows variables; knows no layers. Signed levels are kept as unsigned ones, 128 higher: there are kernels for these.
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
"""How much higher unsigned levels are than the signed ones that they stand for."""


def constant(value: Any, dtype: Any) -> Variable:
    """A variable with these values, which nothing changes.

    Args:
        value: The values.
        dtype: Their type.
    """
    return Variable.from_numpy_array(np.ascontiguousarray(value, dtype))


class Scale(NamedTuple):
    """What levels stand for: `(level - zero) * step`."""

    step: float
    zero: int

    def numbers(self, levels: NDArray[Any]) -> NDArray[Any]:
        """The numbers that levels stand for.

        Args:
            levels: The levels.
        """
        found: NDArray[Any] = (levels.astype(np.float32) - np.float32(self.zero)) * np.float32(self.step)
        return found


class Target(NamedTuple):
    """How numbers become levels: with which scale, and between which levels."""

    scale: Scale
    least: int = 0
    most: int = 255

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of functions that round to levels."""
        return {"y_zero": self.scale.zero, "least": self.least, "most": self.most}

    def levels(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The levels of numbers.

        Args:
            numbers: The numbers.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            levels = np.round(np.nan_to_num(numbers / np.float32(self.scale.step))) + self.scale.zero
        found: NDArray[Any] = np.clip(levels, self.least, self.most)
        return found

    def within(self, least: float, most: float) -> Target:
        """The same, of numbers that are kept between two bounds first.

        Args:
            least: The smallest number.
            most: The largest number.
        """
        low, high = self.levels(np.array([least, most], np.float32)).tolist()
        return Target(self.scale, int(low), int(high))

    def table(self, numbers: NDArray[Any]) -> Variable:
        """A table of the levels of numbers.

        Args:
            numbers: A number for each level that is looked up.
        """
        return constant(self.levels(numbers), np.uint8)


class Levels:
    """Levels of 8 bits, in the order of axes of the numbers that they stand for or with channels last.

    The other order is made when it is asked for.

    Args:
        scale: The numbers that they stand for, unless the graph computes that.
        plain: The levels in the order of axes.
        last: Those of images with channels last.
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
        """Whether there are levels with channels last."""
        return self._last is not None

    @property
    def plain(self) -> Variable:
        """The levels in the order of axes of the numbers."""
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
        """The same levels, for other numbers.

        Args:
            scale: The numbers; those of before by default.
            given: Step and zero point, if the graph computes them.
        """
        if scale == self.scale and given is None and self.given is None:
            return self
        return Levels(scale or self.scale, self._plain, self._last, given)

    def like(self, plain: Variable | None = None, last: Variable | None = None) -> Levels:
        """Other levels for numbers of the same scale.

        Args:
            plain: The levels in the order of axes.
            last: Those of images with channels last.
        """
        return Levels(self.scale, plain, last, self.given)

    def each(self, function: Callable[[Variable], Variable], scale: Scale) -> Levels:
        """What a function makes of each level, wherever it is.

        Args:
            function: The function.
            scale: What its levels stand for.
        """
        if self._last is not None:
            return Levels(scale, last=function(self._last))
        return Levels(scale, plain=function(self.plain))

    def mapped(self, target: Target, numbers: NDArray[Any] | None = None) -> Levels:
        """Levels by a table.

        Args:
            target: What they are to be.
            numbers: What becomes of the number that each level stands for; that itself by default.
        """
        if numbers is None:
            if target == Target(self.scale):
                return self
            numbers = self.scale.numbers(np.arange(256))
        table = target.table(numbers)
        return self.each(lambda x: F.lookup_uint8(x, table), target.scale)

    def dequantized(self) -> Variable:
        """The numbers."""
        return F.dequantize_uint8(self.plain, *self.parameters)


def _moved(x: Variable | None, axes: tuple[int, int, int, int]) -> Variable:
    """Images in the other order of axes, which are only named anew where they are one pixel or have one channel."""
    assert x is not None  # one of the two is there
    n = x.shape
    shape = tuple(n[axis] for axis in axes)
    if (n[1] == 1 and n[2] == 1 and axes[1] == 3) or (n[2] == 1 and n[3] == 1 and axes[1] == 2):
        return F.reshape(x, shape)
    return F.transpose_uint8(x, axes)
