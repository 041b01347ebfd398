"""Functions with parameters: layers that register their weights in the current parameter scope."""

from .convolutions import convolution, deconvolution, depthwise_convolution
from .decorator import parametric_function_api
from .layers import affine, embed, prelu
from .normalizations import batch_normalization, group_normalization, instance_normalization, layer_normalization
from .recurrent import LSTMCell, lstm_cell

__all__ = [
    "LSTMCell",
    "affine",
    "batch_normalization",
    "convolution",
    "deconvolution",
    "depthwise_convolution",
    "embed",
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "lstm_cell",
    "parametric_function_api",
    "prelu",
]
