"""SENet of 154 layers, from NNabla's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .base import ImageNetBase

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SENet"]


class SENet(ImageNetBase):
    """SENet of 154 layers.

    Args:
        weights: `"file"` for NNabla's file, or the path of another NNP file. There is no builder for random weights.

    Source:
        Hu, Shen, Sun: Squeeze-and-excitation networks, 2018.
    """

    FILE = "SENet-154.nnp"
    INPUT = "InputX"
    POOLING = "AveragePooling"
    POOLS_EVERYWHERE = True
    DROPOUTS = ("Dropout",)
    SHAPE = (3, 224, 224)
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "Affine",
        "pool": "AveragePooling",
        "lastconv": "Add2_7_RepeatStart_4[1]",
        "lastconv+relu": "ReLU_25_RepeatStart_4[1]",
    }
