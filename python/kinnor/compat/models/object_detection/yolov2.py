"""YOLOv2: a single-pass object detector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import functions as F
from .... import parametric_functions as PF
from ...._core import RangeError, ShapeError
from ....parameter import parameter_scope
from .base import ObjectDetection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ...._core import Variable
    from ..base import Stages

__all__ = ["YoloV2"]

ANCHORS = {
    "voc": ((1.3221, 1.73145), (3.19275, 4.00944), (5.05587, 8.09892), (9.47112, 4.84053), (11.2364, 10.0071)),
    "coco": ((0.57273, 0.677385), (1.87446, 2.06253), (3.33843, 5.47434), (7.88282, 3.52778), (9.77052, 9.16828)),
}
"""Anchor widths and heights in grid cells, by data set, from the authors' settings."""
DARKNET = (
    ((32, 3),),
    ((64, 3),),
    ((128, 3), (64, 1), (128, 3)),
    ((256, 3), (128, 1), (256, 3)),
    ((512, 3), (256, 1), (512, 3), (256, 1), (512, 3)),
    ((1024, 3), (512, 1), (1024, 3), (512, 1), (1024, 3)),
)
"""Channels and kernel sizes of the layers of Darknet-19. A pooling follows each group except the last."""


class YoloV2(ObjectDetection):
    """YOLOv2: predicts five boxes for each 32 x 32 cell of an image.

    Images have values 0 to 255. Their height and width are multiples of 32. The stage `detection` has shape
    (n, 5 * cells, 5 + classes). A row has center, width and height of a box relative to the image, the objectness, and
    the class probabilities. The stage `convdetect` is the convolution before it, `lastconv` the layer before that.
    Parameters have the names of NNabla's files: `c1` to `c18`, `c18_19`, `c18_20`, `c13_14`, `c21` and `detection`.

    Args:
        dataset: `"voc"` for 20 classes, or `"coco"` for 80.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        RangeError: If the data set is unknown.
        FileNotFoundError: If the file does not exist.

    Source:
        Redmon, Farhadi: YOLO9000: Better, faster, stronger, 2017.

        >>> import kinnor as nn
        >>> from kinnor.models.object_detection import YoloV2
        >>> model = YoloV2(weights=None)
        >>> model(nn.Variable((2, 3, 64, 96))).shape
        (2, 30, 25)
    """

    SHAPE = (3, 416, 416)
    STAGES = ("detection", "convdetect", "lastconv")
    UNUSED = ("xs", "ys", "biases")

    def __init__(self, dataset: str = "voc", weights: str | Path | None = "file") -> None:
        if dataset not in ANCHORS:
            raise RangeError(f"YoloV2: expected `dataset` to be one of {', '.join(ANCHORS)}, got {dataset!r}")
        self.dataset = dataset
        super().__init__(f"yolov2-{dataset}.nnp", weights)

    def get_input_var(self, input_var: Variable | None) -> Variable:
        """The input variable of the network.

        Args:
            input_var: Images, shape (n, 3, height, width); None creates one of the network's default shape.

        Returns:
            The variable.

        Raises:
            ShapeError: If `input_var` has another shape, or if height or width is not a multiple of 32.
        """
        x = super().get_input_var(input_var)
        if any(length % 32 for length in x.shape[2:]):
            raise ShapeError(f"YoloV2: expected height and width to be multiples of 32, got shape {x.shape}")
        return x

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network, and record the outputs of its stages.

        Args:
            x: Images.
            training: Whether batch normalizations use batch statistics.
            stages: Records the outputs of stages.
        """
        h, number, fine = x * (1 / 255), 0, x
        for group, layers in enumerate(DARKNET):
            if group:
                fine, h = h, F.max_pooling(h, (2, 2), (2, 2))
            for channels, kernel in layers:
                number += 1
                h = _layer(h, channels, kernel, f"c{number}", training)
        h = _layer(h, 1024, 3, "c18_19", training)
        h = _layer(h, 1024, 3, "c18_20", training)
        h = F.concatenate(_folded(_layer(fine, 64, 1, "c13_14", training)), h, axis=1)
        h = stages.note("lastconv", _layer(h, 1024, 3, "c21", training))
        outputs = 5 * (5 + len(self.category_names))
        h = stages.note("convdetect", PF.convolution(h, outputs, (1, 1), fix_parameters=not training, name="detection"))
        stages.note("detection", self._boxes(h))

    def _boxes(self, h: Variable) -> Variable:
        """Decode the output of the last convolution into boxes, objectness and class probabilities."""
        n, maps, height, width = h.shape
        h = F.reshape(h, (n, 5, maps // 5, height, width))
        columns = F.reshape(F.arange(0, width), (1, 1, 1, 1, width))
        rows = F.reshape(F.arange(0, height), (1, 1, 1, height, 1))
        left = (F.sigmoid(h[:, :, 0:1]) + columns) * (1 / width)
        top = (F.sigmoid(h[:, :, 1:2]) + rows) * (1 / height)
        widths, heights = zip(*ANCHORS[self.dataset], strict=True)
        wide = F.exp(h[:, :, 2:3]) * _anchors(widths, width)
        high = F.exp(h[:, :, 3:4]) * _anchors(heights, height)
        parts = (left, top, wide, high, F.sigmoid(h[:, :, 4:5]), F.softmax(h[:, :, 5:], axis=2))
        y = F.transpose(F.concatenate(*parts, axis=2), (0, 1, 3, 4, 2))
        boxes: Variable = F.reshape(y, (n, 5 * height * width, maps // 5))
        return boxes


def _layer(x: Variable, channels: int, kernel: int, name: str, training: bool) -> Variable:
    """A convolution with 'same' padding, a batch normalization and an activation."""
    pad, fixed = (kernel // 2, kernel // 2), not training
    with parameter_scope(name):
        h = PF.convolution(x, channels, (kernel, kernel), pad, with_bias=False, fix_parameters=fixed)
        y: Variable = F.leaky_relu(PF.batch_normalization(h, batch_stat=training, fix_parameters=fixed))
    return y


def _folded(x: Variable) -> Variable:
    """Space-to-depth by 2: half the height and width, four times the channels, in Darknet's order.

    Darknet reads the array as one with a quarter of the channels and twice the height and width. Trained weights depend
    on this order.
    """
    n, channels, height, width = x.shape
    h = F.reshape(x, (n, channels // 4, height, 2, width, 2))
    h = F.transpose(h, (0, 3, 5, 1, 2, 4))
    return F.reshape(h, (n, 4 * channels, height // 2, width // 2))


def _anchors(lengths: Sequence[float], cells: int) -> Variable:
    """Anchor lengths relative to the image, computed by functions, so that the image is the network's only input."""
    y: Variable = F.reshape(F.concatenate(*(F.constant(n / cells, (1,)) for n in lengths), axis=0), (1, -1, 1, 1, 1))
    return y
