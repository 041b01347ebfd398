"""SqueezeNet, a network with few parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import functions as F
from .... import parametric_functions as PF
from ...._core import RangeError
from ....parameter import parameter_scope
from .base import ImageNetBase, OneVersion

if TYPE_CHECKING:
    from pathlib import Path

    from ...._core import Variable
    from .base import Stages

__all__ = ["SqueezeNet", "SqueezeNetV10", "SqueezeNetV11"]


class SqueezeNet(ImageNetBase):
    """SqueezeNet.

    Args:
        version: `v1.0`, or `v1.1`, which needs fewer operations.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Source:
        Iandola et al.: SqueezeNet: AlexNet-level accuracy with 50x fewer parameters, 2016.
    """

    INPUT = "TrainingInput"
    SHAPE = (3, 227, 227)

    def __init__(self, version: str = "v1.1", weights: str | Path | None = "file") -> None:
        if version not in ("v1.0", "v1.1"):
            raise RangeError(f"SqueezeNet: expected `version` to be v1.0 or v1.1, got {version!r}")
        self.version, prefix = version, "SqueezeNet/" if version == "v1.1" else ""
        self.KEYS = {  # type: ignore[misc]
            "classifier": f"{prefix}Reshape",
            "pool": f"{prefix}AveragePooling",
            "lastconv": f"{prefix}Convolution_2",
            "lastconv+relu": f"{prefix}ReLU_2",
        }
        self.POOLING, self.DROPOUTS = f"{prefix}AveragePooling", (f"{prefix}Dropout",)  # type: ignore[misc]
        self.FILE = f"SqueezeNet-{version[1:]}.nnp"  # type: ignore[misc]
        super().__init__(weights)

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Argument of the call.
            stages: Records the outputs of stages.
        """
        fixed, first = not training, self.version == "v1.0"
        maps, kernel = (96, (7, 7)) if first else (64, (3, 3))
        h = F.relu(PF.convolution(x, maps, kernel, None, (2, 2), fix_parameters=fixed, name="conv1"))
        pooled = (1, 4, 8) if first else (1, 3, 5)
        for place in range(1, 10):
            if place > 1:
                squeezed = 16 * (place // 2)
                with parameter_scope(f"fire{place}"):
                    h = F.relu(PF.convolution(h, squeezed, (1, 1), fix_parameters=fixed, name="squeeze"))
                    one = PF.convolution(h, 4 * squeezed, (1, 1), fix_parameters=fixed, name="expand1")
                    three = PF.convolution(h, 4 * squeezed, (3, 3), (1, 1), fix_parameters=fixed, name="expand3")
                    h = F.relu(F.concatenate(one, three, axis=1))
            if place in pooled:
                h = F.max_pooling(h, (3, 3), (2, 2))
        h = F.dropout(h, 0.5) if training else h
        h = stages.note("lastconv", PF.convolution(h, 1000, (1, 1), fix_parameters=fixed, name="conv10"))
        h = stages.note("lastconv+relu", F.relu(h))
        h = stages.note("pool", F.average_pooling(h, h.shape[2:]))
        stages.note("classifier", F.reshape(h, h.shape[:2]))


class SqueezeNetV10(OneVersion, SqueezeNet):
    """SqueezeNet v1.0."""

    VERSION = "v1.0"


class SqueezeNetV11(OneVersion, SqueezeNet):
    """SqueezeNet v1.1."""

    VERSION = "v1.1"
