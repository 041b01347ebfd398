"""Building blocks of image networks: convolution with batch normalization, and a residual unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import functions as F
from .. import parametric_functions as PF
from .._core import ShapeError
from ..core import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core import Variable

__all__ = ["ConvBn", "ResUnit", "complete_dims", "get_conv_same_pad"]


class ConvBn(Module):
    """Convolution, batch normalization and an optional activation.

    Args:
        outmaps: Number of filters.
        kernel: Kernel size, one for both axes or one for each.
        stride: Stride, one for both axes or one for each.
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
    """A residual bottleneck unit, with an identity or convolutional skip connection.

    Args:
        channels: Number of output channels.
        stride: Stride.
        skip_by_conv: Whether the skip connection is a convolution.

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
        s: One size for all axes, or one for each.
        dims: Number of axes.

    Raises:
        ShapeError: If the number of sizes is wrong.

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
    """The padding with which a convolution with odd kernel sizes keeps height and width.

    Args:
        k: Kernel size along each axis.

    Examples:
        >>> from kinnor.core.modules import get_conv_same_pad
        >>> get_conv_same_pad((3, 5))
        (1, 2)
    """
    return tuple(size // 2 for size in k)
