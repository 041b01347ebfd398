"""Residual networks, and the base class of related networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .... import functions as F
from .... import parametric_functions as PF
from ...._core import RangeError
from ....parameter import parameter_scope
from .base import ImageNetBase, OneVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ...._core import Variable
    from .base import Stages

__all__ = ["ResNet", "ResNet18", "ResNet34", "ResNet50", "ResNet101", "ResNet152", "Residual"]


class Residual(ImageNetBase):
    """Residual network: a 7 x 7 convolution, a pooling, and four groups of residual units.

    Attributes:
        units: Number of units in each group.
        bottleneck: Whether a unit has three convolutions; the 1 x 1 convolutions reduce and restore the channels.
    """

    POOLING = "AveragePooling"
    GROUPS: ClassVar[int] = 1
    """Groups of channels of the middle convolution."""
    WIDTH: ClassVar[float] = 1
    """Width of the middle convolution relative to a ResNet."""

    units: Sequence[int]
    bottleneck: bool

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Whether batch normalizations use batch statistics.
            stages: Records the outputs of stages.
        """
        h = F.relu(normalized(x, 64, 7, 2, "conv1", training))
        h = F.max_pooling(h, (3, 3), (2, 2), pad=(1, 1))
        before = h
        for group, n in enumerate(self.units):
            for unit in range(n):
                with parameter_scope(f"res{group + 1}-{unit + 1}"):
                    stride = 2 if group and not unit else 1
                    before = self._unit(h, 64 << group, stride, training)
                    h = F.relu(before)
        stages.note("lastconv", before)
        stages.note("lastconv+relu", h)
        h = stages.note("pool", F.average_pooling(h, h.shape[2:]))
        stages.note("classifier", PF.affine(h, 1000, fix_parameters=not training, name="fc"))

    def _unit(self, x: Variable, channels: int, stride: int, training: bool) -> Variable:
        """A residual unit without its last activation."""
        if self.bottleneck:
            middle = int(channels * self.WIDTH)
            h = F.relu(normalized(x, middle, 1, 1, "conv1", training))
            h = F.relu(normalized(h, middle, 3, stride, "conv2", training, self.GROUPS))
            h = normalized(h, 4 * channels, 1, 1, "conv3", training)
        else:
            h = F.relu(normalized(x, channels, 3, stride, "conv1", training))
            h = normalized(h, channels, 3, 1, "conv2", training)
        if h.shape != x.shape:
            x = normalized(x, h.shape[1], 1, stride, "shortcut", training)
        return h + x


class ResNet(Residual):
    """ResNet of 18, 34, 50, 101 or 152 layers.

    Args:
        num_layers: Number of layers.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        RangeError: If there is no network with this number of layers.
        FileNotFoundError: If the file does not exist.

    Source:
        He, Zhang, Ren, Sun: Deep residual learning for image recognition, 2016.

        >>> import kinnor as nn
        >>> from kinnor.models.imagenet import ResNet18
        >>> model = ResNet18(weights=None)
        >>> model(nn.Variable((2, 3, 64, 64)), use_up_to="pool").shape
        (2, 512, 1, 1)
    """

    LAYERS: ClassVar[Mapping[int, Sequence[int]]] = {
        18: (2, 2, 2, 2),
        34: (3, 4, 6, 3),
        50: (3, 4, 6, 3),
        101: (3, 4, 23, 3),
        152: (3, 8, 36, 3),
    }
    """Units in each group, by number of layers."""

    def __init__(self, num_layers: int = 18, weights: str | Path | None = "file") -> None:
        name = type(self).__name__
        if num_layers not in self.LAYERS:
            raise RangeError(f"{name}: expected `num_layers` to be one of {tuple(self.LAYERS)}, got {num_layers}")
        self.num_layers, self.units, self.bottleneck = num_layers, self.LAYERS[num_layers], num_layers >= 50
        index = 0 if num_layers == 18 else 1
        self.KEYS = {  # type: ignore[misc]
            "classifier": "Affine",
            "pool": "AveragePooling",
            "lastconv": f"Add2_7_RepeatStart_4[{index}]",
            "lastconv+relu": f"ReLU_25_RepeatStart_4[{index}]",
        }
        self.FILE = f"Resnet-{num_layers}.nnp"  # type: ignore[misc]
        super().__init__(weights)


class ResNet18(OneVersion, ResNet):
    """ResNet of 18 layers."""

    VERSION = 18


class ResNet34(OneVersion, ResNet):
    """ResNet of 34 layers."""

    VERSION = 34


class ResNet50(OneVersion, ResNet):
    """ResNet of 50 layers."""

    VERSION = 50


class ResNet101(OneVersion, ResNet):
    """ResNet of 101 layers."""

    VERSION = 101


class ResNet152(OneVersion, ResNet):
    """ResNet of 152 layers."""

    VERSION = 152


def normalized(
    x: Variable, channels: int, kernel: int, stride: int, name: str, training: bool, group: int = 1
) -> Variable:
    """A convolution with 'same' padding and a stride, and a batch normalization."""
    pad, step, shape = (kernel // 2,) * 2, (stride,) * 2, (kernel,) * 2
    with parameter_scope(name):
        h = PF.convolution(x, channels, shape, pad, step, group=group, with_bias=False, fix_parameters=not training)
        made: Any = PF.batch_normalization(h, batch_stat=training, fix_parameters=not training)
    found: Variable = made
    return found
