"""Layers as objects: modules that make their parameters when they are built.

They have the parameters, initial values and functions of `kinnor.parametric_functions`, and the names of PyTorch's
layers. Dropout and batch normalization follow `train` and `eval` of the modules around them.

    >>> import kinnor as nn, kinnor.layers as L
    >>> network = L.Sequential(L.Linear(3, 8), L.ReLU(), L.Dropout(0.5), L.Linear(8, 2))
    >>> network.eval()(nn.Variable((5, 3))).shape
    (5, 2)
    >>> len(list(network.parameters()))
    4
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from .._suggest import absent
from ..core import Module, ModuleDict, ModuleList, Sequential
from .activations import ELU, Activation, LeakyReLU, LogSoftmax, PReLU, Softmax, Softplus
from .attention import MultiHeadAttention, MultiheadAttention
from .convolutions import Conv, ConvTranspose
from .dense import Affine, Embedding, Linear
from .derived import (
    GELU,
    SELU,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    HardSigmoid,
    HardSwish,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    Mish,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Swish,
    Tanh,
)
from .normalizations import BatchNorm, GroupNorm, LayerNorm, RMSNorm
from .recurrent import GRU, LSTM
from .shapes import Dropout, Flatten, GlobalAvgPool, Identity

__all__ = [
    "ELU",
    "GELU",
    "GRU",
    "LSTM",
    "SELU",
    "Activation",
    "Affine",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool",
    "GroupNorm",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiHeadAttention",
    "MultiheadAttention",
    "PReLU",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Swish",
    "Tanh",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        absent(f"{__name__}.{name}", __all__)
