"""DeepLabv3+: an encoder of dilated convolutions, and a decoder that refines object borders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import functions as F
from .... import parametric_functions as PF
from ...._core import RangeError, Variable
from ....parameter import parameter_scope
from .base import SemanticSegmentation

if TYPE_CHECKING:
    from pathlib import Path

    from ..base import Stages

__all__ = ["DeepLabV3plus"]

CLASSES = 21
"""The number of classes, background included."""
FINE, COARSE = 1e-5, 1e-3
"""Epsilon of batch normalizations: outside of the backbone, and in the backbone."""


class DeepLabV3plus(SemanticSegmentation):
    """DeepLabv3+ with the backbone Xception-65.

    Images have values -1 to 1. The stage `segmentation` has shape (n, 21, height, width), a score for each class. The
    stage `lastconv` is the last batch normalization before it, with a quarter of the height and width. The stage
    `lastconv+relu` is its activation. Parameters have the names of NNabla's files. In the backbone they begin with
    `xception_65`, elsewhere with `aspp0` to `aspp3`, `image_pooling`, `concat_projection` and `decoder`.

    Args:
        dataset: `"voc"`, or `"voc-coco"` for weights pretrained on COCO.
        output_stride: 16 or 8. The dilation rates of the pyramid are 6, 12 and 18, or with stride 8 twice as large.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        RangeError: If the data set or the stride is unknown.
        FileNotFoundError: If the file does not exist.

    Source:
        Chen, Zhu, Papandreou, Schroff, Adam: Encoder-decoder with atrous separable convolution for semantic image
        segmentation, 2018.
    """

    SHAPE = (3, 513, 513)
    STAGES = ("segmentation", "lastconv", "lastconv+relu")

    def __init__(self, dataset: str = "voc", output_stride: int = 16, weights: str | Path | None = "file") -> None:
        if dataset not in ("voc", "voc-coco"):
            raise RangeError(f"DeepLabV3plus: expected `dataset` to be one of voc, voc-coco, got {dataset!r}")
        if output_stride not in (8, 16):
            raise RangeError(f"DeepLabV3plus: expected `output_stride` to be 8 or 16, got {output_stride!r}")
        self.dataset, self.output_stride = dataset, output_stride
        super().__init__(f"DeepLabV3-{dataset}-os-{output_stride}.nnp", weights)

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Whether batch normalizations use batch statistics.
            stages: Records the outputs of stages.
        """
        with parameter_scope("xception_65"):
            low, h = _xception(x, training)
        h = self._pyramid(h, training)
        with parameter_scope("concat_projection"):
            h = F.relu(_normalized(h, 256, training))
        with parameter_scope("decoder"):
            with parameter_scope("feature_projection0"):
                low = F.relu(_normalized(low, 48, training))
            h = F.concatenate(F.interpolate(h, output_size=low.shape[2:], mode="linear"), low, axis=1)
            for place in range(2):
                with parameter_scope(f"decoder_conv{place}"):
                    h = _separable(h, 256, training, eps=FINE, inner=True)
            stages.note("lastconv", _before_activation(h))
            stages.note("lastconv+relu", h)
            with parameter_scope("logits/affine"):
                h = PF.convolution(h, CLASSES, (1, 1), fix_parameters=not training)
        stages.note("segmentation", F.interpolate(h, output_size=x.shape[2:], mode="linear"))

    def _pyramid(self, x: Variable, training: bool) -> Variable:
        """Atrous spatial pyramid pooling: convolutions with several dilation rates, and image-level features."""
        with parameter_scope("aspp0"):
            parts = [F.relu(_normalized(x, 256, training))]
        for place in (1, 2, 3):
            with parameter_scope(f"aspp{place}"):
                rate = 6 * place * (16 // self.output_stride)
                parts.append(_separable(x, 256, training, rate=rate, eps=FINE, inner=True))
        size = x.shape[2:]
        with parameter_scope("image_pooling"):
            h = F.relu(_normalized(F.average_pooling(x, size, size), 256, training))
        y: Variable = F.concatenate(F.interpolate(h, output_size=size, mode="linear"), *parts, axis=1)
        return y


def _normalized(
    x: Variable, maps: int, training: bool, kernel: int = 1, stride: int = 1, eps: float = FINE
) -> Variable:
    """A convolution and a batch normalization."""
    pad, fixed = (kernel // 2, kernel // 2), not training
    h = PF.convolution(x, maps, (kernel, kernel), pad, (stride, stride), with_bias=False, fix_parameters=fixed)
    y: Variable = PF.batch_normalization(h, eps=eps, batch_stat=training, fix_parameters=fixed)
    return y


def _separable(
    x: Variable,
    maps: int,
    training: bool,
    stride: int = 1,
    rate: int = 1,
    eps: float = COARSE,
    inner: bool = False,
    outer: bool = True,
) -> Variable:
    """A depthwise and a pointwise convolution; `inner` and `outer` add an activation after each."""
    fixed = not training
    with parameter_scope("depthwise"):
        pad, step = (rate, rate), (stride, stride)
        h = PF.depthwise_convolution(x, (3, 3), pad, step, pad, with_bias=False, fix_parameters=fixed)
        h = PF.batch_normalization(h, eps=eps, batch_stat=training, fix_parameters=fixed)
        h = F.relu(h) if inner else h
    with parameter_scope("pointwise"):
        h = _normalized(h, maps, training, eps=eps)
    return F.relu(h) if outer else h


def _unit(
    x: Variable, maps: tuple[int, int, int], training: bool, stride: int = 1, rate: int = 1, last: bool = False
) -> tuple[Variable, Variable]:
    """Three separable convolutions. Also returns the second one's output before its activation."""
    h, second = x if last else F.relu(x), x
    for place, n in enumerate(maps):
        with parameter_scope(f"separable_conv{place + 1}"):
            step = stride if place == 2 else 1
            h = _separable(h, n, training, step, rate, inner=last, outer=place < 2)
        if place == 1:
            second = _before_activation(h)
    return h, second


def _xception(x: Variable, training: bool) -> tuple[Variable, Variable]:
    """The backbone: features at 1/4 and at 1/16 of the image size."""
    low = x
    with parameter_scope("entry_flow"):
        with parameter_scope("1"):
            h = F.relu(_normalized(x, 32, training, 3, 2, COARSE))
        with parameter_scope("2"):
            h = F.relu(_normalized(h, 64, training, 3, 1, COARSE))
        for place, maps in enumerate((128, 256, 728)):
            with parameter_scope(f"block{place + 1}/unit_1"):
                y, second = _unit(h, (maps, maps, maps), training, stride=2)
                h = y + _shortcut(h, maps, training, 2)
            low = second if place == 1 else low
    with parameter_scope("middle_flow/block1"):
        for place in range(16):
            with parameter_scope(f"unit_{place + 1}"):
                h = _unit(h, (728, 728, 728), training)[0] + h
    with parameter_scope("exit_flow"):
        with parameter_scope("block1/unit_1"):
            h = _unit(h, (728, 1024, 1024), training)[0] + _shortcut(h, 1024, training, 1)
        with parameter_scope("block2/unit_1"):
            h, _ = _unit(h, (1536, 1536, 2048), training, rate=2, last=True)
    return low, F.relu(h)


def _shortcut(x: Variable, maps: int, training: bool, stride: int) -> Variable:
    """A 1 x 1 convolution and a batch normalization."""
    with parameter_scope("shortcut"):
        return _normalized(x, maps, training, 1, stride, COARSE)


def _before_activation(y: Variable) -> Variable:
    """The input of the activation that computes `y`, or `y` itself if it is a leaf."""
    f = y.parent
    return y if f is None else f.inputs[0]
