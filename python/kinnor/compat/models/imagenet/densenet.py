"""DenseNet: each layer reads the outputs of all layers before it in its block."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .... import functions as F
from .... import parametric_functions as PF
from .base import ImageNetBase
from .resnet import normalized

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...._core import Variable
    from .base import Stages

__all__ = ["DenseNet"]


class DenseNet(ImageNetBase):
    """DenseNet with 161 layers and growth rate 48.

    Args:
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Source:
        Huang, Liu, van der Maaten, Weinberger: Densely connected convolutional networks, 2017.
    """

    FILE = "DenseNet-161.nnp"
    NETWORK = "Train"
    POOLING = "DenseNet/AveragePooling_4"
    KEYS: ClassVar[Mapping[str, str]] = {
        "classifier": "DenseNet/Affine",
        "pool": "DenseNet/AveragePooling_4",
        "lastconv": "DenseNet/BatchNormalization_5",
        "lastconv+relu": "DenseNet/ReLU_5",
    }

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Argument of the call.
            stages: Records the outputs of stages.
        """
        fixed = not training

        def activated(h: Variable, name: str) -> tuple[Variable, Variable]:
            """Batch normalization and its ReLU. Returns both."""
            h = PF.batch_normalization(h, batch_stat=training, fix_parameters=fixed, name=name)
            return h, F.relu(h)

        h = F.relu(normalized(x, 96, 7, 2, "conv1", training))
        h = F.max_pooling(h, (3, 3), (2, 2), pad=(1, 1))
        blocks = (6, 12, 36, 24)
        for block, n in enumerate(blocks, 1):
            for layer in range(1, n + 1):
                name = f"dense{block}-{layer}"
                y = activated(h, f"{name}-in")[1]
                y = F.relu(normalized(y, 192, 1, 1, f"{name}-squeeze", training))
                y = PF.convolution(y, 48, (3, 3), (1, 1), with_bias=False, fix_parameters=fixed, name=name)
                h = F.concatenate(h, y, axis=1)
            if block < len(blocks):
                y = activated(h, f"transition{block}-in")[1]
                y = PF.convolution(
                    y, h.shape[1] // 2, (1, 1), with_bias=False, fix_parameters=fixed, name=f"transition{block}"
                )
                h = F.average_pooling(y, (2, 2))
        before, h = activated(h, "last")
        stages.note("lastconv", before)
        stages.note("lastconv+relu", h)
        h = stages.note("pool", F.average_pooling(h, h.shape[2:]))
        stages.note("classifier", PF.affine(h, 1000, fix_parameters=fixed, name="fc"))
