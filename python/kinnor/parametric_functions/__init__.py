"""Functions with parameters: layers that register their weights in the current parameter scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from .._suggest import absence

# As in NNabla, for programs that take these from here.
from ..initializer import ConstantInitializer as ConstantInitializer
from ..initializer import NormalInitializer as NormalInitializer
from ..initializer import UniformInitializer as UniformInitializer
from ..initializer import WeightNormalizationScaleInitializer as WeightNormalizationScaleInitializer
from ..initializer import calc_uniform_lim_glorot as calc_uniform_lim_glorot
from ..parameter import get_parameter as get_parameter
from ..parameter import get_parameter_or_create as get_parameter_or_create
from .convolutions import convolution, deconvolution, depthwise_convolution
from .decomposed import cpd3_convolution, svd_affine, svd_convolution
from .decorator import parametric_function_api
from .layers import affine, embed, prelu
from .normalizations import batch_normalization, group_normalization, instance_normalization, layer_normalization
from .recurrent import LSTMCell, lstm_cell
from .reparametrized import weight_normalization

__all__ = [
    "LSTMCell",
    "affine",
    "batch_normalization",
    "convolution",
    "cpd3_convolution",
    "deconvolution",
    "depthwise_convolution",
    "embed",
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "lstm_cell",
    "parametric_function_api",
    "prelu",
    "svd_affine",
    "svd_convolution",
    "weight_normalization",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(absence(f"{__name__}.{name}", __all__))
