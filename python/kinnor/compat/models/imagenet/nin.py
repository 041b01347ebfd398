"""Network in network."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .... import functions as F
from .... import parametric_functions as PF
from .base import ImageNetBase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...._core import Variable
    from .base import Stages

__all__ = ["NIN"]


class NIN(ImageNetBase):
    """Network in network: 1 x 1 convolutions after each larger convolution, and no affine layer.

    Args:
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Source:
        Lin, Chen, Yan: Network in network, 2014.
    """

    FILE = "NIN.nnp"
    INPUT = "TrainingInput"
    POOLING = "NIN/AveragePooling"
    DROPOUTS = ("NIN/Dropout",)
    SHAPE = (3, 227, 227)
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "NIN/Reshape",
        "pool": "NIN/AveragePooling",
        "lastconv": "NIN/Convolution_3",
        "lastconv+relu": "NIN/ReLU_3",
    }

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Argument of the call.
            stages: Records the outputs of stages.
        """
        h = x
        groups = ((96, 11, 4, 0), (256, 5, 1, 2), (384, 3, 1, 1), (1024, 3, 1, 1))
        for group, (maps, kernel, stride, pad) in enumerate(groups, 1):
            last = group == len(groups)
            h = F.dropout(h, 0.5) if last and training else h
            for place, (n, k, s, p) in enumerate(((maps, kernel, stride, pad), (maps, 1, 1, 0), (maps, 1, 1, 0)), 1):
                n = 1000 if last and place == 3 else n
                name = f"conv{group}-{place}"
                h = PF.convolution(h, n, (k, k), (p, p), (s, s), fix_parameters=not training, name=name)
                stages.note("lastconv", h)
                h = stages.note("lastconv+relu", F.relu(h))
            h = h if last else F.max_pooling(h, (3, 3), (2, 2))
        h = stages.note("pool", F.average_pooling(h, h.shape[2:]))
        stages.note("classifier", F.reshape(h, h.shape[:2]))
