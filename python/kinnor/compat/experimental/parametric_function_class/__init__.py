"""Layers as classes: objects that hold their parameters."""

from .affine import Affine, Linear
from .batch_normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormalization
from .convolution import Conv1d, Conv2d, Conv3d, ConvNd, Convolution
from .deconvolution import Deconv1d, Deconv2d, Deconv3d, DeconvNd, Deconvolution
from .embed import Embed
from .module import Module

__all__ = [
    "Affine",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "BatchNormalization",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvNd",
    "Convolution",
    "Deconv1d",
    "Deconv2d",
    "Deconv3d",
    "DeconvNd",
    "Deconvolution",
    "Embed",
    "Linear",
    "Module",
]
