"""VGG networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .... import functions as F
from .... import parametric_functions as PF
from ...._core import RangeError
from .base import ImageNetBase, OneVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ...._core import Variable
    from .base import Stages

__all__ = ["VGG", "VGG11", "VGG13", "VGG16"]


class VGG(ImageNetBase):
    """VGG of 11, 13 or 16 layers.

    Args:
        num_layers: Number of layers.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        RangeError: If there is no network with this number of layers.
        FileNotFoundError: If the file does not exist.

    Source:
        Simonyan, Zisserman: Very deep convolutional networks for large-scale image recognition, 2015.
    """

    INPUT = "TrainingInput"
    LAYERS: ClassVar[Mapping[int, Sequence[int]]] = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3)}
    """Convolutions before each pooling, by number of layers."""

    def __init__(self, num_layers: int = 11, weights: str | Path | None = "file") -> None:
        if num_layers not in self.LAYERS:
            raise RangeError(f"VGG: expected `num_layers` to be one of {tuple(self.LAYERS)}, got {num_layers}")
        self.num_layers, prefix = num_layers, f"VGG{num_layers}"
        last = 13 if num_layers == 16 else 12
        self.KEYS = {  # type: ignore[misc]
            "classifier": f"{prefix}/Affine_3",
            "pool": f"{prefix}/MaxPooling_5",
            "lastconv": f"{prefix}/Convolution_{last}",
            "lastconv+relu": f"{prefix}/ReLU_{last}",
            "lastfeature": f"{prefix}/Affine_2",
        }
        self.DROPOUTS = (f"{prefix}/Dropout_1", f"{prefix}/Dropout_2")  # type: ignore[misc]
        self.FILE = f"VGG-{num_layers}.nnp"  # type: ignore[misc]
        super().__init__(weights)

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Whether dropout is active.
            stages: Records the outputs of stages.
        """
        h, place = x, 0
        for group, n in enumerate(self.LAYERS[self.num_layers]):
            for _ in range(n):
                place += 1
                channels = min(64 << group, 512)
                h = PF.convolution(h, channels, (3, 3), (1, 1), name=f"conv{place}", fix_parameters=not training)
                stages.note("lastconv", h)
                h = stages.note("lastconv+relu", F.relu(h))
            h = F.max_pooling(h, (2, 2))
        h = stages.note("pool", h)
        for place in (1, 2):
            h = PF.affine(h, 4096, name=f"fc{place}", fix_parameters=not training)
            stages.note("lastfeature", h)
            h = F.relu(h)
            h = F.dropout(h, 0.5) if training else h
        stages.note("classifier", PF.affine(h, 1000, name="fc3", fix_parameters=not training))


class VGG11(OneVersion, VGG):
    """VGG of 11 layers."""

    VERSION = 11


class VGG13(OneVersion, VGG):
    """VGG of 13 layers."""

    VERSION = 13


class VGG16(OneVersion, VGG):
    """VGG of 16 layers."""

    VERSION = 16
