"""Convolutions and their transposes as layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .. import functions as F
from .._core import CallError, RangeError
from ..core import Module
from ..parametric_functions import arguments
from .arguments import check_axis, each_axis, registered, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState

    from .._core import Variable
    from ..initializer import Initializer

__all__ = ["Conv", "ConvTranspose"]


class _Filters(Module):
    """Arguments and parameters that convolutions and their transposes have in common."""

    N_AXES: ClassVar[int | None] = None
    """Number of spatial axes, if the class says it."""

    W: Variable
    """The filters."""
    b: Variable | None
    """The bias, or None without bias."""

    def _set(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int],
        dilation: int | Sequence[int],
        groups: int,
    ) -> int:
        """Check arguments and set attributes; returns the number of spatial axes."""
        op = self._op = type(self).__name__
        self.in_channels = whole(op, "in_channels", in_channels)
        self.out_channels = whole(op, "out_channels", out_channels)
        self.groups = whole(op, "groups", groups)
        n_axes = type(self).N_AXES
        if n_axes is None:
            if isinstance(kernel_size, int):
                raise CallError(
                    f"{op}: expected `kernel_size` to be a tuple with a number for each axis, got {kernel_size}"
                )
            n_axes = len(kernel_size)
        self.kernel_size = each_axis(op, "kernel_size", kernel_size, n_axes, least=1)
        self.stride = each_axis(op, "stride", stride, n_axes, least=1)
        self.dilation = each_axis(op, "dilation", dilation, n_axes, least=1)
        return n_axes

    def _register(
        self,
        grouped: str,
        first: str,
        w_init: Initializer | None,
        b_init: Initializer | None,
        bias: bool,
        rng: RandomState | None,
    ) -> None:
        """Creates filters, shape (`first`, `grouped` / groups, *kernel_size), and the bias unless `bias` is false."""
        per_group = arguments.multiple(self._op, f"`{grouped}`", getattr(self, grouped), self.groups, "groups")
        fans = (getattr(self, grouped), getattr(self, first), self.kernel_size)
        arguments.weight((getattr(self, first), per_group, *self.kernel_size), w_init, fans, rng, False)
        self.W = registered(self, "W")
        arguments.bias((self.out_channels,), b_init, bias, False)
        self.b = registered(self, "b") if bias else None

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        return text if max(self.stride) == 1 else f"{text}, stride={self.stride}"


class Conv(_Filters):
    """Convolution over the axes after the channels. The parametric function is `convolution`.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the filters, one number for each axis; one number is enough if the class says how many
            axes there are, as `Conv2d`.
        stride: Distance of neighbouring outputs, for all axes or each.
        padding: Number of zeros to add at both ends, for all axes or each; "same" keeps the sizes
            with stride 1 and an odd kernel.
        dilation: Distance of neighbouring taps, for all axes or each.
        groups: Number of groups of channels that are treated apart.
        bias: True to add a bias.
        w_init: Initial filters; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        rng: Generator for the default of `w_init`.

    Attributes:
        W: Filters, shape (out_channels, in_channels / groups, *kernel_size).
        b: Bias, shape (out_channels,), or None.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.Conv(3, 8, (5, 5), padding="same")(nn.Variable((2, 3, 32, 32))).shape
        (2, 8, 32, 32)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        rng: RandomState | None = None,
    ) -> None:
        n_axes = self._set(in_channels, out_channels, kernel_size, stride, dilation, groups)
        self.padding = self._padding(padding, n_axes)
        self._register("in_channels", "out_channels", w_init, b_init, bias, rng)

    def _padding(self, padding: int | Sequence[int] | str, n_axes: int) -> tuple[int, ...]:
        """Returns `padding` as a number for each axis, computed for "same" and "valid"."""
        if not isinstance(padding, str):
            return each_axis(self._op, "padding", padding, n_axes)
        if padding == "valid":
            return (0,) * n_axes
        if padding != "same" or max(self.stride) > 1 or not all(n % 2 for n in self.kernel_size):
            expected = 'a number, "valid" or, with stride 1 and an odd kernel, "same"'
            raise RangeError(f"{self._op}: expected `padding` to be {expected}, got {padding!r}")
        return tuple(d * (k // 2) for d, k in zip(self.dilation, self.kernel_size, strict=True))

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (n, in_channels, *spatial).

        Returns:
            Array of shape (n, out_channels, *spatial of the output).

        Raises:
            ShapeError: If the input has another number of channels or axes.
        """
        check_axis(self._op, x, 1, self.in_channels, (2 + len(self.kernel_size),))
        return F.convolution(x, self.W, self.b, 1, self.padding, self.stride, self.dilation, self.groups)

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class ConvTranspose(_Filters):
    """Transposed convolution, which enlarges its input. The parametric function is `deconvolution`.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the filters, one number for each axis; one number is enough if the class says how many
            axes there are, as `ConvTranspose2d`.
        stride: Distance of neighbouring inputs in the output, for all axes or each.
        padding: Number of elements to cut off at both ends of the output, for all axes or each.
        output_padding: Number of elements to add to the output at its end, for all axes or each.
        dilation: Distance of neighbouring taps, for all axes or each.
        groups: Number of groups of channels that are treated apart.
        bias: True to add a bias.
        w_init: Initial filters; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        rng: Generator for the default of `w_init`.

    Attributes:
        W: Filters, shape (in_channels, out_channels / groups, *kernel_size).
        b: Bias, shape (out_channels,), or None.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.ConvTranspose(3, 8, (2, 2), stride=2)(nn.Variable((2, 3, 16, 16))).shape
        (2, 8, 32, 32)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        *,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        rng: RandomState | None = None,
    ) -> None:
        n_axes = self._set(in_channels, out_channels, kernel_size, stride, dilation, groups)
        self.padding = each_axis(self._op, "padding", padding, n_axes)
        self.output_padding = each_axis(self._op, "output_padding", output_padding, n_axes)
        self._register("out_channels", "in_channels", w_init, b_init, bias, rng)

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (n, in_channels, *spatial).

        Returns:
            Array of shape (n, out_channels, *spatial of the output).

        Raises:
            ShapeError: If the input has another number of channels or axes.
        """
        check_axis(self._op, x, 1, self.in_channels, (2 + len(self.kernel_size),))
        return F.deconvolution(
            x,
            self.W,
            self.b,
            1,
            self.padding,
            self.stride,
            self.dilation,
            self.groups,
            output_padding=self.output_padding if any(self.output_padding) else None,
        )

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call
