"""Residual networks with grouped convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...._core import RangeError
from .base import OneVersion
from .resnet import Residual

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["ResNeXt", "ResNeXt50", "ResNeXt101"]


class ResNeXt(Residual):
    """ResNeXt with 50 or 101 layers, and 32 groups of 4 channels.

    Args:
        num_layers: Number of layers.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Source:
        Xie, Girshick, Dollar, Tu, He: Aggregated residual transformations for deep neural networks, 2017.
    """

    GROUPS = 32
    WIDTH = 2
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "Affine",
        "pool": "AveragePooling",
        "lastconv": "Add2_7_RepeatStart_4[1]",
        "lastconv+relu": "ReLU_25_RepeatStart_4[1]",
    }
    LAYERS: ClassVar[Mapping[int, Sequence[int]]] = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
    """Units in each group, by number of layers."""

    def __init__(self, num_layers: int = 50, weights: str | Path | None = "file") -> None:
        if num_layers not in self.LAYERS:
            raise RangeError(f"ResNeXt: expected `num_layers` to be one of {tuple(self.LAYERS)}, got {num_layers}")
        self.num_layers, self.units, self.bottleneck = num_layers, self.LAYERS[num_layers], True
        self.FILE = f"ResNeXt-{num_layers}.nnp"  # type: ignore[misc]
        super().__init__(weights)


class ResNeXt50(OneVersion, ResNeXt):
    """ResNeXt of 50 layers."""

    VERSION = 50


class ResNeXt101(OneVersion, ResNeXt):
    """ResNeXt of 101 layers."""

    VERSION = 101
