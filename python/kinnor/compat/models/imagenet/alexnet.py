"""AlexNet."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .... import functions as F
from .... import parametric_functions as PF
from .base import ImageNetBase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...._core import Variable
    from .base import Stages

__all__ = ["AlexNet"]


class AlexNet(ImageNetBase):
    """AlexNet.

    Args:
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Source:
        Krizhevsky, Sutskever, Hinton: ImageNet classification with deep convolutional neural networks, 2012.
    """

    FILE = "AlexNet.nnp"
    INPUT = "TrainingInput"
    DROPOUTS = ("TrainNet/Dropout", "TrainNet/Dropout_2")
    SHAPE = (3, 227, 227)
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "TrainNet/Affine_3",
        "pool": "TrainNet/MaxPooling_3",
        "lastconv": "TrainNet/Convolution_5",
        "lastconv+relu": "TrainNet/ReLU_5",
        "lastfeature": "TrainNet/Affine_2",
    }

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Argument of the call.
            stages: Records the outputs of stages.
        """
        h = x
        layers = ((96, 11, 4, 0, 1), (256, 5, 1, 2, 2), (384, 3, 1, 1, 1), (384, 3, 1, 1, 2), (256, 3, 1, 1, 2))
        for place, (maps, kernel, stride, pad, group) in enumerate(layers, 1):
            shape, fixed = (kernel, kernel), not training
            h = PF.convolution(
                h, maps, shape, (pad,) * 2, (stride,) * 2, None, group, fix_parameters=fixed, name=f"conv{place}"
            )
            stages.note("lastconv", h)
            h = stages.note("lastconv+relu", F.relu(h))
            if place in (1, 2, 5):
                h = F.max_pooling(h, (3, 3), (2, 2))
        h = stages.note("pool", h)
        for place in (1, 2):
            h = F.dropout(h, 0.5) if training else h
            h = stages.note("lastfeature", PF.affine(h, 4096, fix_parameters=not training, name=f"fc{place}"))
            h = F.relu(h)
        stages.note("classifier", PF.affine(h, 1000, fix_parameters=not training, name="fc3"))
