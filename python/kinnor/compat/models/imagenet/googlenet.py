"""GoogLeNet, from NNabla's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .base import ImageNetBase

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GoogLeNet"]


class GoogLeNet(ImageNetBase):
    """GoogLeNet.

    Args:
        weights: `"file"` for NNabla's file, or the path of another NNP file. There is no builder for random weights.

    Source:
        Szegedy et al.: Going deeper with convolutions, 2015.
    """

    FILE = "GoogLeNet.nnp"
    NETWORK = "Train"
    INPUT = "InputX"
    POOLING = "AveragePooling_3"
    DROPOUTS = ("Dropout_3",)
    TOWERS = (
        *("AveragePooling", "Convolution_22", "ReLU_22", "Affine", "ReLU_23", "Dropout", "Affine_2"),
        *("SoftmaxCrossEntropy", "MulScalarLoss1"),
        *("AveragePooling_2", "Convolution_41", "ReLU_42", "Affine_3", "ReLU_43", "Dropout_2", "Affine_4"),
        *("SoftmaxCrossEntropy_2", "MulScalarLoss2"),
    )
    SHAPE = (3, 224, 224)
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "Affine_5",
        "pool": "AveragePooling_3",
        "prepool": "Concatenate_9",
    }
