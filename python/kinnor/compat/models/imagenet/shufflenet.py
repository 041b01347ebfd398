"""ShuffleNet, from NNabla's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...._core import RangeError
from .base import ImageNetBase, OneVersion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["ShuffleNet", "ShuffleNet05", "ShuffleNet10", "ShuffleNet20"]


class ShuffleNet(ImageNetBase):
    """ShuffleNet.

    Args:
        scaling_factor: Width in tenths of the paper's network: 10, 5 or 20.
        weights: `"file"` for NNabla's file, or the path of another NNP file. There is no builder for random weights.

    Raises:
        RangeError: If there is no file for this width.

    Source:
        Zhang, Zhou, Lin, Sun: ShuffleNet: An extremely efficient convolutional neural network for mobile devices, 2018.
    """

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
    FILES: ClassVar[Mapping[int, str]] = {
        10: "ShuffleNet.nnp",
        5: "ShuffleNet-.05x.nnp",
        20: "ShuffleNet-2.0x.nnp",
    }
    """NNabla's files by width."""

    def __init__(self, scaling_factor: int = 10, weights: str | Path | None = "file") -> None:
        if scaling_factor not in self.FILES:
            raise RangeError(
                f"{type(self).__name__}: expected `scaling_factor` to be one of {tuple(self.FILES)}, "
                f"got {scaling_factor!r}"
            )
        self.scaling_factor = scaling_factor
        self.FILE = self.FILES[scaling_factor]  # type: ignore[misc]
        super().__init__(weights)


class ShuffleNet10(OneVersion, ShuffleNet):
    """ShuffleNet with the width of the paper."""

    VERSION = 10


class ShuffleNet05(OneVersion, ShuffleNet):
    """ShuffleNet with half the width of the paper."""

    VERSION = 5


class ShuffleNet20(OneVersion, ShuffleNet):
    """ShuffleNet with twice the width of the paper."""

    VERSION = 20
