"""Layers without parameters that change shapes or drop elements."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from .. import _check
from .. import functions as F
from .._core import ShapeError
from ..core import Module
from .arguments import each_axis, probability

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core import Variable

__all__ = ["Dropout", "Flatten", "GlobalAvgPool", "Identity", "Pool"]


class Dropout(Module):
    """Sets elements to zero at random in training mode, and scales the others by `1 / (1 - p)`; otherwise does nothing.

    Args:
        p: Probability of zero, from 0 up to but not including 1.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> x = nn.Variable((2, 3))
        >>> L.Dropout(0.5).eval()(x) is x
        True
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = probability("Dropout", p)

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"{self.p}"

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, any shape.

        Returns:
            Array of the shape of the input; in evaluation mode the input itself.
        """
        return F.dropout(x, self.p) if self.training and self.p else x

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class Identity(Module):
    """Returns its input.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> x = nn.Variable((2, 3))
        >>> L.Identity()(x) is x
        True
    """

    def call(self, x: Variable) -> Variable:
        """The input.

        Args:
            x: Input, any shape.

        Returns:
            The input itself.
        """
        return x

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class Flatten(Module):
    """Joins all axes from one on.

    Args:
        start_axis: The first axis that is joined.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.Flatten()(nn.Variable((2, 3, 4, 4))).shape
        (2, 48)
    """

    def __init__(self, start_axis: int = 1) -> None:
        self.start_axis = _check.whole("Flatten", "start_axis", start_axis)

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"{self.start_axis}"

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, any shape.

        Returns:
            Array of shape (*x.shape[:start_axis], product of the others).
        """
        kept = x.shape[: self.start_axis]
        # The first axis is left open, so that networks take batches of any size.
        sizes = (-1, *kept[1:]) if kept else ()
        return F.reshape(x, (*sizes, prod(x.shape[self.start_axis :])))

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class GlobalAvgPool(Module):
    """Average over all axes but the first two.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.GlobalAvgPool()(nn.Variable((2, 3, 4, 4))).shape
        (2, 3)
    """

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (n, channels, ...).

        Returns:
            Array of shape (n, channels).
        """
        return F.mean(x, axis=tuple(range(2, x.ndim)))

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class Pool(Module):
    """The base of pooling layers: a function of windows of `N_AXES` spatial axes.

    Args:
        kernel_size: Size of the windows, for all axes or each.
        stride: Distance of neighbouring windows, for all axes or each; by default `kernel_size`.
        padding: Number of elements to add at both ends, for all axes or each.
    """

    N_AXES: ClassVar[int]
    """The number of spatial axes."""
    FUNCTION: ClassVar[Callable[..., Any]]
    """The pooling function."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
    ) -> None:
        op, n_axes = type(self).__name__, type(self).N_AXES
        self.kernel_size = each_axis(op, "kernel_size", kernel_size, n_axes, least=1)
        self.stride = each_axis(op, "stride", self.kernel_size if stride is None else stride, n_axes, least=1)
        self.padding = each_axis(op, "padding", padding, n_axes)

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}"

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (n, channels, *spatial).

        Returns:
            Array of the same channels and smaller spatial axes.

        Raises:
            ShapeError: If the input has another number of axes.
        """
        if x.ndim != 2 + self.N_AXES:
            expected = f"an input of {2 + self.N_AXES} axes"
            raise ShapeError(f"{type(self).__name__}: expected {expected}, got shape {x.shape}")
        y: Variable = self.FUNCTION(x, self.kernel_size, self.stride, pad=self.padding)
        return y

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call
