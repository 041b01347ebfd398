"""Transposed convolution as a class."""

from __future__ import annotations

from .... import functions as F
from .convolution import _Filters

__all__ = ["Deconv1d", "Deconv2d", "Deconv3d", "DeconvNd", "Deconvolution"]


class Deconvolution(_Filters):
    """Transposed convolution: the gradient of a convolution by its input, applied to this layer's input, plus a bias.

    Args:
        inmaps: Number of input maps.
        outmaps: Number of output maps.
        kernel: Shape of the filters; (3, 3) for images.
        pad: Size cut off the output at both ends of each spatial axis; by default 0.
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

    FUNCTION = staticmethod(F.deconvolution)
    IS_TRANSPOSED = True


Deconv1d = Deconv2d = Deconv3d = DeconvNd = Deconvolution
