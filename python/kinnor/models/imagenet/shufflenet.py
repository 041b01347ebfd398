"""ShuffleNet, from NNabla's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .base import ImageNetBase

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ShuffleNet", "ShuffleNet05", "ShuffleNet10", "ShuffleNet20"]


class ShuffleNet(ImageNetBase):
    """ShuffleNet.

    Args:
        weights: `"file"` for NNabla's file, or the path of another NNP file. There is no builder for random weights.

    Source:
        Zhang, Zhou, Lin, Sun: ShuffleNet: An extremely efficient convolutional neural network for mobile devices, 2018.
    """

    FILE = "ShuffleNet.nnp"
    INPUT = "InputX"
    POOLING = "AveragePooling"
    DROPOUTS = ()
    SHAPE = (3, 224, 224)
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "Affine",
        "pool": "AveragePooling",
        "lastconv": "Add2_3_RepeatStart_3[2]",
        "lastconv+relu": "ReLU_8_RepeatStart_3[2]",
    }


class ShuffleNet10(ShuffleNet):
    """ShuffleNet, as wide as the paper's.

    Args:
        weights: `"file"` for NNabla's file, or the path of another NNP file. There is no builder for random weights.
    """

    FILE = "ShuffleNet.nnp"


class ShuffleNet05(ShuffleNet):
    """ShuffleNet, half as wide.

    Args:
        weights: `"file"` for NNabla's file, or the path of another NNP file. There is no builder for random weights.
    """

    FILE = "ShuffleNet-.05x.nnp"


class ShuffleNet20(ShuffleNet):
    """ShuffleNet, twice as wide.

    Args:
        weights: `"file"` for NNabla's file, or the path of another NNP file. There is no builder for random weights.
    """

    FILE = "ShuffleNet-2.0x.nnp"
