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

from .._suggest import absence
from ..core import Module, ModuleDict, ModuleList, Sequential
from .activations import (
    ELU,
    GELU,
    SELU,
    Activation,
    HardSigmoid,
    HardSwish,
    LeakyReLU,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Swish,
    Tanh,
)
from .attention import MultiHeadAttention, MultiheadAttention
from .convolutions import (
    Conv,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from .dense import Affine, Embedding, Linear
from .normalizations import BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm
from .recurrent import GRU, LSTM
from .shapes import (
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    Dropout,
    Flatten,
    GlobalAvgPool,
    Identity,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)

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
        raise AttributeError(absence(f"{__name__}.{name}", __all__))
