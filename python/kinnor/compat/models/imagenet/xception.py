"""Xception, from NNabla's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .base import ImageNetBase

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Xception"]


class Xception(ImageNetBase):
    """Xception.

    Args:
        weights: `"file"` for NNabla's file, or the path of another NNP file. There is no builder for random weights.

    Source:
        Chollet: Xception: Deep learning with depthwise separable convolutions, 2017.
    """

    FILE = "Xception.nnp"
    INPUT = "InputX"
    POOLING = "Unit/AveragePooling"
    DROPOUTS = ("Unit/Dropout",)
    SHAPE = (3, 299, 299)
    AUGMENTATION = "ImageAugmentation"
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "Unit/Affine",
        "pool": "Unit/AveragePooling",
        "lastconv": "Unit/SeparableConv_13/SepConvBN",
        "lastconv+relu": "Unit/ReLU_14",
    }
