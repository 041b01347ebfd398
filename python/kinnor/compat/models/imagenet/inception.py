"""Inception v3, from NNabla's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .base import ImageNetBase

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["InceptionV3"]


class InceptionV3(ImageNetBase):
    """Inception v3.

    Args:
        weights: `"file"` for NNabla's file, or the path of another NNP file. There is no builder for random weights.

    Source:
        Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception architecture for computer vision, 2016.
    """

    FILE = "Inception-v3.nnp"
    NETWORK = "Train"
    INPUT = "Iv3TrainInput"
    POOLING = "AveragePooling_2"
    DROPOUTS = ("Dropout",)
    TOWERS = (
        *("Conv_6/Convolution", "Conv_6/BatchNormalization", "Conv_6/ReLU", "AveragePooling"),
        *("Conv_7/Convolution", "Conv_7/BatchNormalization", "Conv_7/ReLU"),
        *("Affine_2", "SoftmaxCrossEntropy_2", "MulScalar_2"),
    )
    SHAPE = (3, 299, 299)
    AUGMENTATION = "ImageAugmentation"
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "Affine",
        "pool": "AveragePooling_2",
        "prepool": "Inception_11/Concatenate",
    }
