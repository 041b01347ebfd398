"""Parametric functions: layers that register their weights in the current parameter scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from .._suggest import absent

# NNabla exports these names from here as well.
from ..initializer import ConstantInitializer as ConstantInitializer
from ..initializer import NormalInitializer as NormalInitializer
from ..initializer import UniformInitializer as UniformInitializer
from ..initializer import WeightNormalizationScaleInitializer as WeightNormalizationScaleInitializer
from ..initializer import calc_uniform_lim_glorot as calc_uniform_lim_glorot
from ..parameter import get_parameter as get_parameter
from ..parameter import get_parameter_or_create as get_parameter_or_create
from .attention import multi_head_attention, transformer, transformer_decode, transformer_encode
from .convolutions import (
    convolution,
    deconvolution,
    deformable_convolution,
    depthwise_convolution,
    depthwise_deconvolution,
)
from .decomposed import cpd3_convolution, svd_affine, svd_convolution
from .decorator import parametric_function_api
from .families import min_max_quantize
from .fused import fused_batch_normalization, mean_subtraction, sync_batch_normalization
from .layers import affine, embed, prelu
from .normalizations import batch_normalization, group_normalization, instance_normalization, layer_normalization
from .quantized import (
    binary_connect_affine,
    binary_connect_convolution,
    binary_weight_affine,
    binary_weight_convolution,
    fixed_point_quantized_affine,
    fixed_point_quantized_convolution,
    inq_affine,
    inq_convolution,
    min_max_quantized_affine,
    min_max_quantized_convolution,
    pow2_quantized_affine,
    pow2_quantized_convolution,
    pruned_affine,
    pruned_convolution,
)
from .recurrent import LSTMCell, gru, lstm, lstm_cell, rnn
from .reparametrized import spectral_norm, weight_normalization

# NNabla's name of its composed version, which its tests use.
_spectral_norm_v1 = spectral_norm

__all__ = [
    "LSTMCell",
    "affine",
    "batch_normalization",
    "binary_connect_affine",
    "binary_connect_convolution",
    "binary_weight_affine",
    "binary_weight_convolution",
    "convolution",
    "cpd3_convolution",
    "deconvolution",
    "deformable_convolution",
    "depthwise_convolution",
    "depthwise_deconvolution",
    "embed",
    "fixed_point_quantized_affine",
    "fixed_point_quantized_convolution",
    "fused_batch_normalization",
    "group_normalization",
    "gru",
    "inq_affine",
    "inq_convolution",
    "instance_normalization",
    "layer_normalization",
    "lstm",
    "lstm_cell",
    "mean_subtraction",
    "min_max_quantize",
    "min_max_quantized_affine",
    "min_max_quantized_convolution",
    "multi_head_attention",
    "parametric_function_api",
    "pow2_quantized_affine",
    "pow2_quantized_convolution",
    "prelu",
    "pruned_affine",
    "pruned_convolution",
    "rnn",
    "spectral_norm",
    "svd_affine",
    "svd_convolution",
    "sync_batch_normalization",
    "transformer",
    "transformer_decode",
    "transformer_encode",
    "weight_normalization",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        absent(f"{__name__}.{name}", __all__)
