"""Modules that networks for images are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import functions as F
from .. import parametric_functions as PF
from .._core import ShapeError
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core import Variable

__all__ = ["ConvBn", "ResUnit", "complete_dims", "get_conv_same_pad"]


class ConvBn(Module):
    """Convolution, batch normalization and, perhaps, an activation.

    Args:
        outmaps: Number of filters.
        kernel: Size of the filters, of both axes or of each.
        stride: Distance of neighbouring outputs, along both axes or each.
        act: The activation; None for none.
    """

    def __init__(
        self,
        outmaps: int,
        kernel: int | Sequence[int] = 1,
        stride: int | Sequence[int] = 1,
        act: Callable[[Variable], Variable] | None = None,
    ) -> None:
        self.outmaps, self.kernel, self.stride, self.act = outmaps, kernel, stride, act

    def call(self, x: Variable, training: bool = True) -> Any:
        """The output.

        Args:
            x: Images, shape (n, channels, height, width).
            training: Whether to use the statistics of the batch.

        Returns:
            Images of `outmaps` channels.
        """
        kernel, stride = complete_dims(self.kernel, 2), complete_dims(self.stride, 2)
        pad = get_conv_same_pad(kernel)
        h = PF.convolution(x, self.outmaps, kernel, pad, stride, with_bias=False)
        h = PF.batch_normalization(h, batch_stat=training)
        return h if self.act is None else self.act(h)


class ResUnit(Module):
    """A unit with a bottleneck that adds to its input, or to a convolution of it.

    Args:
        channels: Number of channels of the output.
        stride: Distance of neighbouring outputs.
        skip_by_conv: Whether a convolution of the input is what is added to.

    Source:
        He, Zhang, Ren, Sun: Deep residual learning for image recognition, 2016.
    """

    def __init__(self, channels: int, stride: int = 1, skip_by_conv: bool = True) -> None:
        self.conv1 = ConvBn(channels // 4, 1, 1, act=F.relu)
        self.conv2 = ConvBn(channels // 4, 3, stride, act=F.relu)
        self.conv3 = ConvBn(channels, 1)
        self.skip_by_conv = skip_by_conv
        self.skip = ConvBn(channels, 1, stride)

    def call(self, x: Variable, training: bool = True) -> Any:
        """The output.

        Args:
            x: Images, shape (n, channels, height, width).
            training: Whether to use the statistics of the batch.

        Returns:
            Images of `channels` channels.
        """
        h = self.conv3(self.conv2(self.conv1(x, training), training), training)
        return F.relu(h + (self.skip(x, training) if self.skip_by_conv else x))


def complete_dims(s: int | Sequence[int], dims: int) -> tuple[int, ...]:
    """A size for each axis.

    Args:
        s: One for all axes, or one for each.
        dims: Number of axes.

    Raises:
        ShapeError: If there are more sizes or less.

    Examples:
        >>> from kinnor.core.modules import complete_dims
        >>> complete_dims(3, 2), complete_dims((5, 1), 2)
        ((3, 3), (5, 1))
    """
    found = tuple(s) if hasattr(s, "__iter__") else (s,) * dims
    if len(found) != dims:
        raise ShapeError(f"complete_dims: expected one size or {dims}, got {s!r}")
    return found


def get_conv_same_pad(k: Sequence[int]) -> tuple[int, ...]:
    """The padding with which a convolution of odd filters keeps height and width.

    Args:
        k: Size of the filters along each axis.

    Examples:
        >>> from kinnor.core.modules import get_conv_same_pad
        >>> get_conv_same_pad((3, 5))
        (1, 2)
    """
    return tuple(size // 2 for size in k)
