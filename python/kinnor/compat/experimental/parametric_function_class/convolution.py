"""Convolution as a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .... import functions as F
from ....initializer import ConstantInitializer, UniformInitializer, calc_uniform_lim_glorot
from ....parametric_functions.arguments import multiple, sizes
from .module import Module, parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import RandomState

    from ...._core import Variable
    from ....initializer import Initializer

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvNd", "Convolution"]


class _Filters(Module):
    """The arguments and parameters that convolutions and their transposes have in common."""

    FUNCTION: ClassVar[Callable[..., Variable]]
    """The function that the layer calls."""
    IS_TRANSPOSED: ClassVar[bool] = False
    """True if the filters have the input maps first."""

    def __init__(
        self,
        inmaps: int,
        outmaps: int,
        kernel: Sequence[int],
        pad: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        group: int = 1,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        base_axis: int = 1,
        fix_parameters: bool = False,
        rng: RandomState | None = None,
        with_bias: bool = True,
    ) -> None:
        op = "Deconvolution" if self.IS_TRANSPOSED else "Convolution"
        inmaps, outmaps = sizes(op, "(inmaps, outmaps)", (inmaps, outmaps))
        taps = sizes(op, "kernel", kernel)
        if w_init is None:
            w_init = UniformInitializer(calc_uniform_lim_glorot(inmaps, outmaps, taps), rng)
        if self.IS_TRANSPOSED:
            maps = (inmaps, multiple(op, "`outmaps`", outmaps, group))
        else:
            maps = (outmaps, multiple(op, "`inmaps`", inmaps, group))
        self.W = parameter(w_init, (*maps, *taps), not fix_parameters)
        b_init = ConstantInitializer() if b_init is None else b_init
        self.b = parameter(b_init, (outmaps,), not fix_parameters) if with_bias else None
        self.base_axis, self.pad, self.stride, self.dilation, self.group = base_axis, pad, stride, dilation, group

    def __call__(self, inp: Variable) -> Variable:
        """Apply the layer.

        Args:
            inp: Input, shape (*batch, inmaps, *spatial).

        Returns:
            Array of shape (*batch, outmaps, *output spatial).
        """
        how = (self.base_axis, self.pad, self.stride, self.dilation, self.group)
        return self.FUNCTION(inp, self.W, self.b, *how)


class Convolution(_Filters):
    """Convolution over one to three spatial axes.

    Args:
        inmaps: Number of input maps.
        outmaps: Number of output maps.
        kernel: Shape of the filters; (3, 3) for images.
        pad: Padding at both ends of each spatial axis; by default 0.
        stride: Stride of each spatial axis; by default 1.
        dilation: Dilation of each spatial axis; by default 1.
        group: Number of groups of channels.
        w_init: Initial filters; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        base_axis: Axis of the channels; the axes before it are the batch.
        fix_parameters: Whether the parameters need no gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
    """

    FUNCTION = staticmethod(F.convolution)


Conv1d = Conv2d = Conv3d = ConvNd = Convolution
