"""MobileNets: depthwise separable convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .... import functions as F
from .... import parametric_functions as PF
from ....parameter import parameter_scope
from .base import ImageNetBase
from .resnet import normalized

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...._core import Variable
    from .base import Stages

__all__ = ["MobileNet", "MobileNetV2"]


class MobileNet(ImageNetBase):
    """MobileNet v1.

    Args:
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Source:
        Howard et al.: MobileNets: Efficient convolutional neural networks for mobile vision applications, 2017.
    """

    FILE = "MobileNet.nnp"
    POOLING = "AveragePooling"
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "Affine",
        "pool": "AveragePooling",
        "lastconv": "BatchNormalization_19",
        "lastconv+relu": "ReLU_19",
    }

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Argument of the call.
            stages: Records the outputs of stages.
        """
        h = F.relu(normalized(x, 32, 3, 2, "conv1", training))
        layers = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
        for place, (maps, stride) in enumerate(layers, 2):
            h = F.relu(normalized(h, h.shape[1], 3, stride, f"conv{place}-depthwise", training, h.shape[1]))
            before = stages.note("lastconv", normalized(h, maps, 1, 1, f"conv{place}-pointwise", training))
            h = stages.note("lastconv+relu", F.relu(before))
        h = stages.note("pool", F.average_pooling(h, h.shape[2:]))
        stages.note("classifier", PF.affine(h, 1000, fix_parameters=not training, name="fc"))


class MobileNetV2(ImageNetBase):
    """MobileNet v2, with inverted residual units.

    Args:
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Source:
        Sandler et al.: MobileNetV2: Inverted residuals and linear bottlenecks, 2018.
    """

    FILE = "MobileNet-v2.nnp"
    POOLING = "AveragePooling"
    INPUT = "ImageAugmentationX"
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "Reshape",
        "pool": "AveragePooling",
        "lastconv": "BatchNormalization_2",
        "lastconv+relu": "ReLU_2",
    }

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Argument of the call.
            stages: Records the outputs of stages.
        """
        h = F.relu6(normalized(x, 32, 3, 2, "conv1", training))
        groups = (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        for group, (factor, maps, n, stride) in enumerate(groups, 1):
            for unit in range(n):
                with parameter_scope(f"unit{group}-{unit + 1}"):
                    y, middle = h, h.shape[1] * factor
                    if factor > 1:
                        y = F.relu6(normalized(y, middle, 1, 1, "expand", training))
                    y = normalized(y, middle, 3, 1 if unit else stride, "depthwise", training, middle)
                    y = normalized(F.relu6(y), maps, 1, 1, "project", training)
                    h = h + y if h.shape == y.shape else y
        h = stages.note("lastconv", normalized(h, 1280, 1, 1, "last", training))
        h = stages.note("lastconv+relu", F.relu6(h))
        h = stages.note("pool", F.average_pooling(h, h.shape[2:]))
        h = PF.convolution(h, 1000, (1, 1), fix_parameters=not training, name="fc")
        stages.note("classifier", F.reshape(h, h.shape[:2]))
